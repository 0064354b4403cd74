"""One query over the files of the generator on the local engine, step by step; and alone in a process.

`python -m benchmarks.nexmark.local NAME FOLDER WAY` prints what it took, as JSON, and writes the answer to
FOLDER/answers. A way is `perfect`, `eager` or `duckdb`.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import recension as rc
from benchmarks.child import peak_mb, use_one_core
from benchmarks.nexmark import judge
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers.clock import timed

if TYPE_CHECKING:
    from recension.runners.local import Session

SMALL = Settings(500, steps=2)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LEVELS = {"perfect": None, "eager": rc.MIDDLE}
"""How answers come: when they are final, or at once, with corrections."""


def run(name: str, folder: Path, level: str = "perfect") -> tuple[Session, int]:
    """The session at the end of all files, and how many elements it gave, corrections included."""
    query, chosen = QUERIES[name](), LEVELS[level]
    live = rc.session(query if chosen is None else query.consistency(chosen), history_limit=None)
    elements = 0
    for table in sorted(live.tables):
        live.push(table, pq.read_table(folder / table))
    streams = [source for source in live.sources if source not in live.tables]
    for step, cti in enumerate(json.loads((folder / "steps.json").read_text())["ctis"]):
        for source in streams:
            live.push(source, pq.read_table(folder / source / f"{step:05}.parquet"))
            live.advance(source, _EPOCH + dt.timedelta(microseconds=cti))
        elements += _take(name, live, folder, step)
    live.close()
    return live, elements + _take(name, live, folder, -1)


def _take(name: str, live: Session, folder: Path, step: int) -> int:
    """What a step gave is read; that of q10 is written, to a folder for every minute."""
    found = live.read()
    if name == "q10" and step >= 0:
        rows = found.to_arrow()
        pq.write_to_dataset(
            rows.filter(pc.is_valid(rows["day"])),
            folder / "log",
            partition_cols=["day", "minute"],
            basename_template=f"{step:05}-{{i}}.parquet",
        )
    return sum(len(batch) for batch in found.batches)


def measure(name: str, folder: Path, level: str) -> dict[str, Any]:
    """One run, timed from the first file to the last answer.

    Of two small ones before, the first loads what it needs; the second is what a run takes without events.
    """
    with TemporaryDirectory() as small:
        write(SMALL, Path(small))
        _answer(name, Path(small), level)
        _, fixed = timed(lambda: _answer(name, Path(small), level))
    gc.collect()
    (history, elements), took = timed(lambda: _answer(name, folder, level))
    peak, answer = peak_mb(), history()
    (folder / "answers").mkdir(exist_ok=True)
    pq.write_table(answer, folder / "answers" / f"{name}-{level}.parquet")
    return {**took, "fixed": fixed, "peak_mb": peak, "rows": answer.num_rows, "elements": elements}


def _answer(name: str, folder: Path, level: str) -> tuple[Callable[[], pa.Table], int]:
    """How to get the answer as one table, and how many elements came out."""
    if level == "duckdb":
        found = judge.answer(folder, name)
        return lambda: found, found.num_rows
    live, elements = run(name, folder, level)
    return lambda: live.history().to_arrow(), elements


if __name__ == "__main__":
    use_one_core()
    json.dump(measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3]), sys.stdout)
