"""Spark's Python daemon with everything loaded that its workers need.

Spark forks its workers from a daemon that has loaded next to nothing: each worker then loads everything, and
most of the time of a first micro-batch goes into that. Here it is loaded once, before the fork. No thread
is running by then: Arrow starts its threads on first use, and handles forks itself.

Spark collects garbage in a worker after every task. What is loaded here is frozen, so it is not searched.
It also lets Python look at the path anew before every task. Python 3.11 then reads the list of files of each
archive on the path, those of Spark among them, once for every package: a fifth of a second a task.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from zipimport import zipimporter

import pyspark.worker
from pyspark.daemon import manager

import recension.runners.spark.sinks.tasks
import recension.runners.spark.stream.membership
import recension.runners.spark.stream.processor
import recension.runners.spark.stream.unpacking

__all__ = ["pyspark", "recension"]


class FixedArchive(zipimporter):
    """An archive that does not change while Spark runs."""

    def invalidate_caches(self) -> None:
        """Keep the list of files."""


def fix_archives() -> None:
    """Read the archives that are on the path by now only once. Those that are shipped later may change."""
    archives = tuple(path for path in sys.path if Path(path).is_file())

    def find(path: str) -> FixedArchive:
        if not path.startswith(archives):
            raise ImportError(path)
        return FixedArchive(path)

    sys.path_hooks.insert(0, find)
    for path in list(sys.path_importer_cache):
        if path.startswith(archives):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    fix_archives()
    gc.collect()
    gc.freeze()
    manager()
