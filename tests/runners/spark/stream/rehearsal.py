"""A pipeline played in this process: packets handed from stage to stage by hand, state in dictionaries.

Everything is the pipeline's own but Spark: so thousands of restarts, failed attempts and strange workers
cost seconds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti, empty
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.ticks import BEGINNING
from recension.plan.node import Node
from recension.runners.exchange.packets import METRICS, OUTPUT, ROW, TIME, Packet
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.feedback import feedback_packet
from recension.runners.spark.stream.membership import HAS_FILES, membership_message
from recension.runners.spark.stream.packing import FILE, Packing
from recension.runners.spark.stream.taps import RecordRequest
from recension.runners.spark.stream.topology import Inlet, Topology, topology


class Memory(dict[str, bytes]):
    """A store."""

    def put(self, name: str, value: bytes) -> None:
        self[name] = value

    def remove(self, name: str) -> None:
        self.pop(name, None)


class Arrival(NamedTuple):
    """A file of one of the streams of a root; or words about it."""

    place: str
    batch: EventBatch | None = None
    words: str = ""


# A path is a new version of a table.
Arriving: TypeAlias = EventBatch | Arrival | Path


def packed(plan: Topology, source: str, level: int, batches: Iterable[Arriving]) -> list[Packet]:
    """What a task sends for a source."""
    packing = Packing(plan, source, level)
    packets: list[Packet] = []
    for came in batches:
        if isinstance(came, Path):
            packets += [packet._replace(place=str(came)) for packet in packing.end_of_task_packets()]
        elif isinstance(came, Arrival) and came.batch is None:
            packets += packing.broadcast(came.words, came.place)
        elif isinstance(came, Arrival):
            packets += packing.packets(_in_file(came))
            folder = PurePath(came.place).parent
            packets += packing.broadcast(membership_message(HAS_FILES, folder.name), str(folder))
        else:
            packets += packing.packets(stream_rows(came, stream_schema(came.schema, pa.int64())))
    return [*(packet.seal() for packet in packets), *packing.end_of_task_packets()]


def _in_file(arrival: Arrival) -> pa.RecordBatch:
    assert arrival.batch is not None
    rows = stream_rows(arrival.batch, stream_schema(arrival.batch.schema, pa.int64()))
    rows = rows.append_column(FILE, pa.array([arrival.place] * len(rows), pa.string()))
    return rows.append_column(ROW, pa.array(range(1, len(rows) + 1), pa.int64()))


class Rehearsal:
    """One or more queries on some shards, a micro-batch at a time."""

    def __init__(
        self,
        queries: list[Node],
        shards: int,
        inlets: Mapping[str, Inlet] | None = None,
        skew: Sequence[str] = (),
        memory: int | None = None,
    ) -> None:
        plan = topology(queries, shards, {}, skew)
        given = {n: Inlet() for n in plan.sources()} | dict(inlets or {})
        self.plan = Topology(plan.roots, shards, given, memory=memory, queries=plan.queries)
        self.stores: defaultdict[tuple[int, int], Memory] = defaultdict(Memory)
        self._batch = 0
        self.request: RecordRequest | None = None

    def turn(
        self,
        inputs: Mapping[str, Sequence[Arriving]],
        *,
        heard: int = BEGINNING,
        fails: bool = False,
        now: int = 0,
    ) -> list[Packet]:
        """A micro-batch; one that fails leaves engines in the worker and the stores as they were.

        A source that is not among the inputs has no new files: Spark then starts no task for it at all.
        What is ``heard`` by feedback every level hears. Where a step goes by the clock it is ``now``.
        """
        before = {key: Memory(store) for key, store in self.stores.items()}
        flowing: list[Packet] = []
        for level in range(1, self.plan.levels + 1):
            for source, batches in inputs.items():
                flowing += packed(self.plan, source, level, batches)
            if heard > BEGINNING:
                flowing += [feedback_packet(n, heard) for n in range(self.plan.shards_from(level))]
            if level == 1 and self.plan.wakes:
                flowing += [Packet(n, TIME) for n in range(self.plan.shards_from(1))]
            flowing = self._level(level, [packet._replace(now=now) for packet in flowing])
        if fails:
            self.stores.clear()
            self.stores.update(before)
        else:
            self._batch += 1
        return flowing

    def _level(self, level: int, packets: list[Packet]) -> list[Packet]:
        by_shard: defaultdict[int, list[Packet]] = defaultdict(list)
        for packet in packets:
            by_shard[packet.shard].append(packet)
        answers: list[Packet] = []
        for shard, own in sorted(by_shard.items()):
            store = self.stores[level, shard]
            seen = processor.lease_engine(self.plan, level, shard, store)
            if self.request is not None:
                packets, reports = seen.host.run_recorded(own, self.request, self._batch)
            else:
                packets, reports = seen.host.run_micro_batch(own)
            answers += packets
            answers += [Packet(shard, METRICS, info=json.dumps(report)) for report in reports]
            seen.save(store, self._batch)
            seen.release()
        return answers

    def output(self, packets: list[Packet], query: int = 0) -> EventBatch:
        """What a query put out in a micro-batch, promise last."""
        return output_of(self.plan, packets, query)

    def state_rows(self, packets: list[Packet]) -> int:
        """Rows of state that all operators of all shards hold, as their reports say."""
        reports = [json.loads(p.info) for p in packets if p.edge == METRICS]
        return sum(operator["state_rows"] for report in reports for operator in report["operators"])


def output_of(plan: Topology, packets: list[Packet], query: int) -> EventBatch:
    """What a query put out in a micro-batch, promise last."""
    schema = plan.roots[query].schema
    mine = [p for p in packets if p.edge == OUTPUT and p.query == query]
    if not mine:
        return empty(schema)
    parts = [p.open(schema).events for p in mine if p.blob is not None]
    now, before = min(p.cti for p in mine), min(p.previous_cti for p in mine)
    assert not plan.shards_share_ctis or {p.cti for p in mine} == {now}
    promise = [cti(now, schema)] if now > before else []
    return concat([*parts, *promise]) if parts or promise else empty(schema)
