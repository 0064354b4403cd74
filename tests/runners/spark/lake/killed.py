"""A query that writes both tables in a lake format, to be killed: ``killed.py FOLDER FORMAT MASTER WRITER``.

It reads the files of FOLDER/in, one a micro-batch, as they come. Started again, it goes on from its
checkpoint. The WRITER of all micro-batches is the ``driver`` or its ``tasks``. Once there is a file
FOLDER/end, it reads what is there and ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from scripts.lake_jars import jars
from tests.runners.spark.sinks.test_queries import stream
from tests.runners.spark.standalone import settings_of
from tests.short_sessions import short_session

import recension as rc
from recension.runners.spark.lake.delta import SETTINGS
from recension.runners.spark.sinks import writing

NAMES = {"delta": "delta:{folder}/lake/db/{name}", "iceberg": "killed.db.{name}"}


def addresses(lake: str, folder: Path) -> dict[str, Any]:
    """Where the tables are, which lie in FOLDER/lake/db/log and FOLDER/lake/db/history in either format."""
    return {
        sink: NAMES[lake].format(folder=folder, name=name)
        for sink, name in (("changelog", "log"), ("history", "history"))
    }


def with_catalog(spark: Any, folder: Path) -> Any:
    """The session, with the catalog of a folder for Iceberg."""
    spark.conf.set("spark.sql.catalog.killed", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.killed.type", "hadoop")
    spark.conf.set("spark.sql.catalog.killed.warehouse", f"file:{folder}/lake")
    return spark


def written_by(writer: str) -> None:
    """Let the driver write every micro-batch, also the first, or tasks, however few rows it has."""
    vars(writing)["FEW"] = writing.FEW if writer == "driver" else -1
    begin = writing.MicroBatchWriter.__init__

    def begin_with_few(self: writing.MicroBatchWriter, *given: Any) -> None:
        begin(self, *given)
        self._rows = 0

    vars(writing)["MicroBatchWriter"] = type(
        "MicroBatchWriter", (writing.MicroBatchWriter,), {"__init__": begin_with_few}
    )


def main(folder: Path, lake: str, master: str, writer: str) -> None:
    """Write until the end is asked for."""
    written_by(writer)
    found = {"spark.jars": ",".join(map(str, jars(lake)))} | (SETTINGS if lake == "delta" else {})
    settings = {name.replace(".", "__"): value for name, value in found.items()}
    spark = rc.spark.session(master, "killed", **short_session(), **settings, **settings_of(master))
    # Lost tasks are warnings.
    spark.sparkContext.setLogLevel("WARN")
    rows = stream(with_catalog(spark, folder), folder / "in")
    where: dict[str, Any] = addresses(lake, folder)
    query = rc.spark.write(rows, **where, checkpoint=folder / "ck")
    while query.isActive and not (folder / "end").exists():
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
