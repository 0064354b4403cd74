"""Spark's stateful operator with nothing of this library in it, until rows come.

Whenever a query starts, Spark starts a process on the driver for each of its levels, only to be told which
state there is. With all that our operators import this took two seconds a level. So this class crosses to
Spark by value, and carries the processor as bytes that are read where rows are.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any, Final, Protocol

from pyspark import TaskContext, cloudpickle
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

# As types, not as text: text would be sent to Spark and parsed there, in every micro-batch.
_NAME: Final = StructType([StructField("name", StringType())])
_CHUNK: Final = StructType([StructField("chunk", BinaryType())])


class Processor(Protocol):
    """What runs where the rows are."""

    def process(self, state: Any, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        """One micro-batch of a key. ``state`` is Spark's map of names and bytes."""


class DeferredProcessor(StatefulProcessor):  # type: ignore[misc]
    """A processor that is loaded when its first rows come."""

    def __init__(self, processor: Processor) -> None:
        self._content: bytes = cloudpickle.dumps(processor)
        self._processor: Processor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark."""
        self._state = handle.getMapState("chunks", _NAME, _CHUNK)
        if TaskContext.get() is not None:
            from recension.runners.spark.stream.connections import keep_open

            keep_open(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Called by Spark."""
        if self._processor is None:
            self._processor = pickle.loads(self._content)
        assert self._processor is not None
        return self._processor.process(self._state, key, rows)

    def close(self) -> None:
        """Called by Spark."""


cloudpickle.register_pickle_by_value(sys.modules[__name__])
