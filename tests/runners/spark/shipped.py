"""A program with this library from wherever it was shipped: ``shipped.py MASTER FOLDER [SETTING=VALUE ...]``.

Runs a query as a batch job and as a stream, on executors that have the library the same way, and says where
each process has it from. It imports nothing of the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recension as rc

ROWS = {"_vs": [1, 2, 4, 7, 8], "_ve": [5, 9, 8, 12, 10], "k": list("abacb"), "v": [3, 4, 5, 6, 7]}


def query() -> Any:
    """Grouped twice: state, and two exchanges."""
    by_key = rc.source("s", {"k": "string", "v": "int64"}).group_by("k")
    counted = by_key.agg(n=rc.count(), top=rc.max("v"), speculate="eager")
    return counted.group_by("n").agg(keys=rc.count(), top=rc.max("top"), speculate="eager")


def where_it_is(_: Any) -> str:
    """The library's file, in a task."""
    import recension

    return os.path.abspath(recension.__file__)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def main() -> None:
    master, folder, *settings = sys.argv[1:]
    place, named = Path(folder), dict(one.split("=", 1) for one in settings)
    spark = rc.spark.session(master, "shipped", **{key.replace(".", "__"): own for key, own in named.items()})
    (place / "in").mkdir()
    pq.write_table(pa.table(ROWS), place / "in" / "0.parquet")
    streamed = rc.spark.stream(spark, query(), {"s": str(place / "in")}, shards=2)
    where: dict[str, Any] = {"history": place / "table", "checkpoint": place / "ck"}
    rc.spark.write(streamed, **where, trigger={"availableNow": True}).awaitTermination()
    given = {"s": spark.read.parquet(str(place / "in"))}
    found = {
        "local": in_order(rc.run(query(), {"s": pa.table(ROWS)}).history().to_arrow().to_pylist()),
        "batch": in_order(rc.spark.batch(spark, query(), given).toArrow().to_pylist()),
        "stream": in_order(rc.spark.read_history(spark, place / "table").toArrow().to_pylist()),
        "driver": where_it_is(None),
        "daemon": spark.sparkContext.getConf().get("spark.python.daemon.module"),
        "tasks": spark.sparkContext.parallelize(range(4), 4).map(where_it_is).distinct().collect(),
    }
    (place / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
