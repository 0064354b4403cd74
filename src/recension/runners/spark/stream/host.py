"""The engines of one shard at one level: packets in, packets out, once a micro-batch.

Assumes     every task of every input, and every shard of earlier levels, sends a packet a micro-batch.
Guarantees  what comes out is what the local engine gives for the same elements in the same order. The CTI of
            an edge is the least over all shards that feed it.
State       that of the engines, the CTIs of edges and outputs, the latest start seen at each input.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core import wall_clock
from recension.core.batch import RETRACT, EventBatch, concat, cti, empty
from recension.core.change_log import tables_of
from recension.core.errors import RecensionError
from recension.core.memory_pool import MemoryPool, open_pool
from recension.core.ticks import BEGINNING, FOREVER, add
from recension.core.time_kind import KnownKind, TimeKind
from recension.core.wall_clock import Clock
from recension.gate.partition_state import Heard
from recension.operators.pipeline import split_ctis
from recension.plan.fragments import Edge, Fragment
from recension.plan.node import Node
from recension.plan.nodes import Source, Table
from recension.runners.exchange.clocks import ClockReader, ClockState, EdgeSender, number_rows, told_times
from recension.runners.exchange.packets import (
    FEEDBACK,
    OUTPUT,
    Contents,
    Inflow,
    Packet,
    merge_packets,
    require_file_order,
)
from recension.runners.exchange.routing import Router
from recension.runners.local import Session
from recension.runners.spark.stream.feedback import feedback_times, latest_feedback
from recension.runners.spark.stream.membership import Membership, RootMerge
from recension.runners.spark.stream.metrics import Report
from recension.runners.spark.stream.packing import ShardFiles, is_closing, path_of
from recension.runners.spark.stream.summaries import read_summaries, refuse_equal_orders
from recension.runners.spark.stream.tables import always, read_rows
from recension.runners.spark.stream.taps import HostRecorder, RecordRequest
from recension.runners.spark.stream.topology import Topology

_WHOLE: Final = 1 << 62


@dataclass(slots=True)
class _Memory:
    """What is kept beside the engines, by the name of an edge or the number of an output."""

    input_cti: dict[str, int] = field(default_factory=dict)
    output_cti: dict[str, int] = field(default_factory=dict)
    latest_start: dict[str, int] = field(default_factory=dict)
    last_file: dict[str, str] = field(default_factory=dict)
    membership: dict[str, Any] = field(default_factory=dict)
    clocks: dict[str, list[int]] = field(default_factory=dict)
    feedback: int = BEGINNING
    """Those who read the answer do not need events that finally end before."""


class Host:
    """Runs the fragments of a level that live in a shard."""

    def __init__(self, topology: Topology, level: int, shard: int) -> None:
        self._topology, self._level, self._shard = topology, level, shard
        self._fragments = [
            f for f in topology.fragments if f.level == level and (shard == 0 or not f.is_single)
        ]
        self.memory, self._now = topology.memory, 0
        self._pool = open_pool(self.memory, _spill_directory(shard) if self.memory is not None else None)
        self._open()
        self._numbers = {edge.source.name: number for number, edge in enumerate(topology.edges)}
        self._memory = _Memory()
        self._recorder: HostRecorder | None = None
        self._clocks = {
            edge.source.name: ClockReader(edge.clock)
            for fragment in self._fragments
            for edge in fragment.edges
            if edge.clock is not None
        }
        self._senders = {
            number: EdgeSender(edge, topology.shards)
            for number, edge in enumerate(topology.edges)
            if edge.level > level and not isinstance(edge.origin, Source)
        }

    def _open(self) -> None:
        """New engines, which no stream has joined yet."""
        kind = next((inlet.kind for inlet in self._topology.inlets.values()), None)
        # By a worker's clock a micro-batch that is run again would not be the same.
        clock = (lambda: self._now) if self._topology.goes_by_time else wall_clock.now
        self._sessions = [_open_session(fragment, kind, self._pool, clock) for fragment in self._fragments]
        self._reports = [Report(session) for session in self._sessions]
        self._roots = {
            edge.source.name: RootMerge(session, fragment, edge)
            for fragment, session in zip(self._fragments, self._sessions, strict=True)
            for edge in fragment.edges
            if isinstance(edge.origin, Source) and self._topology.inlets[edge.origin.name].is_root
        }

    def run_recorded(
        self, packets: Iterable[Packet], request: RecordRequest, batch: int
    ) -> tuple[list[Packet], list[dict[str, Any]]]:
        """The same, and what came on the edges that are asked for is written."""
        if self._recorder is None:
            self._recorder = HostRecorder(self._topology, self._fragments, self._level, self._shard)
        self._recorder.begin(self._sessions)
        answers, reports = self.run_micro_batch(packets)
        self._recorder.write(request, batch, self._sessions, reports)
        return answers, reports

    def run_micro_batch(self, packets: Iterable[Packet]) -> tuple[list[Packet], list[dict[str, Any]]]:
        """From the packets of a micro-batch to those that come out, and a report of each fragment."""
        by_edge: defaultdict[int, list[Packet]] = defaultdict(list)
        for packet in packets:
            by_edge[packet.edge].append(packet)
            self._now = max(self._now, packet.now)
        self._apply_feedback(latest_feedback(by_edge.pop(FEEDBACK, [])))
        mine = {self._numbers[edge.source.name] for f in self._fragments for edge in f.edges}
        answers = [p for number, passing in by_edge.items() if number not in mine for p in passing]
        files = ShardFiles(self._topology, self._level, self._shard)
        answered: dict[int, dict[str, int]] = {}
        for place, (fragment, session) in enumerate(zip(self._fragments, self._sessions, strict=True)):
            self._feed_fragment(place, self._packets_of(fragment, by_edge, files))
            for number, (node, _) in enumerate(fragment.outputs):
                batches = session.read(str(number)).batches
                changes, t = split_ctis(concat(batches) if batches else empty(node.schema))
                answers += self._output_packets(f"{place}/{number}", node, changes, t)
                if any(node is root for root in self._topology.roots):
                    answered[place] = self._describe_answer(f"{place}/{number}", changes)
        position = {"level": self._level, "shard": self._shard, "plan": self._topology.fingerprint}
        reports = [
            position
            | {"fragment": self._topology.fragments.index(fragment)}
            | report.take(is_first=self._shard == 0)
            | answered.get(place, {})
            for place, (fragment, report) in enumerate(zip(self._fragments, self._reports, strict=True))
        ]
        if self._pool is not None and reports:  # fragments share the memory of their shard: one reports it
            use = self._pool.measure()
            reports[0] |= {"resident_bytes": use.resident_bytes, "spilled_bytes": use.spilled_bytes}
        return answers, reports

    def _packets_of(
        self, fragment: Fragment, by_edge: Mapping[int, list[Packet]], files: ShardFiles
    ) -> dict[str, list[Packet]]:
        """What came on each edge of a fragment, with what is in the files that are to be read here."""
        arrived = {e.source.name: by_edge[self._numbers[e.source.name]] for e in fragment.edges}
        for edge in fragment.edges:
            name = edge.source.name
            # Versions of tables are read when they are fed.
            if isinstance(edge.origin, Table) or name in self._roots:
                continue
            if isinstance(edge.origin, Source):
                arrived[name] = files.read_packets(arrived[name], edge.origin.name)
        return arrived

    def _feed_fragment(self, place: int, arrived: dict[str, list[Packet]]) -> None:
        """Feed one fragment with all that came."""
        session, report = self._sessions[place], self._reports[place]
        roots = {name: self._roots[name] for name in arrived if name in self._roots}
        for name, root in roots.items():
            root.admit(arrived[name])
        # Tables first: what is joined with them need not wait, and a new version of one holds from the CTI
        # that the micro-batch before has reached, which is the same in all shards.
        for edge in sorted(self._fragments[place].edges, key=lambda edge: not isinstance(edge.origin, Table)):
            packets = arrived[edge.source.name]
            size = self._feed(session, edge, packets)
            report.add_unreadable(packet.info for packet in packets if not packet.place)
            report.elements += size if isinstance(edge.origin, Source) else 0
            report.rows += size
        if self._topology.wakes:
            session.tick()
        for name, root in roots.items():
            root.detach_left_streams(arrived[name])
            report.add_inputs(root.states(), root.take_ignored())

    def _apply_feedback(self, t: int) -> None:
        """Let every fragment know what is not needed of it any more."""
        if t <= self._memory.feedback:
            return
        self._memory.feedback = t
        times = feedback_times(self._topology.roots, t)
        for fragment, session in zip(self._fragments, self._sessions, strict=True):
            for number, (node, _) in enumerate(fragment.outputs):
                if times[node] > BEGINNING:
                    session.hear(times[node], str(number))

    def _feed(self, session: Session, edge: Edge, packets: list[Packet]) -> int:
        """Feed what came on an edge; gives the number of elements."""
        if isinstance(edge.origin, Source):
            return self._feed_source(session, edge, edge.origin, packets)
        name, came = edge.source.name, merge_packets(packets, edge.origin.schema)
        if edge.clock is None and edge.origin.properties.is_ordered:
            # Each shard's answers are in order, and none goes back behind the CTI of all.
            came.events = came.events.take(np.argsort(came.events.sync(), kind="stable"))
        t = min((packet.cti for packet in packets), default=BEGINNING)
        previous = self._memory.input_cti.get(name, BEGINNING)
        ctis = [cti(t, edge.origin.schema)] if t > previous else []
        self._memory.input_cti[name] = max(t, previous)
        with self._hear_clock(session, edge, came):
            if len(came.events) or ctis:
                session.feed(name, concat([came.events, *ctis]))
        return len(came.events)

    @contextmanager
    def _hear_clock(self, session: Session, edge: Edge, came: Inflow) -> Iterator[None]:
        """Let the step that hears a clock know how far it is: before each row that came, then after all."""
        if edge.clock is None or not came.marks:
            yield
            return
        name, clock = edge.source.name, edge.clock.source
        before = ClockState(*self._memory.clocks.get(name, ClockState()))
        told, now = self._clocks[name].read(came, before)
        if len(came.events):
            session.feed(clock.name, told_times(told))
            came.events = number_rows(came.events)
        yield
        self._memory.clocks[name] = list(now)
        if now.time > before.time:
            session.feed(clock.name, cti(now.time, clock.schema))

    def _feed_table(self, session: Session, edge: Edge, table: Table, packets: list[Packet]) -> int:
        """This shard's rows of a table; from then on they are in its state.

        They come in the first micro-batch. Of a table that is read again the last version that came counts;
        one that comes when the streams have ended changes nothing any more.
        """
        name, content = edge.source.name, self._topology.inlets[table.name].table
        version = self._newest_version(name, packets)
        if session.is_closed(name):
            return 0
        if version is not None:
            events = always(read_rows(table, version))
        elif content is not None:
            events = content.events()
        else:
            return 0
        router = Router(edge.route, edge.origin.schema, self._topology.shards)
        shares = [share for _, share, _ in router.split(events, self._shard)]
        session.push(name, concat(shares) if shares else empty(events.schema))
        return sum(map(len, shares))

    def _newest_version(self, name: str, packets: list[Packet]) -> Path | None:
        """The file of the last version of a table that came; none if none came."""
        named = [packet._replace(place=str(path_of(packet.place))) for packet in packets if packet.place]
        require_file_order(self._memory.last_file, name, named)
        return Path(self._memory.last_file[name]) if named else None

    def _feed_source(self, session: Session, edge: Edge, source: Source, packets: list[Packet]) -> int:
        inlet, name = self._topology.inlets[source.name], edge.source.name
        if isinstance(source, Table):
            return self._feed_table(session, edge, source, packets)
        if inlet.is_root:
            return self._roots[name].feed(packets, self._memory.last_file)
        if source.partition:
            return self._feed_partitions(session, edge, source, packets)
        require_file_order(self._memory.last_file, name, packets)
        came = merge_packets(packets, edge.origin.schema)
        with self._hear_clock(session, edge, came):
            if len(came.events):
                self._push(session, edge, source, came, self._heard(source, packets))
        if inlet.delay is not None:
            self._advance(session, name, inlet.delay, packets)
        return len(came.events)

    def _feed_partitions(self, session: Session, edge: Edge, source: Source, packets: list[Packet]) -> int:
        """Feed what came here of the partitions of a source, with what all tasks have read of them."""
        name, rows = edge.source.name, [packet for packet in packets if not is_closing(packet.place)]
        if not source.order:
            # Of partitions that are directories, each has an order of its own.
            for folder in sorted({os.path.dirname(packet.place) for packet in rows if packet.place}):
                own = [packet for packet in rows if os.path.dirname(packet.place) == folder]
                require_file_order(self._memory.last_file, f"{name} {folder}", own)
        came, heard = merge_packets(rows, edge.origin.schema), self._heard(source, rows)
        if source.order and source.on_violation != "raise":
            came = came.with_ctis_first()
        with self._hear_clock(session, edge, came):
            if heard is not None:
                self._push(session, edge, source, came, heard)
        if len(rows) < len(packets):
            session.advance(name, FOREVER)
        return len(came.events)

    def _heard(self, source: Source, packets: list[Packet]) -> Heard | None:
        """What the tasks say of all rows; None if there were none, or nothing need be said."""
        summed, orders = read_summaries(packet.summary for packet in packets)
        refuse_equal_orders(orders, source.name, source.order)
        delay = self._topology.inlets[source.name].delay
        return None if summed is None else Heard(summed, delay, counts_ctis=self._shard == 0)

    def _push(self, session: Session, edge: Edge, source: Source, came: Inflow, heard: Heard | None) -> None:
        name = edge.source.name
        if not source.order and came.has_several_runs():
            raise RecensionError(
                f"{source.name}: a micro-batch has rows of two runs, and each run numbers its own rows: name "
                f"an order of all, as in rc.source({source.name!r}, ..., partition=, order=)"
            )
        session.push(name, came.rows(source.name, source.order), heard=heard)

    def _advance(self, session: Session, name: str, delay: int, packets: list[Packet]) -> None:
        """The watermark: a CTI that lags behind the latest start that any task has seen."""
        latest = max([packet.latest_start for packet in packets], default=BEGINNING)
        self._memory.latest_start[name] = latest = max(latest, self._memory.latest_start.get(name, BEGINNING))
        t = int(add(np.array([latest]), -delay)[0])
        if t > self._memory.input_cti.get(name, BEGINNING):
            self._memory.input_cti[name] = t
            session.advance(name, t)

    def _output_packets(self, name: str, node: Node, changes: EventBatch, t: int | None) -> list[Packet]:
        """What one output sends: to the edges that read it, and to the end if it is an answer."""
        previous = self._memory.output_cti.get(name, BEGINNING)
        self._memory.output_cti[name] = now = previous if t is None else max(previous, t)
        packets: list[Packet] = []
        for number, sender in self._senders.items():
            if self._topology.edges[number].origin is node:
                packets += self._edge_packets(number, sender, changes, now)
        for root in (number for number, root in enumerate(self._topology.roots) if root is node):
            packets += self._answer_packets(root, changes, now, previous)
        return packets

    def _describe_answer(self, name: str, changes: EventBatch) -> dict[str, int]:
        """What is said in a report of the query's answer."""
        retractions = int((changes.kind == RETRACT).sum())
        return {
            "events_out": len(changes),
            "retractions_out": retractions,
            "cti": self._memory.output_cti[name],
        }

    def _answer_packets(self, root: int, changes: EventBatch, now: int, previous: int) -> list[Packet]:
        """Changes to the task that writes this shard's; the CTI to all of them."""
        tasks = self._topology.answer_tasks(self._shard)
        mine = self._shard if self._shard in tasks else tasks[0]
        contents = Contents(changes, {}) if len(changes) else None
        packet = Packet(0, OUTPUT, str(self._shard), cti=now, previous_cti=previous, query=root)
        return [packet._replace(shard=task, blob=contents if task == mine else None) for task in tasks]

    def _edge_packets(self, number: int, sender: EdgeSender, changes: EventBatch, t: int) -> list[Packet]:
        split_up = sender.split(changes, {}) if len(changes) else ()
        packet = Packet(0, number, f"{self._shard:06}", self._level, cti=t)
        packets = [packet._replace(shard=shard) for shard in range(sender.shards)]
        for shard, contents, marks in split_up:
            packets[shard] = packet._replace(shard=shard, blob=contents, marks=marks)
        return packets

    def parts(self) -> dict[str, Any]:
        """The state as named tables and logged stores."""
        self._note_membership()
        memory = pa.table({"memory": [json.dumps(asdict(self._memory))]})
        parts = {
            f"{number}/{name}": part
            for number, session in enumerate(self._sessions)
            for name, part in session.parts().items()
        }
        return {"memory": memory, **parts}

    def _note_membership(self) -> None:
        """A stream that joins moves the parts of an engine to other names, and a log goes by names.

        Engines that become what they are, from tables, forget what they have stored: the log begins anew.
        """
        membership = {name: asdict(root.membership) for name, root in self._roots.items()}
        if membership != self._memory.membership:
            self._memory.membership = membership
            for session in self._sessions:
                session.restore_state(tables_of(session.parts()))

    def restore(self, tables: Mapping[str, Any]) -> None:
        """Become the host with these parts, or take over changes."""
        heard = self._memory.feedback
        self._memory = _Memory(**json.loads(tables["memory"]["memory"][0].as_py()))
        for name, membership in self._memory.membership.items():
            self._roots[name].restore(Membership(**membership))
            self._memory.membership[name] = asdict(self._roots[name].membership)
        for number, session in enumerate(self._sessions):
            prefix = f"{number}/"
            own = {n.removeprefix(prefix): t for n, t in tables.items() if n.startswith(prefix)}
            session.restore_state(own)
        feedback, self._memory.feedback = self._memory.feedback, heard
        self._apply_feedback(feedback)
        for report in self._reports:
            report.restart()


def _spill_directory(shard: int) -> str | None:
    """One of the directories that Spark gives this executor for temporary files."""
    given = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or ""
    directories = [directory for directory in given.split(",") if os.path.isdir(directory)]
    return directories[shard % len(directories)] if directories else None


def _open_session(fragment: Fragment, kind: TimeKind, pool: MemoryPool | None, clock: Clock) -> Session:
    plans = {str(number): plan for number, (_, plan) in enumerate(fragment.outputs)}
    return Session(plans, _WHOLE, clock, history_limit=0, times=KnownKind(kind), pool=pool)
