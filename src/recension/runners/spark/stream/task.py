"""What a task knows of the query and the micro-batch it works for."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


@cache
def keep_what_is_loaded() -> None:
    """Spark searches a worker for garbage after every task: modules are none, and take longest to search."""
    gc.freeze()


def batch_id() -> int:
    """The number of the running micro-batch."""
    value = _told("streaming.sql.batchId")
    return -1 if value is None else int(value)


def query_id() -> str:
    """The query, the same in all runs of its checkpoint."""
    return _told("sql.streaming.queryId") or ""


def task_number() -> int:
    """The number of the partition, the same in all attempts."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _told(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
