"""A query whose inputs and checkpoint are on S3, by an S3 server on loopback: ``python -m ... FOLDER``.

It runs twice, with more input the second time, and prints what its history lacks and has too much.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from scripts.lake_jars import jars
from tests.runners.spark.s3_server import BUCKET, put, running_s3, s3_settings

import recension as rc
from recension.core.difference import difference
from recension.gate.files import read_history

COLUMNS = {"k": "string", "v": "int64"}
ROWS: list[dict[str, Any]] = [
    {"_kind": "insert", "_vs": n, "_ve": n + 3, "k": "ab"[n % 2], "v": n} for n in range(200)
]
NAMES = {"a": "Anna", "b": "Bea"}


def main(folder: Path) -> None:
    """Start the server, run the query twice, compare."""
    with running_s3() as address:
        _run(folder, address)


def _run(folder: Path, address: str) -> None:
    def put_rows(name: str, rows: list[dict[str, Any]]) -> None:
        put(f"{address}/{BUCKET}/{name}", "".join(json.dumps(row) + "\n" for row in rows))

    settings = {"spark.jars": ",".join(map(str, jars("s3")))} | s3_settings(address)
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    spark = rc.spark.session("local[2,4]", "on S3", **named)
    names = rc.table("names", {"k": "string", "name": "string"})
    query = rc.source("s", COLUMNS).join(names, on="k").group_by("name").tumbling(10).agg(n=rc.count())
    put_rows("names.jsonl", [{"k": k, "name": name} for k, name in NAMES.items()])
    given = {"s": "s3a://lake/in", "names": "s3a://lake/names.jsonl"}
    for number, part in enumerate((ROWS[:100], [*ROWS[100:], {"_kind": "cti", "_vs": 1000}])):
        put_rows(f"in/{number}.jsonl", part)
        output = rc.spark.stream(spark, query, given, shards=2)
        where: dict[str, Any] = {"history": folder / "history", "checkpoint": "s3a://lake/checkpoint"}
        rc.spark.write(output, **where, trigger={"availableNow": True}).awaitTermination()
    elements = [rc.Insert({"k": row["k"], "v": row["v"]}, row["_vs"], row["_ve"]) for row in ROWS]
    tiers = pa.table({"k": list(NAMES), "name": list(NAMES.values())})
    here = {"s": [*elements, rc.Cti(1000)], "names": tiers}
    apart = difference(read_history(folder / "history"), rc.run(query, here).history())
    print(apart or "0 missing, 0 extra")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
