"""New versions of tables that are read again: written one at a time, or every so often while a query runs.

A version is a file with all rows, complete when it appears. Whether a micro-batch takes it is up to Spark,
whose log of files keeps that: who writes versions needs to know nothing of the query.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from recension.core.errors import RecensionError
from recension.plan.nodes import Table
from recension.runners.spark.failures import reason_of
from recension.runners.spark.sinks.files import AnyPath, local_path, publish, write_parquet, writer_lock
from recension.runners.spark.stream.tables import digest_of_rows, newest_version, read_rows, rows_of

_log: Final = logging.getLogger("recension")
_NAME: Final = re.compile(r"version-(\d{12})\.parquet")
_PARTIAL: Final = ".version.partial"
# How often it is seen whether the query still runs, in seconds.
_LOOK: Final = 0.5


def write_version(table: Table, folder: AnyPath, data: Any) -> Path | None:
    """Write all rows of a table as its next version; None, and no file, if they are those of the last."""
    place, rows = local_path(folder), rows_of(table, data)
    with writer_lock(place, place):
        newest = newest_version(place)
        if newest is not None and digest_of_rows(read_rows(table, newest)) == digest_of_rows(rows):
            return None
        path = place / f"version-{_number(newest) + 1:012}.parquet"
        write_parquet(place / _PARTIAL, [rows], rows.schema)
        publish(place / _PARTIAL, path)
        return path


def _number(newest: Path | None) -> int:
    if newest is None:
        return 0
    if (found := _NAME.fullmatch(newest.name)) is None:
        raise RecensionError(
            f"{newest}: not a version that rc.spark.write_version has written, and versions are in the order "
            "of their names: use a folder for its versions alone"
        )
    return int(found[1])


class Refresher:
    """Reads a table again every so often, as long as a query runs.

    What cannot be read now may be there the next time: the version before holds on, and the log has a line.
    """

    def __init__(self, query: Any, table: Table, folder: AnyPath, read: Callable[[], Any]) -> None:
        assert table.refresh is not None
        if not callable(read):
            raise RecensionError(
                f"{table.name}: give a function that reads the table, such as "
                "lambda: spark.read.parquet(path): a DataFrame keeps the list of files that it found when it "
                "was made"
            )
        self._query, self._table, self._folder, self._read = query, table, folder, read
        self._pause = table.refresh / 1e6
        self._is_stopped = threading.Event()
        self.failure: str | None = None
        """Why the last reading failed; none if it did not."""
        name = f"refresh of {table.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Does it go on?"""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End it; the query goes on with the last version."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_stopped.is_set() and self._query.isActive:
            if time.monotonic() >= due:
                self._refresh()
                due = time.monotonic() + self._pause
            self._is_stopped.wait(min(_LOOK, max(0.0, due - time.monotonic())))

    def _refresh(self) -> None:
        try:
            write_version(self._table, self._folder, self._read())
            self.failure = None
        except Exception as why:
            # A query that has just ended takes its session along.
            if self._query.isActive:
                self.failure = reason_of(why)
                _log.warning("%s: not read again: %s", self._table.name, self.failure)
