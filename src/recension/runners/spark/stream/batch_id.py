"""The number of the running micro-batch, as a task sees it."""

from __future__ import annotations

from pyspark import TaskContext


def batch_id() -> int:
    """The number of the running micro-batch."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return -1 if value is None else int(value)
