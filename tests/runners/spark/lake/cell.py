"""A cell of the table in ``docs/guide/lake.md``: ``cell.py FOLDER CELL EVERY PLANS STEPS``.

It runs the query of the recovery suite over the files of FOLDER/in; killed and started again, it goes on.
Then it runs a sample of the agreement suite, with its output in tables. Of both it compares the tables
with what the local engine says, and prints `AGREED` if they are right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from scripts.lake_jars import jars
from tests.runners.spark.connect_server import running_server
from tests.runners.spark.s3_server import BUCKET, s3_settings
from tests.runners.spark.sinks.feeding import assert_same
from tests.runners.spark.standalone import settings_of
from tests.runners.spark.stream import driver
from tests.runners.spark.stream.test_agreement import agree, sample
from tests.runners.spark.stream.united import Places
from tests.short_sessions import short_session

import recension as rc
from recension.core.history import History
from recension.gate.files import open_stream
from recension.runners.spark.lake import delta
from recension.runners.spark.session import LOCAL_SETTINGS, SESSION_SETTINGS, is_local_master

AGREED: Final = "0 missing, 0 extra"
# Printed for every micro-batch.
DONE: Final = "done: micro-batch"
OURS, DELTA, ICEBERG = "ours", "delta", "iceberg"


@dataclass(frozen=True)
class Cell:
    """Which format; at which S3 server, if not on a disk; on Connect or not; on which master."""

    format: str
    s3: str = ""
    is_connect: bool = False
    master: str = "local[2,4]"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def root(self, folder: Path) -> str:
        """Under what its tables and its checkpoint are."""
        return f"s3a://{BUCKET}/{folder.name}" if self.s3 else str(folder)

    def places(self, folder: Path, suite: str) -> Places:
        root = f"{self.root(folder)}/{suite}"
        tables = {
            OURS: (f"{root}/log", f"{root}/table"),
            DELTA: (f"delta:{root}/log", f"delta:{root}/table"),
            ICEBERG: (f"lake.{suite}.log", f"lake.{suite}.table"),
        }
        return Places(*tables[self.format], f"{root}/ck")

    def settings(self, folder: Path) -> dict[str, str]:
        """What a session needs for it."""
        groups = [group for group in (DELTA, ICEBERG) if group == self.format] + (["s3"] if self.s3 else [])
        found = {"spark.jars": ",".join(str(jar) for group in groups for jar in jars(group))}
        if self.format == DELTA:
            found |= delta.SETTINGS | {"spark.databricks.delta.snapshotPartitions": "1"}
        if self.format == ICEBERG:
            found |= {
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": f"{self.root(folder)}/lake",
            }
        return found | (s3_settings(self.s3) if self.s3 else {})


@contextmanager
def session_of(cell: Cell, folder: Path) -> Iterator[Any]:
    """A session, classic or of a Connect server that this process starts."""
    given = {name.replace(".", "__"): value for name, value in cell.settings(folder).items()}
    given |= short_session() | settings_of(cell.master)
    if not cell.is_connect:
        spark = rc.spark.session(cell.master, "a cell", **given)
        yield spark
        spark.stop()
        return
    from pyspark.sql import SparkSession

    local = LOCAL_SETTINGS if is_local_master(cell.master) else {}
    settings = SESSION_SETTINGS | local | {name.replace("__", "."): value for name, value in given.items()}
    with running_server(cell.master, settings, folder / "server.txt") as address:
        spark = SparkSession.builder.remote(address).getOrCreate()
        try:
            yield spark
        finally:
            # A client whose server is gone asks for it again and again.
            spark.stop()


def recover(spark: Any, folder: Path, where: Places) -> None:
    """Run or go on with the query, and compare both tables with the local engine."""
    follow(driver.start(spark, folder, where=where))
    expected = rc.run(driver.query(), {"s": open_stream(folder / "in")}).history()
    log = rc.spark.read_changelog(spark, where.changelog)
    tables = rc.spark.read_history(spark, where.history), rc.spark.history(log)
    for table in tables:
        assert_same(History.from_arrow(table.toArrow()), expected)
    assert log.select("_batch", "_seq").distinct().count() == log.count()


def follow(query: Any) -> None:
    """To the end of a query; says of each micro-batch that it is done."""
    told = None
    while not query.awaitTermination(0.2):
        if (now := query.lastProgress) is not None and now["batchId"] != told:
            told = now["batchId"]
            print(DONE, told, flush=True)


def main() -> None:
    folder, cell = Path(sys.argv[1]), Cell(**json.loads(sys.argv[2]))
    every, plans, steps = map(int, sys.argv[3:])
    with session_of(cell, folder) as spark:
        recover(spark, folder, cell.places(folder, "recovery"))
        print("recovered", flush=True)
        cases = [case for case in sample(every, plans) if len(case.turns()) <= steps]
        agree(spark, cases, 2, folder / "agreement", cell.places(folder, "agreement"))
        print(AGREED)


if __name__ == "__main__":
    main()
