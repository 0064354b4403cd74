"""One level of the pipeline as Spark's stateful operator: a shard a key, packets as rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from recension.runners.spark.stream.live import visit
from recension.runners.spark.stream.packets import METRICS, Packet
from recension.runners.spark.stream.task import batch_id, keep_what_is_loaded, query_id
from recension.runners.spark.stream.topology import Topology
from recension.runners.spark.stream.unpacking import Unpacker

# As types, not as words: each word would be sent to Spark and parsed there, in every micro-batch.
_NAME: Final = StructType([StructField("name", StringType())])
_PIECE: Final = StructType([StructField("piece", BinaryType())])


class MapStore:
    """Spark's map state as named bytes."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        value = self._state.getValue((name,))
        return None if value is None else bytes(value[0])

    def put(self, name: str, value: bytes) -> None:
        self._state.updateValue((name,), (value,))

    def remove(self, name: str) -> None:
        self._state.removeKey((name,))


class FragmentProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs the fragments of a level; Spark calls it once a micro-batch for every shard."""

    def __init__(self, topology: Topology, level: int, keys: list[int]) -> None:
        self._topology, self._level, self._keys = topology, level, keys

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark."""
        self._store = MapStore(handle.getMapState("pieces", _NAME, _PIECE))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Called by Spark."""
        for packet in self._turn(key[0], rows):
            yield Row(**packet.sealed()._asdict())

    def _turn(self, key: int, rows: Iterable[Iterable[Any]]) -> Iterator[Packet]:
        """One micro-batch of a shard. The engine is kept when the last packet has been taken."""
        keep_what_is_loaded()
        packets = [Packet(self._keys.index(shard), *rest) for shard, *rest in rows]
        seen = visit(self._topology, self._level, self._keys.index(key), self._store, query_id())
        began = time.perf_counter()
        answers = seen.host.turn(packets)
        worked = time.perf_counter()
        written = seen.leave(self._store, batch_id())
        times = {
            "load_seconds": seen.seconds,
            "kernel_seconds": worked - began,
            "save_seconds": time.perf_counter() - worked,
            "bytes_written": written,
            "was_live": seen.was_live,
        }
        for packet in answers:
            if packet.edge == METRICS and not packet.first:
                info = json.loads(packet.info)
                packet = packet._replace(info=json.dumps(info | times), first=1)
            # Python numbers the shards; Spark sends rows by a value that falls into the shard's partition.
            yield packet._replace(shard=self._keys[packet.shard])
        seen.park()

    def close(self) -> None:
        """Called by Spark."""


class AnsweringProcessor(FragmentProcessor):
    """The last level, where no shard has to wait for others: its answers leave as rows of the output.

    The rows cross to Spark in data frames of Arrow columns, which pandas hands on as they are.
    """

    def __init__(self, topology: Topology, keys: list[int], unpacker: Unpacker) -> None:
        super().__init__(topology, topology.levels, keys)
        self._unpacker = unpacker

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Called by Spark."""
        packets = (packet for frame in rows for packet in frame.itertuples(index=False))
        answers = list(self._turn(key[0], packets))
        yield self._unpacker.rows_and_reports(answers).to_pandas(types_mapper=pd.ArrowDtype)
