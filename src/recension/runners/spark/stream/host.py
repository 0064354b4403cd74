"""The engines of one shard at one level: packets in, packets out, once a micro-batch.

Assumes     every task of every input, and every shard of earlier levels, sends a packet a micro-batch.
Guarantees  what comes out is what the local engine gives for the same elements in the same order; a promise
            is made when all shards that feed an edge have made it.
State       that of the engines, the promises fed and given, the latest start seen at each input.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import EventBatch, concat, cti, empty
from recension.core.errors import RecensionError, StreamError
from recension.core.ticks import BEGINNING, add
from recension.operators.flow import split
from recension.plan.fragments import Edge, Fragment
from recension.plan.node import Node
from recension.plan.nodes import Source
from recension.runners.engine import Metrics
from recension.runners.local import Session
from recension.runners.spark.stream.blobs import to_blob
from recension.runners.spark.stream.packets import METRICS, ORDER, OUTPUT, ROW, Contents, Packet
from recension.runners.spark.stream.reading import Reading
from recension.runners.spark.stream.routing import Router
from recension.runners.spark.stream.topology import Topology

_WHOLE = 1 << 62
_COUNTED = (
    *("events_in", "retractions_in", "events_out", "retractions_out"),
    *("seconds", "dropped", "skipped", "anomalies"),
)


@dataclass(slots=True)
class _Inflow:
    """What came on one edge in one micro-batch: events in order, and the place of each."""

    events: EventBatch
    parts: list[tuple[str, Contents]]

    def place(self, row: int) -> tuple[str, int | None]:
        """File and row of the row-th event, as far as they are known."""
        for place, (events, beside) in self.parts:
            if row < len(events):
                return place, beside[ROW][row].as_py() if ROW in beside else None
            row -= len(events)
        return "", None


@dataclass(slots=True)
class _Memory:
    """What is remembered beside the engines, by the name of an edge or the number of an output."""

    fed: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)


class Host:
    """Runs the fragments of a level that live in a shard."""

    def __init__(self, topology: Topology, level: int, shard: int) -> None:
        self._topology, self._level, self._shard = topology, level, shard
        self._fragments = [
            f for f in topology.fragments if f.level == level and (shard == 0 or not f.is_single)
        ]
        self._sessions = [_session(fragment) for fragment in self._fragments]
        self._numbers = {edge.source.name: number for number, edge in enumerate(topology.edges)}
        self._memory = _Memory()
        self._routers = {
            number: Router(edge.route, edge.origin.schema, topology.shards)
            for number, edge in enumerate(topology.edges)
            if edge.level > level and not isinstance(edge.origin, Source)
        }

    def turn(self, packets: Iterable[Packet]) -> list[Packet]:
        """One micro-batch."""
        by_edge: defaultdict[int, list[Packet]] = defaultdict(list)
        for packet in packets:
            by_edge[packet.edge].append(packet)
        mine = {self._numbers[edge.source.name] for f in self._fragments for edge in f.edges}
        answers = [p for number, passing in by_edge.items() if number not in mine for p in passing]
        reading = Reading(self._topology, self._level, self._shard)
        for place, (fragment, session) in enumerate(zip(self._fragments, self._sessions, strict=True)):
            report = _Report(session)
            for edge in fragment.edges:
                arrived = by_edge[self._numbers[edge.source.name]]
                if isinstance(edge.origin, Source):
                    arrived = reading.fetched(arrived, edge.origin.name)
                size = self._feed(session, edge, arrived)
                report.add(packet.info for packet in arrived)
                report.elements += size if isinstance(edge.origin, Source) else 0
            for number, (node, _) in enumerate(fragment.outputs):
                changes, t = split(_joined(session.read(str(number)).batches, node))
                answers += self._give(f"{place}/{number}", node, changes, t)
            answers.append(self._told(report))
        return answers

    def _feed(self, session: Session, edge: Edge, packets: list[Packet]) -> int:
        """Feed what came on an edge; gives the number of elements."""
        if isinstance(edge.origin, Source):
            return self._feed_source(session, edge, edge.origin, packets)
        inflow = _inflow(edge, packets)
        t = min((packet.cti for packet in packets), default=BEGINNING)
        fed = self._memory.fed.get(edge.source.name, BEGINNING)
        promise = [cti(t, edge.origin.schema)] if t > fed else []
        self._memory.fed[edge.source.name] = max(t, fed)
        if len(inflow.events) or promise:
            session.feed(edge.source.name, concat([inflow.events, *promise]))
        return len(inflow.events)

    def _feed_source(self, session: Session, edge: Edge, source: Source, packets: list[Packet]) -> int:
        inlet = self._topology.inlets[source.name]
        self._require_order(edge, packets)
        inflow = _inflow(edge, packets, inlet.order)
        if len(inflow.events):
            rows = session.rows_seen(edge.source.name)
            try:
                session.push(edge.source.name, inflow.events)
            except StreamError as why:
                raise _placed(why, source.name, rows, inflow) from None
        if inlet.delay is not None:
            self._advance(session, edge.source.name, inlet.delay, packets)
        return len(inflow.events)

    def _advance(self, session: Session, name: str, delay: int, packets: list[Packet]) -> None:
        """The watermark: a promise that lags behind the latest start any shard has seen."""
        latest = max([packet.cti for packet in packets], default=BEGINNING)
        self._memory.latest[name] = latest = max(latest, self._memory.latest.get(name, BEGINNING))
        t = int(add(np.array([latest]), -delay)[0])
        if t > self._memory.fed.get(name, BEGINNING):
            self._memory.fed[name] = t
            session.advance(name, t)

    def _require_order(self, edge: Edge, packets: list[Packet]) -> None:
        """Files are taken by their age; a stream's files must have been named in the same order."""
        places = [packet.place for packet in packets if packet.place]
        if not places:
            return
        last = self._memory.place.get(edge.source.name, "")
        if min(places) < last:
            raise RecensionError(
                f"{min(places)} came after {last}: Spark takes files by the time they were written, and a "
                "stream is its files in the order of their names; write them in that order"
            )
        self._memory.place[edge.source.name] = max(places)

    def _give(self, name: str, node: Node, changes: EventBatch, t: int | None) -> list[Packet]:
        """What one output gives: to the edges that read it, and to the end if it is the answer."""
        previous = self._memory.given.get(name, BEGINNING)
        self._memory.given[name] = now = previous if t is None else max(previous, t)
        packets: list[Packet] = []
        for number, router in self._routers.items():
            if self._topology.edges[number].origin is node:
                packets += self._sent(number, router, changes, now)
        for root in (number for number, root in enumerate(self._topology.roots) if root is node):
            packets += self._answer(root, changes, now, previous)
        return packets

    def _answer(self, root: int, changes: EventBatch, now: int, previous: int) -> list[Packet]:
        """Changes to the task that writes this shard's; word of the promise to all of them."""
        outlets = self._topology.outlets(self._shard)
        mine = self._shard if self._shard in outlets else outlets[0]
        blob = to_blob(changes) if len(changes) else None
        return [
            Packet(
                outlet,
                OUTPUT,
                str(self._shard),
                root,
                blob if outlet == mine else None,
                now,
                previous,
            )
            for outlet in outlets
        ]

    def _sent(self, number: int, router: Router, changes: EventBatch, t: int) -> list[Packet]:
        split_up = router.split(changes) if len(changes) else ()
        shares = {shard: share for shard, share, _ in split_up}
        return [
            Packet(
                shard,
                number,
                f"{self._shard:06}",
                self._level,
                to_blob(shares[shard]) if shard in shares else None,
                t,
            )
            for shard in range(router.shards)
        ]

    def _told(self, report: _Report) -> Packet:
        info = {"level": self._level, "shard": self._shard, **report.changes()}
        return Packet(self._shard, METRICS, info=json.dumps(info))

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        memory = pa.table({"memory": [json.dumps(asdict(self._memory))]})
        return {"memory": memory} | {
            f"{number}/{name}": table
            for number, session in enumerate(self._sessions)
            for name, table in session.snapshot().items()
        }

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Become the host whose snapshot this is."""
        self._memory = _Memory(**json.loads(tables["memory"]["memory"][0].as_py()))
        for number, session in enumerate(self._sessions):
            prefix = f"{number}/"
            own = {n.removeprefix(prefix): t for n, t in tables.items() if n.startswith(prefix)}
            session.restore(own)


def _session(fragment: Fragment) -> Session:
    plans = {str(number): plan for number, (_, plan) in enumerate(fragment.outputs)}
    return Session(plans, _WHOLE)


def _inflow(edge: Edge, packets: list[Packet], order: tuple[str, ...] = ()) -> _Inflow:
    full = sorted((p for p in packets if p.blob is not None), key=lambda p: (p.place, p.first))
    schema = edge.origin.schema
    parts = [(packet.place, packet.opened(schema)) for packet in full]
    events = concat([part.events for _, part in parts]) if parts else empty(schema)
    if order and parts:
        columns = [f"{ORDER}{i}" for i in range(len(order))]
        keys = pa.Table.from_batches(
            [pa.RecordBatch.from_pydict({n: part.beside[n] for n in columns}) for _, part in parts]
        )
        sort_keys = [(name, "ascending") for name in columns]
        events = events.take(pc.sort_indices(keys, sort_keys=sort_keys).to_numpy().astype(np.int64))
        return _Inflow(events, [])
    return _Inflow(events, parts)


def _joined(batches: list[EventBatch], node: Node) -> EventBatch:
    return concat(batches) if batches else empty(node.schema)


def _placed(why: StreamError, source: str, rows_before: int, inflow: _Inflow) -> StreamError:
    """The error with the file and row it is about, where these are known."""
    if why.row is None:
        return why
    file, row = inflow.place(why.row - rows_before - 1)
    return StreamError(why.reason, file=file or source, row=row)


class _Report:
    """What the operators of a session do in one micro-batch."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before = [asdict(metrics) for metrics in session.metrics()]
        self._counted = session.counts()
        self._unreadable: dict[str, Counter[str]] = {}
        self.elements = 0

    def add(self, infos: Iterable[str]) -> None:
        """Count what tasks that read a source could not read."""
        for info in filter(None, infos):
            for name, counts in json.loads(info).items():
                self._unreadable[name] = self._unreadable.get(name, Counter()) + Counter(counts)

    def changes(self) -> dict[str, Any]:
        """As plain values."""
        counts = {n: c - self._counted.get(n, Counter()) for n, c in self._session.counts().items()}
        for name, unreadable in self._unreadable.items():
            counts[name] = counts.get(name, Counter()) + unreadable
        pairs = zip(self._before, self._session.metrics(), strict=True)
        return {
            "elements": self.elements,
            "operators": [_change(old, new) for old, new in pairs],
            "counts": {name: dict(counted) for name, counted in counts.items() if counted},
        }


def _change(old: dict[str, int], new: Metrics) -> dict[str, object]:
    """What an operator did in one micro-batch, and what it holds now."""
    now = asdict(new)
    for name in _COUNTED:
        now[name] -= old[name]
    return now
