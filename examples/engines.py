"""One query over feeds, on two engines: what the examples on real data share."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc

FILES = 3


class Answers(NamedTuple):
    """The final ones, how many were given on the way, and how many of those were changed or taken back."""

    history: rc.History
    given: int
    revised: int


def arguments(about: str, days: int) -> argparse.Namespace:
    """What the examples can be told."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--days", type=int, default=days, help="how many days of 2013, from the first on")
    return parser.parse_args()


def ask(query: rc.Stream, feeds: Mapping[str, pa.Table], engine: str = "local") -> Answers:
    """Run a query over feeds that arrive bit by bit."""
    return _on_spark(query, feeds) if engine == "spark" else _here(query, feeds)


def show(title: str, answers: Answers, rows: int = 4) -> None:
    """What was answered, and the first of the final answers."""
    final = answers.history
    print(f"{title}: {answers.given:,} answers, {answers.revised:,} revisions, {len(final):,} final")
    table = final.to_pandas()
    print(table.sort_values(list(table.columns)).head(rows).to_string(index=False), end="\n\n")


def answer_or_write(queries: Mapping[str, rc.Stream], tables: Mapping[str, pd.DataFrame]) -> None:
    """Show the first answers of each query, or write the tables into the folder that is named."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(exist_ok=True)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
        return
    live = rc.session(**queries)
    for name, table in tables.items():
        live.push(name, table)
    live.close()
    for name in queries:
        history = live.history(name)
        print(f"{name}: {len(history):,} answers")
        history.show(4)
        print()


def _here(query: rc.Stream, feeds: Mapping[str, pa.Table]) -> Answers:
    answer = rc.run(query, feeds, batch_size=100)
    return _counted(answer.history(), answer.to_arrow())


def _on_spark(query: rc.Stream, feeds: Mapping[str, pa.Table]) -> Answers:
    """Each feed is a folder of files that have come one after the other; a micro-batch takes one."""
    spark = rc.spark.session()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        inputs = {source: _files(feed, place / source) for source, feed in feeds.items()}
        running = rc.spark.write(
            rc.spark.stream(spark, query, inputs, files_per_batch=1),
            changelog=place / "changes",
            history=place / "answers",
            checkpoint=place / "checkpoint",
            trigger={"availableNow": True},
        )
        running.awaitTermination()
        changes = rc.spark.read_changelog(spark, place / "changes").toArrow()
        answers = rc.spark.read_history(spark, place / "answers").toArrow()
    return _counted(rc.History.from_arrow(answers), changes)


def _files(feed: pa.Table, folder: Path) -> str:
    folder.mkdir()
    size = -(-feed.num_rows // FILES)
    for number in range(FILES):
        file = folder / f"{number}.parquet"
        pq.write_table(feed.slice(number * size, size), file)
        os.utime(file, (number, number))  # Spark takes files by the time they were written
    return str(folder)


def _counted(history: rc.History, changes: pa.Table) -> Answers:
    kinds = Counter(changes["_kind"].to_pylist())
    return Answers(history, kinds["insert"], kinds["retract"])
