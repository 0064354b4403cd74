"""The engines of one shard at one level: packets in, packets out, once a micro-batch.

Assumes     every task of every input, and every shard of earlier levels, sends a packet a micro-batch.
Guarantees  what comes out is what the local engine gives for the same elements in the same order; a promise
            is made when all shards that feed an edge have made it.
State       that of the engines, the promises fed and given, the latest start seen at each input.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat, cti, empty
from recension.core.errors import StreamError
from recension.core.ticks import BEGINNING, add
from recension.core.time_kind import KnownKind, TimeKind
from recension.operators.pipeline import split_ctis
from recension.plan.fragments import Edge, Fragment
from recension.plan.node import Node
from recension.plan.nodes import Source
from recension.runners.local import Session
from recension.runners.spark.stream.inflow import inflow
from recension.runners.spark.stream.joining import Comings, Joining, require_order
from recension.runners.spark.stream.packets import FEEDBACK, METRICS, OUTPUT, Contents, Packet
from recension.runners.spark.stream.reading import Reading
from recension.runners.spark.stream.report import Report
from recension.runners.spark.stream.routing import Router
from recension.runners.spark.stream.topology import Topology
from recension.runners.spark.stream.wants import wanted

_WHOLE: Final = 1 << 62


@dataclass(slots=True)
class _Memory:
    """What is remembered beside the engines, by the name of an edge or the number of an output."""

    fed: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    comings: dict[str, Any] = field(default_factory=dict)
    heard: int = BEGINNING
    """What ends before is not wanted by those who read the answer."""


class Host:
    """Runs the fragments of a level that live in a shard."""

    def __init__(self, topology: Topology, level: int, shard: int) -> None:
        self._topology, self._level, self._shard = topology, level, shard
        self._fragments = [
            f for f in topology.fragments if f.level == level and (shard == 0 or not f.is_single)
        ]
        self._open()
        self._numbers = {edge.source.name: number for number, edge in enumerate(topology.edges)}
        self._memory = _Memory()
        self._routers = {
            number: Router(edge.route, edge.origin.schema, topology.shards)
            for number, edge in enumerate(topology.edges)
            if edge.level > level and not isinstance(edge.origin, Source)
        }

    def _open(self) -> None:
        """New engines, which nobody has joined yet."""
        kind = next((inlet.kind for inlet in self._topology.inlets.values()), None)
        self._sessions = [_session(fragment, kind) for fragment in self._fragments]
        self._joining = {
            edge.source.name: Joining(session, fragment, edge)
            for fragment, session in zip(self._fragments, self._sessions, strict=True)
            for edge in fragment.edges
            if isinstance(edge.origin, Source) and self._topology.inlets[edge.origin.name].is_root
        }

    def turn(self, packets: Iterable[Packet]) -> list[Packet]:
        """One micro-batch."""
        by_edge: defaultdict[int, list[Packet]] = defaultdict(list)
        for packet in packets:
            by_edge[packet.edge].append(packet)
        mine = {self._numbers[edge.source.name] for f in self._fragments for edge in f.edges}
        self._hear(max((packet.cti for packet in by_edge.pop(FEEDBACK, [])), default=BEGINNING))
        answers = [p for number, passing in by_edge.items() if number not in mine for p in passing]
        reading = Reading(self._topology, self._level, self._shard)
        for place, (fragment, session) in enumerate(zip(self._fragments, self._sessions, strict=True)):
            arrived = self._arrived(fragment, by_edge, reading)
            report = self._work(fragment, session, arrived)
            for number, (node, _) in enumerate(fragment.outputs):
                changes, t = split_ctis(_joined(session.read(str(number)).batches, node))
                answers += self._give(f"{place}/{number}", node, changes, t)
            answers.append(self._told(report))
        return answers

    def _arrived(
        self, fragment: Fragment, by_edge: Mapping[int, list[Packet]], reading: Reading
    ) -> dict[str, list[Packet]]:
        """What came on each edge of a fragment; files of a source that are to be read here are."""
        arrived = {e.source.name: by_edge[self._numbers[e.source.name]] for e in fragment.edges}
        for edge in fragment.edges:
            name = edge.source.name
            if isinstance(edge.origin, Source) and name not in self._joining:
                arrived[name] = reading.fetched(arrived[name], edge.origin.name)
        return arrived

    def _work(self, fragment: Fragment, session: Session, arrived: dict[str, list[Packet]]) -> Report:
        """Feed one fragment with all that came."""
        joining = {name: self._joining[name] for name in arrived if name in self._joining}
        for name, root in joining.items():
            root.admit(arrived[name])
        report = Report(session)
        for edge in fragment.edges:
            packets = arrived[edge.source.name]
            size = self._feed(session, edge, packets)
            report.add(packet.info for packet in packets if not packet.place)
            report.elements += size if isinstance(edge.origin, Source) else 0
        for name, root in joining.items():
            root.dismiss(arrived[name])
            report.note_inputs(root.states(), root.take_ignored())
        return report

    def _hear(self, t: int) -> None:
        """Tell every fragment what is not wanted of it any more."""
        if t <= self._memory.heard:
            return
        self._memory.heard = t
        times = wanted(self._topology.roots, t)
        for fragment, session in zip(self._fragments, self._sessions, strict=True):
            for number, (node, _) in enumerate(fragment.outputs):
                if times[node] > BEGINNING:
                    session.hear(times[node], str(number))

    def _feed(self, session: Session, edge: Edge, packets: list[Packet]) -> int:
        """Feed what came on an edge; gives the number of elements."""
        if isinstance(edge.origin, Source):
            return self._feed_source(session, edge, edge.origin, packets)
        events = inflow(packets, edge.origin.schema).events
        t = min((packet.cti for packet in packets), default=BEGINNING)
        fed = self._memory.fed.get(edge.source.name, BEGINNING)
        promise = [cti(t, edge.origin.schema)] if t > fed else []
        self._memory.fed[edge.source.name] = max(t, fed)
        if len(events) or promise:
            session.feed(edge.source.name, concat([events, *promise]))
        return len(events)

    def _feed_source(self, session: Session, edge: Edge, source: Source, packets: list[Packet]) -> int:
        inlet, name = self._topology.inlets[source.name], edge.source.name
        if inlet.is_root:
            return self._joining[name].feed(packets, self._memory.place)
        require_order(self._memory.place, name, packets)
        came = inflow(packets, edge.origin.schema)
        if len(came.events):
            rows = session.rows_seen(name)
            try:
                session.push(name, came.events)
            except StreamError as why:
                raise came.placed(why, source.name, rows) from None
        if inlet.delay is not None:
            self._advance(session, name, inlet.delay, packets)
        return len(came.events)

    def _advance(self, session: Session, name: str, delay: int, packets: list[Packet]) -> None:
        """The watermark: a promise that lags behind the latest start any shard has seen."""
        latest = max([packet.cti for packet in packets], default=BEGINNING)
        self._memory.latest[name] = latest = max(latest, self._memory.latest.get(name, BEGINNING))
        t = int(add(np.array([latest]), -delay)[0])
        if t > self._memory.fed.get(name, BEGINNING):
            self._memory.fed[name] = t
            session.advance(name, t)

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
        contents = Contents(changes, {}) if len(changes) else None
        return [
            Packet(
                outlet,
                OUTPUT,
                str(self._shard),
                root,
                contents if outlet == mine else None,
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
                Contents(shares[shard], {}) if shard in shares else None,
                t,
            )
            for shard in range(router.shards)
        ]

    def _told(self, report: Report) -> Packet:
        info = {"level": self._level, "shard": self._shard, **report.changes()}
        return Packet(self._shard, METRICS, info=json.dumps(info))

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        self._memory.comings = {name: asdict(root.comings) for name, root in self._joining.items()}
        memory = pa.table({"memory": [json.dumps(asdict(self._memory))]})
        return {"memory": memory} | {
            f"{number}/{name}": table
            for number, session in enumerate(self._sessions)
            for name, table in session.state().items()
        }

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Become the host whose snapshot this is."""
        if self._joining or self._memory.heard > BEGINNING:
            self._open()  # these may have heard of what did not happen
        self._memory = _Memory(**json.loads(tables["memory"]["memory"][0].as_py()))
        for name, comings in self._memory.comings.items():
            self._joining[name].recall(Comings(**comings))
        for number, session in enumerate(self._sessions):
            prefix = f"{number}/"
            own = {n.removeprefix(prefix): t for n, t in tables.items() if n.startswith(prefix)}
            session.load_state(own)
        heard, self._memory.heard = self._memory.heard, BEGINNING
        self._hear(heard)


def _session(fragment: Fragment, kind: TimeKind) -> Session:
    plans = {str(number): plan for number, (_, plan) in enumerate(fragment.outputs)}
    return Session(plans, _WHOLE, history_limit=0, times=KnownKind(kind))


def _joined(batches: list[EventBatch], node: Node) -> EventBatch:
    return concat(batches) if batches else empty(node.schema)
