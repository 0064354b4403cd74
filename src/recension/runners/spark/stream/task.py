"""What a task knows of the query and the micro-batch it works for."""

from __future__ import annotations

import gc
from functools import cache
from typing import Final

from pyspark import TaskContext

from recension.core.errors import RecensionError

# The setting by which `rc.spark.write` tells tasks the address of the checkpoint, for messages.
CHECKPOINT: Final = "spark.recension.checkpoint"


@cache
def freeze_gc() -> None:
    """Leave loaded modules out of the garbage collection that Spark runs after every task."""
    gc.freeze()


def batch_id() -> int:
    """The number of the running micro-batch."""
    value = _local_property("streaming.sql.batchId")
    return -1 if value is None else int(value)


def query_id() -> str:
    """The query, the same in all runs of its checkpoint."""
    return _local_property("sql.streaming.queryId") or ""


def task_number() -> int:
    """The number of the partition, the same in all attempts."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def task_setting(name: str) -> str | None:
    """A setting of the session that the query was started from."""
    return _local_property(name)


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def lost_part_error(name: str) -> RecensionError:
    """For state that names what is not there: what it is, and how to go on."""
    where = task_setting(CHECKPOINT) or ""
    return RecensionError(
        f"the checkpoint{where and ' '}{where} is damaged: the state of task {task_number()} lacks its part "
        f"{name}; `recension repair {where or 'CHECKPOINT'}` says what is still good, and how to go on"
    )
