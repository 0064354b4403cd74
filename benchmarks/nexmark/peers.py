"""`python -m benchmarks nexmark --peers`: every query here, in Flink SQL and on Spark, in one table.

Here and in Flink the rate is of processor seconds of one core, those of all threads counted, from the first
file to the last answer, less what the same query takes over 500 events. Flink's is that of the best of three
jobs, in a JVM that has run many. On Spark (its own operators, and ours) it is the wall clock's on two cores,
after the first micro-batch. DuckDB answers once, at the end, on one thread.

The answers of all are compared with DuckDB's over the same files, but Flink's over 20,000 events: it
measures without writing its changes. A system that takes too long, or has no way to say a query, is in the
table with that.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.nexmark import judge
from benchmarks.nexmark.comparison import expected, read_changes
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.local import SMALL
from benchmarks.nexmark.runner import run_alone
from benchmarks.peers.clock import net
from benchmarks.peers.homes import ROOT, NotInstalledError, start
from benchmarks.peers.worker import FAILED, Answer, Worker
from benchmarks.report import fill_page, machine, markdown

FINAL, AT_ONCE, FLINK, SPARK, OURS, DUCKDB = (
    "final", "at once", "Flink", "Spark's own", "ours on Spark", "DuckDB",
)  # fmt: skip
HERE = {FINAL: "perfect", AT_ONCE: "eager", DUCKDB: "duckdb"}
"""The systems in this process's environment, and how `benchmarks.nexmark.local` calls them."""
ON_SPARK = {SPARK: "own", OURS: "ours"}
# Slow enough that there are many windows in them, and that auctions close.
CHECK = Settings(20_000, rate=100.0)
# As many events between two answers as W1 to W3 have, and a quarter of all in a micro-batch of Spark.
STEP, MICRO_BATCHES = 25_000, 4
RESULTS, _HERE, _SHORT = Path("bench-results"), Path(__file__).parent, 14
_COLUMNS = (
    "ours, final", "ours, at once", "Flink", "final ÷ Flink", "at once ÷ Flink", "Flink wall s",
    "Spark's own", "ours on Spark", "DuckDB", "agreement",
)  # fmt: skip


@dataclass
class Row:
    """One query: what each system took, and how many rows are wrong."""

    name: str
    events: int
    took: dict[str, Answer] = field(default_factory=dict)
    wrong: dict[str, tuple[int, int]] = field(default_factory=dict)

    def rate(self, system: str) -> float | None:
        """Events a second: of processor time, on Spark of the wall clock."""
        took = self.took[system]
        if FAILED in took:
            return None
        if system in ON_SPARK:
            return self.events * float(took["share"]) / float(took["seconds"])
        return self.events / net(took)

    def ratio(self, ours: str) -> float | None:
        """How many times the events of Flink in a second of a core."""
        mine, theirs = self.rate(ours), self.rate(FLINK)
        return None if mine is None or theirs is None else mine / theirs

    def cells(self) -> Iterator[str]:
        """As a row of the table."""
        yield self.name
        yield from (self._cell(system) for system in (FINAL, AT_ONCE, FLINK))
        for ours in (FINAL, AT_ONCE):
            ratio = self.ratio(ours)
            yield "" if ratio is None else f"{ratio:.2f}"
        flink = self.took[FLINK]
        yield "" if FAILED in flink else f"{net(flink, 'seconds'):.1f}"
        yield from (self._cell(system) for system in (SPARK, OURS, DUCKDB))
        bad = [f"{system}: {m} missing, {e} extra" for system, (m, e) in self.wrong.items() if m or e]
        yield "; ".join(bad) or ("equal" if self.wrong else "")

    def reasons(self) -> Iterator[str]:
        """Those that are too long for the table."""
        for system, took in self.took.items():
            if len(took.get(FAILED, "")) > _SHORT:
                yield f"{self.name}, {system}: {took[FAILED]}"

    def _cell(self, system: str) -> str:
        rate = self.rate(system)
        if rate is not None:
            return f"{rate:,.0f}"
        why = str(self.took[system][FAILED])
        return why if len(why) <= _SHORT else "no, see below"


@dataclass(frozen=True)
class Systems:
    """The processes that stay, and how long each may take for a query."""

    flink: Worker | str
    spark: Worker | str
    seconds: float
    """A text says why there is no process."""

    def measure(self, name: str, folder: Path, events: int) -> Row:
        """One query by all, one after another, and what DuckDB says of the answers."""
        row, files = Row(name, events), folder / "files"
        for system, way in HERE.items():
            row.took[system] = run_alone(name, files, way, self.seconds)
        whole = {part: str(folder / part / "whole") for part in ("files", "small", "check")}
        row.took[FLINK] = self._ask(self.flink, {"query": name, "out": str(folder / "flink" / name), **whole})
        per_batch = max(MICRO_BATCHES, events // STEP) // MICRO_BATCHES
        for system, way in ON_SPARK.items():
            request = {"query": name, "way": way, "files": str(files), "out": str(folder / way / name)}
            row.took[system] = self._ask(self.spark, request | {"files_per_batch": per_batch})
        for system, compare in self._comparisons(name, folder, row).items():
            if FAILED not in row.took[system]:
                row.wrong[system] = compare()
        return row

    def close(self) -> None:
        """End the processes."""
        for worker in (self.flink, self.spark):
            if isinstance(worker, Worker):
                worker.close()

    def _ask(self, worker: Worker | str, request: Answer) -> Answer:
        return {FAILED: worker} if isinstance(worker, str) else worker.ask(request, self.seconds)

    def _comparisons(self, name: str, folder: Path, row: Row) -> dict[str, Callable[[], tuple[int, int]]]:
        """Each system's answer beside DuckDB's."""
        if FAILED in row.took[DUCKDB]:
            return {}
        answers = folder / "files" / "answers"
        theirs = pq.read_table(answers / f"{name}-duckdb.parquet")
        mark = _watermark(row.took[SPARK])
        files = {
            FINAL: (answers / f"{name}-perfect.parquet", theirs),
            AT_ONCE: (answers / f"{name}-eager.parquet", theirs),
            SPARK: (folder / "own" / name / "answer.parquet", expected(name, theirs, mark)),
            OURS: (folder / "ours" / name / "answer.parquet", theirs),
        }
        found: dict[str, Callable[[], tuple[int, int]]] = {
            system: partial(_compare_file, file, wanted) for system, (file, wanted) in files.items()
        }
        return found | {FLINK: partial(_compare_changes, name, folder)}


def compare(
    events: int,
    queries: list[str],
    beside: list[str],
    seconds: float,
    page: Path | None,
    folder: Path,
    out: Console,
) -> None:
    """Measure and print, and write it into a page; an answer that is not DuckDB's is an error."""
    settings = Settings(events, steps=max(MICRO_BATCHES, events // STEP))
    for name, chosen in (("files", settings), ("check", CHECK), ("small", SMALL)):
        write(chosen, folder / name)
        _join_files(folder / name)
    RESULTS.mkdir(exist_ok=True)
    systems = _start(beside, seconds)
    rows = list[Row]()
    try:
        for name in queries:
            rows.append(systems.measure(name, folder, events))
            print(*rows[-1].cells(), *rows[-1].reasons(), sep="  ", file=sys.stderr, flush=True)
            _save(rows)
    finally:
        systems.close()
    _show(rows, events, page, out)
    if wrong := [row.name for row in rows if any(map(any, row.wrong.values()))]:
        raise SystemExit(f"not what DuckDB says: {', '.join(wrong)}")


def _start(beside: list[str], seconds: float) -> Systems:
    scripts = {
        "flink": ROOT / "benchmarks" / "peers" / "flink_nexmark.py",
        "spark": _HERE / "spark_worker.py",
    }
    found = dict[str, Worker | str]()
    for name, script in scripts.items():
        try:
            there = start("flink" if name == "flink" else "", script)
        except NotInstalledError:
            found[name] = "not installed"
        else:
            log = RESULTS / f"nexmark-{name}.log"
            found[name] = Worker(there.command, there.environment, log) if name in beside else "left out"
    return Systems(found["flink"], found["spark"], seconds)


def _join_files(folder: Path) -> None:
    """The rows of each table in one file too, a row group a step: the order of arrival is kept."""
    (folder / "whole").mkdir()
    for name in ("persons", "auctions", "bids", "side"):
        files = sorted((folder / name).glob("*.parquet"))
        with pq.ParquetWriter(folder / "whole" / f"{name}.parquet", pq.read_schema(files[0])) as writer:
            for file in files:
                writer.write_table(pq.read_table(file))


def _compare_file(file: Path, theirs: pa.Table) -> tuple[int, int]:
    return judge.differences(pq.read_table(file), theirs)


def _compare_changes(name: str, folder: Path) -> tuple[int, int]:
    """Flink's changes over the small files that it wrote them for."""
    wanted = expected(name, judge.answer(folder / "check", name))
    return judge.differences(read_changes(folder / "flink" / name, wanted.schema), wanted)


def _watermark(took: Answer) -> dt.datetime | None:
    """How far the windows of an answer are final; nothing if all of it is."""
    text = took.get("watermark")
    return None if text is None else dt.datetime.fromisoformat(text)


def _save(rows: list[Row]) -> None:
    """After every query, so that a run that is stopped has not been for nothing."""
    document: dict[str, Any] = {"machine": machine(), "rows": [vars(row) for row in rows]}
    (RESULTS / "nexmark-peers.json").write_text(json.dumps(document, indent=1) + "\n")


def _show(rows: list[Row], events: int, page: Path | None, out: Console) -> None:
    title = f"NEXMark, {events:,} events: events per second of one core; on Spark by the clock, two cores"
    table = Table("query", title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row.cells())
    out.print(table)
    notes = [*(reason for row in rows for reason in row.reasons()), *_behind(rows)]
    for note in notes:
        out.print(note, highlight=False, markup=False)
    if page is not None:
        bullets = "".join(f"- {note}\n" for note in notes)
        fill_page(page, "nexmark-peers", f"{title}.\n\n{markdown(table)}\n{bullets}")
        out.print(f"written into {page}")


def _behind(rows: list[Row]) -> Iterator[str]:
    for ours in (FINAL, AT_ONCE):
        behind = {row.name: ratio for row in rows if (ratio := row.ratio(ours)) is not None and ratio < 1}
        listed = ", ".join(f"{name} ({ratio:.2f})" for name, ratio in behind.items())
        yield f"behind Flink per core, {ours}: {listed or 'none'}"
