"""The session in which a query's tables are written.

Which query and micro-batch a commit is of, formats take from the settings of a session. A classic query has a
session of its own. On Connect it runs in the user's, where other queries and the user's own writes would get
these settings too: there tables are written in a clone of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from recension.runners.spark.session import is_connect

# A server forgets a session that nobody uses, after an hour unless it is told otherwise.
_IDLE: Final = 600.0


class WritingSession:
    """That of one query; a copy of it on a Connect server begins anew."""

    def __init__(self) -> None:
        self._clone: SparkSession | None = None
        self._used = 0.0

    def __reduce__(self) -> tuple[type[WritingSession], tuple[()]]:
        return WritingSession, ()

    def of(self, spark: SparkSession) -> SparkSession:
        """The session to write with, for a micro-batch in a session."""
        if not is_connect(spark):
            return spark
        now = time.monotonic()
        if self._clone is None or now - self._used > _IDLE:
            self._clone = spark.cloneSession()
        self._used = now
        return self._clone


@contextmanager
def moved(frame: DataFrame, spark: SparkSession) -> Iterator[DataFrame]:
    """The rows of a frame in another session of the same server, for a while."""
    if frame.sparkSession is spark:
        yield frame
        return
    view = f"recension_{uuid4().hex}"
    frame.createGlobalTempView(view)
    try:
        yield spark.table(f"{spark.conf.get('spark.sql.globalTempDatabase', 'global_temp')}.{view}")
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(view)
