"""One level of the pipeline in Spark's stateful operator: a shard a key, packets as rows.

The engine of a shard stays in its Python worker between micro-batches. A worker may hold an engine as of any
micro-batch, or of an attempt that failed. So an engine is taken out before it is used, and put back when its
last packet is gone. It is used as it is only if its token matches the stored one. If its version led to the
stored one, it takes over what it missed. Otherwise another engine is loaded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import Row

from recension.runners.exchange.packets import METRICS, Packet
from recension.runners.spark.stream.chunks import Head, load, load_since, read_head, save
from recension.runners.spark.stream.codec import Store
from recension.runners.spark.stream.host import Host
from recension.runners.spark.stream.taps import SETTING, RecordRequest
from recension.runners.spark.stream.task import batch_id, freeze_gc, query_id, task_setting
from recension.runners.spark.stream.topology import Topology, require_same
from recension.runners.spark.stream.unpacking import Unpacker

# An engine nobody asked for in so many seconds is of a query that has ended, or has gone to another worker.
_IDLE: Final = 600.0


class EngineKey(NamedTuple):
    """Whose engine it is. Several queries of one plan may run at once, each on a checkpoint of its own."""

    query: str
    fingerprint: str
    level: int
    shard: int


@dataclass(slots=True)
class ParkedEngine:
    """A host and the token of the state it stands for."""

    host: Host
    token: str
    code: str
    """`Topology.code`: a query that is started again with other functions needs other engines."""
    since: float = field(default_factory=time.monotonic)


_parked: dict[EngineKey, ParkedEngine] = {}


@dataclass(slots=True)
class EngineLease:
    """The host of a shard for one micro-batch, as the state has it."""

    key: EngineKey
    topology: Topology
    host: Host
    head: Head | None
    was_live: bool
    load_seconds: float

    def save(self, store: Store, batch: int) -> dict[str, int]:
        """Store what changed; says how much was written."""
        self.head, written = save(store, self.host.parts(), self.head, self.topology.owner, batch)
        return {"bytes_written": written, "rows_written": self.head.rows_written()}

    def release(self) -> None:
        """Keep the host, once it is saved, for the next micro-batch."""
        assert self.head is not None
        _parked[self.key] = ParkedEngine(self.host, self.head.token, self.topology.code)
        for key in [key for key, parked in _parked.items() if time.monotonic() - parked.since > _IDLE]:
            del _parked[key]


def lease_engine(topology: Topology, level: int, shard: int, store: Store, query: str = "") -> EngineLease:
    """The host of a shard, from this worker or from the state."""
    began = time.perf_counter()
    key = EngineKey(query, topology.fingerprint, level, shard)
    head, parked = read_head(store), _parked.pop(key, None)
    if parked is not None and (parked.code, parked.host.memory) != (topology.code, topology.memory):
        parked = None
    if head is None:
        host, was_live = Host(topology, level, shard), False
    else:
        require_same(head.owner, topology.owner)
        was_live = parked is not None and parked.token == head.token
        since = None if parked is None else head.version_of(parked.token)
        if parked is not None and since is not None:
            host = parked.host
            if not was_live:
                host.restore(load_since(store, head, host.parts(), since))
        else:
            host = Host(topology, level, shard)
            host.restore(load(store, head))
    return EngineLease(key, topology, host, head, was_live, time.perf_counter() - began)


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


class FragmentProcessor:
    """Runs the fragments of a level, once a micro-batch for every shard."""

    def __init__(self, topology: Topology, level: int, keys: list[int]) -> None:
        self._topology, self._level, self._keys = topology, level, keys

    def process(self, state: Any, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        """One micro-batch of a key, from rows to rows."""
        for packet in self._run_micro_batch(MapStore(state), key[0], rows):
            yield Row(**packet.seal()._asdict())

    def _run_micro_batch(self, store: Store, key: int, rows: Iterable[Iterable[Any]]) -> Iterator[Packet]:
        """One micro-batch of a shard. The engine is released when the last packet has been taken."""
        freeze_gc()
        packets = [Packet(self._keys.index(number), *rest) for number, *rest in rows]
        shard = self._keys.index(key)
        lease = lease_engine(self._topology, self._level, shard, store, query_id())
        began, request = time.perf_counter(), RecordRequest.from_json(task_setting(SETTING))
        if request is not None and request.pipeline == self._topology.fingerprint:
            answers, reports = lease.host.run_recorded(packets, request, batch_id())
        else:
            answers, reports = lease.host.run_micro_batch(packets)
        worked = time.perf_counter()
        written = lease.save(store, batch_id())
        times = {
            "load_seconds": lease.load_seconds,
            "kernel_seconds": worked - began,
            "save_seconds": time.perf_counter() - worked,
            "was_live": lease.was_live,
        } | written
        answers += [Packet(shard, METRICS, info=json.dumps(report | times)) for report in reports]
        for packet in answers:
            # Python numbers the shards; Spark sends rows by a key that falls into the shard's partition.
            yield packet._replace(shard=self._keys[packet.shard])
        lease.release()


class AnsweringProcessor(FragmentProcessor):
    """The last level, where no shard has to wait for others: its answers leave as rows of the output.

    The rows cross to Spark in data frames of Arrow columns, which pandas hands on as they are.
    """

    def __init__(self, topology: Topology, keys: list[int], unpacker: Unpacker) -> None:
        super().__init__(topology, topology.levels, keys)
        self._unpacker = unpacker

    def process(self, state: Any, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        """One micro-batch of a key, from data frames to data frames."""
        packets = (packet for frame in rows for packet in frame.itertuples(index=False))
        answers = list(self._run_micro_batch(MapStore(state), key[0], packets))
        yield self._unpacker.rows_and_reports(answers).to_pandas(types_mapper=pd.ArrowDtype)
