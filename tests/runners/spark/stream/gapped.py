"""The query of `driver`, to be killed between two commits: ``gapped.py FOLDER KILL [NAME=VALUE ...]``.

When the tables of a micro-batch are written, and it is not committed, it leaves a mark and waits: at the
KILL-th micro-batch half, so that each is met twice. With ``end`` it goes on to the end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.runners.spark.stream import driver
from tests.short_sessions import short_session

import recension as rc
from recension.runners.spark.sinks import writing
from recension.runners.spark.sinks.writing import Commit


def mark(folder: Path, kill: int) -> Path:
    """The file that says that it is there."""
    return folder / f"gap-{kill}"


def wait_in_gap(folder: Path, kill: int) -> None:
    """Let the micro-batch wait when its tables are written."""
    write = writing.Commit.__call__

    def write_and_wait(self: Commit, frame: Any, number: int) -> None:
        write(self, frame, number)
        if number == kill // 2:
            mark(folder, kill).touch()
            time.sleep(3600)

    vars(writing)["Commit"] = type("Commit", (Commit,), {"__call__": write_and_wait})


def main() -> None:
    folder, kill, *settings = sys.argv[1:]
    if kill != "end":
        wait_in_gap(Path(folder), int(kill))
    spark = rc.spark.session("local[2]", "gap", **short_session())
    for name, _, value in (setting.partition("=") for setting in settings):
        spark.conf.set(name, value)
    driver.start(spark, Path(folder)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
