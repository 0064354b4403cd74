"""Pathway: rows in 40 steps of its own time; answers are corrected as rows come, none is dropped."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pathway as pw
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.clock import run

_LONGEST = dt.timedelta(seconds=60)
_HOPS = {"W1": dt.timedelta(seconds=2), "W3": dt.timedelta(seconds=10)}


def answer(workload: str, folder: Path, out: Path) -> pa.Table:
    """The last state of its answer."""
    pw.internals.parse_graph.G.clear()
    table = _joined(folder) if workload == "W2" else _windows(folder, _HOPS[workload])
    found = pw.debug.table_to_pandas(table, include_id=False)
    answer = pa.Table.from_pandas(found, preserve_index=False)
    # Its times have nanoseconds, those of the others microseconds.
    stamp = pa.timestamp("us", "UTC")
    times = [name for name in ("start", "stop") if name in answer.column_names]
    for name in times:
        answer = answer.set_column(answer.column_names.index(name), name, answer[name].cast(stamp))
    return answer


def _rows(folder: Path, name: str) -> Any:
    file = pq.ParquetFile(folder / f"{name}.parquet")
    steps = [file.read_row_group(step).to_pandas() for step in range(file.num_row_groups)]
    frame = pd.concat(steps, ignore_index=True)
    frame["__time__"] = np.repeat(2 * np.arange(1, len(steps) + 1), [len(step) for step in steps])
    return pw.debug.table_from_pandas(frame)


def _windows(folder: Path, hop: dt.timedelta) -> Any:
    rows = _rows(folder, "feed")
    size = dt.timedelta(seconds=10)
    window = pw.temporal.sliding(hop=hop, duration=size)
    return rows.windowby(rows.ts, window=window, instance=rows.key).reduce(
        key=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        n=pw.reducers.count(),
        s=pw.reducers.sum(pw.this.value),
    )


def _joined(folder: Path) -> Any:
    """Within the longest lifetime of each other, and then those that overlap."""
    left, right = _rows(folder, "left"), _rows(folder, "right")
    near = pw.temporal.interval(-_LONGEST, _LONGEST)
    pairs = left.interval_join(right, left.ts, right.ts, near, left.key == right.key).select(
        key=left.key,
        left_value=left.value,
        right_value=right.value,
        start=pw.if_else(left.ts > right.ts, left.ts, right.ts),
        stop=pw.if_else(left.until < right.until, left.until, right.until),
    )
    return pairs.filter(pairs.start < pairs.stop)


if __name__ == "__main__":
    run(answer)
