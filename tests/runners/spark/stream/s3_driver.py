"""A query whose inputs and checkpoint are on S3, by an S3 server on loopback: ``python -m ... FOLDER``.

It runs twice, with more input the second time, and prints what its history lacks and has too much.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
from scripts.lake_jars import jars

import recension as rc
from recension.core.difference import difference
from recension.core.formats import read_history

COLUMNS = {"k": "string", "v": "int64"}
ROWS: list[dict[str, Any]] = [
    {"_kind": "insert", "_vs": n, "_ve": n + 3, "k": "ab"[n % 2], "v": n} for n in range(200)
]
NAMES = {"a": "Anna", "b": "Bea"}


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(folder: Path) -> None:
    """Start the server, run the query twice, compare."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])
    try:
        _wait(port)
        _run(folder, f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the S3 server does not start")


def _put(address: str, text: str) -> None:
    # Without a type it would be taken for a form, and be empty.
    kind = {"Content-Type": "application/octet-stream"}
    urlopen(Request(address, data=text.encode(), headers=kind, method="PUT"), timeout=60).close()


def _run(folder: Path, address: str) -> None:
    # The server takes requests that nobody has signed.
    _put(f"{address}/lake", "")

    def put(name: str, rows: list[dict[str, Any]]) -> None:
        _put(f"{address}/lake/{name}", "".join(json.dumps(row) + "\n" for row in rows))

    settings = {
        "spark.jars": ",".join(map(str, jars("s3"))),
        "spark.hadoop.fs.s3a.endpoint": address,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "a",
        "spark.hadoop.fs.s3a.secret.key": "b",
        # The server does not have the upload that this would make.
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
    }
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    spark = rc.spark.session("local[2,4]", "on S3", **named)
    names = rc.table("names", {"k": "string", "name": "string"})
    query = rc.source("s", COLUMNS).join(names, on="k").group_by("name").tumbling(10).agg(n=rc.count())
    put("names.jsonl", [{"k": k, "name": name} for k, name in NAMES.items()])
    given = {"s": "s3a://lake/in", "names": "s3a://lake/names.jsonl"}
    for number, part in enumerate((ROWS[:100], [*ROWS[100:], {"_kind": "cti", "_vs": 1000}])):
        put(f"in/{number}.jsonl", part)
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
