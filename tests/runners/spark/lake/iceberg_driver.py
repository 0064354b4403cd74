"""A driver that writes to Iceberg and may kill itself: ``python -m ... FOLDER POINT``.

A point is a number of steps of commits: staging, looking and publishing, each before and after. 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from scripts.lake_jars import jars
from tests.runners.spark.sinks.test_queries import NOW, finished, stream

import recension as rc
from recension.runners.spark.lake.iceberg import IcebergTable

LOG: Final = "killed.db.log"
HISTORY: Final = "killed.db.history"
STEPS: Final = ("_commit", "_staged", "_publish")


def with_catalog(spark: Any, folder: Path) -> Any:
    """The session, with the catalog of a folder."""
    spark.conf.set("spark.sql.catalog.killed", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.killed.type", "hadoop")
    spark.conf.set("spark.sql.catalog.killed.warehouse", f"file:{folder}/lake")
    return spark


def die_at(point: int) -> None:
    """Let this process be killed when so many steps have begun or ended."""
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            count()
            found = step(*given)
            count()
            return found

        return run

    for name in STEPS:
        setattr(IcebergTable, name, counted(getattr(IcebergTable, name)))


def main(folder: Path, point: int) -> None:
    """Write what is in the folder to both tables."""
    die_at(point)
    settings = {"spark__jars": ",".join(map(str, jars("iceberg"))), "spark__sql__shuffle__partitions": "2"}
    spark = with_catalog(rc.spark.session("local[2,4]", "killed", **settings), folder)
    rows = stream(spark, folder / "in")
    where: dict[str, Any] = {"changelog": LOG, "history": HISTORY, "checkpoint": folder / "ck"}
    finished(rc.spark.write(rows, **where, trigger=NOW))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
