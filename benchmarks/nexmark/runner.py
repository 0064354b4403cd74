"""`python -m benchmarks nexmark`: every query, each in a process of its own, on one core, judged by DuckDB.

What counts is processor time, from the first file to the last answer; DuckDB reads the same files and answers
once, at the end. An answer is right if no row is missing and none is there in addition, with its times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.harness import ONE_THREAD, Result
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.judge import SQL, differences
from benchmarks.peers.worker import FAILED, Answer, run_within
from benchmarks.report import machine, save

EVENTS, QUICK, WITH_PEERS = 1_000_000, 100_000, 400_000
SECONDS = 120.0
WAYS = ("perfect", "eager", "duckdb")
_WIDTH = 165
_DUCKDB = "DuckDB, one shot"


@dataclass(frozen=True)
class Outcome:
    """What it took to answer one query in every way, and what DuckDB says of the answers."""

    name: str
    events: int
    took: dict[str, dict[str, Any]]
    wrong: dict[str, tuple[int, int]]

    def result(self, way: str) -> Result:
        """As a line of the table of all benchmarks."""
        took = self.took[way]
        ratio = self.took["duckdb"]["cpu_seconds"] / took["cpu_seconds"]
        return Result(
            "nexmark", f"{self.name}, {way}", self.events, took["rows"], [took["seconds"]],
            [took["cpu_seconds"]], 0.0, took["peak_mb"], against={_DUCKDB: ratio},
        )  # fmt: skip

    def cells(self) -> Iterable[str]:
        """As a row of the table here."""
        yield self.name
        for way in WAYS[:-1]:
            took = self.took[way]
            yield f"{self.events / took['cpu_seconds']:,.0f}"
            yield f"{took['cpu_seconds']:.2f}"
            yield f"{took['elements']:,}"
            yield f"{took['peak_mb']:,.0f}"
        yield f"{self.events / self.took['duckdb']['cpu_seconds']:,.0f}"
        yield f"{self.took['duckdb']['rows']:,}"
        yield from (f"{sum(counts):,}" for counts in zip(*self.wrong.values(), strict=True))


def main(arguments: list[str]) -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks nexmark", description=__doc__)
    parser.add_argument(
        "--events",
        type=int,
        help=f"persons, auctions and bids together; {EVENTS:,}, or {WITH_PEERS:,} with --peers",
    )
    parser.add_argument("--revisions", type=float, default=0.0, help="the share of bids that are corrected")
    parser.add_argument("--queries", default=",".join(SQL), help="such as q4,q5")
    parser.add_argument(
        "--spark", nargs="?", const="stream,batch", help="on Spark instead: stream, batch, or by itself both"
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        const="flink,spark",
        help="beside Flink SQL and Spark's own operators: flink, spark, or by itself both (see `make peers`)",
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="with --peers: for a query on a system"
    )
    parser.add_argument(
        "--page", type=Path, help="with --peers: a page of the guide that the table is written into"
    )
    options = parser.parse_args(arguments)
    out = Console()
    if not out.is_terminal:
        out = Console(width=_WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    queries = options.queries.split(",")
    if options.revisions and "q12" in queries:
        queries.remove("q12")
        out.print("q12 is left out: a corrected bid has no one time of arrival")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(options.events or EVENTS, revisions=options.revisions)
        if options.peers:
            from benchmarks.nexmark.peers import compare

            if options.revisions:
                parser.error("nobody else takes a row back, so with --peers there are no revisions")
            events, beside = options.events or WITH_PEERS, options.peers.split(",")
            compare(events, queries, beside, options.seconds, options.page, Path(folder), out)
        elif options.spark:
            from benchmarks.nexmark.spark import measure_spark

            measure_spark(settings, Path(folder), queries, options.spark.split(","), out)
        else:
            found = _measure(settings, Path(folder), queries, out)
            out.print(f"saved as {save(found, Path('bench-results'))}")


def measured(folder: Path, out: Console, *, quick: bool = False) -> list[Result]:
    """For the table of all benchmarks."""
    return _measure(Settings(QUICK if quick else EVENTS), folder, list(SQL), out)


def _measure(settings: Settings, folder: Path, queries: list[str], out: Console) -> list[Result]:
    """Print the table; an answer that is not DuckDB's is an error."""
    write(settings, folder)
    table = Table("query", title=f"NEXMark, {settings.events:,} events in {settings.steps} steps, one core")
    for way in ("final answers", "answers at once"):
        for column in (f"{way}: events/s", "processor s", "elements out", "peak MB"):
            table.add_column(column, justify="right")
    for column in (f"{_DUCKDB}: events/s", "rows", "missing", "extra"):
        table.add_column(column, justify="right")
    outcomes = []
    for name in queries:
        outcomes.append(_outcome(name, settings.events, folder))
        table.add_row(*outcomes[-1].cells())
        print(*outcomes[-1].cells(), sep="  ", file=sys.stderr, flush=True)
    out.print(table)
    if wrong := [outcome.name for outcome in outcomes if any(map(any, outcome.wrong.values()))]:
        raise SystemExit(f"not what DuckDB says: {', '.join(wrong)}")
    return [outcome.result(way) for outcome in outcomes for way in WAYS[:-1]]


def _outcome(name: str, events: int, folder: Path) -> Outcome:
    took = {way: run_alone(name, folder, way) for way in WAYS}
    if failures := [f"{way} {found[FAILED]}" for way, found in took.items() if FAILED in found]:
        raise SystemExit(f"nexmark: {name}, {', '.join(failures)}")
    ours = {way: folder / "answers" / f"{name}-{way}.parquet" for way in WAYS}
    theirs = pq.read_table(ours.pop("duckdb"))
    wrong = {way: differences(pq.read_table(file), theirs) for way, file in ours.items()}
    return Outcome(name, events, took, wrong)


def run_alone(name: str, folder: Path, way: str, seconds: float | None = None) -> Answer:
    """In a process of its own, so that its peak memory is its own too; or why there is no answer."""
    command = [sys.executable, "-m", "benchmarks.nexmark.local", name, str(folder), way]
    return run_within(command, os.environ | ONE_THREAD, seconds)
