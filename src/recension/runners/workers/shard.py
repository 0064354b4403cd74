"""One shard: the fragments of all levels that live in it, each with an engine of its own.

Assumes     rounds come level by level; every shard of an earlier level sends each later one a packet.
Guarantees  what comes out of all shards is what one engine gives for the same elements in the same order.
State       that of the engines, the CTIs of edges and outputs, how far the clocks of edges are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat
from recension.core.change_log import tables_of
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimesInMessages
from recension.lowering import lower
from recension.operators.base import Chunks
from recension.operators.pipeline import Flow, flow_of
from recension.operators.state.chunks import take_prefix
from recension.plan.fragments import Edge, Fragment
from recension.plan.nodes import Source
from recension.runners.engine import Engine
from recension.runners.exchange.clocks import ClockReader, ClockState, EdgeSender, number_rows, told_times
from recension.runners.exchange.packets import Inflow, Packet, merge_packets
from recension.runners.metrics import Metrics
from recension.runners.workers.messages import Answer, Output, Round, SourceRows
from recension.runners.workers.split import Split

_MEMORY: Final = "memory"


class Shard:
    """All fragments of one shard."""

    def __init__(self, split: Split, number: int) -> None:
        self._split, self._number = split, number
        self._fragments = {
            place: FragmentRun(split, fragment, number)
            for place, fragment in enumerate(split.fragments)
            if number == 0 or not fragment.is_single
        }

    def run(self, request: Round, packets: Sequence[Packet] = ()) -> Answer:
        """One level of a step."""
        answer = Answer()
        with TimesInMessages(request.kind):
            for place, fragment in self._fragments.items():
                if fragment.level == request.level:
                    fragment.run(request.rows, packets, answer)
                    answer.counters[place] = fragment.counters()
        return answer

    def check_end(self, sources: Iterable[str]) -> None:
        """Raise what an operator would raise if these sources ended; nothing changes."""
        for fragment in self._fragments.values():
            fragment.check_end(set(sources))

    def receive_feedback(self, query: int, t: int) -> None:
        """Those who read a query do not need events that finally end before ``t``."""
        for fragment in self._fragments.values():
            fragment.receive_feedback(query, t)

    def measure(self) -> list[Metrics]:
        """What every operator has done so far, and the state it holds."""
        return [found for fragment in self._fragments.values() for found in fragment.measure()]

    def counts(self) -> list[dict[str, Any]]:
        """Of each fragment, the elements dropped or moved so far, by operator and reason."""
        return [fragment.engine.counts() for fragment in self._fragments.values()]

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        return {
            f"{place}/{name}": table
            for place, fragment in self._fragments.items()
            for name, table in fragment.snapshot().items()
        }

    def restore(self, chunks: Chunks) -> dict[int, int]:
        """Become the shard whose snapshot this is. Gives the CTIs of the queries that it answers."""
        found: dict[int, int] = {}
        for place, fragment in self._fragments.items():
            fragment.restore(take_prefix(str(place), chunks))
            found |= fragment.query_ctis()
        return found


class FragmentRun:
    """One fragment at work in one shard."""

    def __init__(self, split: Split, fragment: Fragment, number: int) -> None:
        self.level, self._number, self._fragment = fragment.level, number, fragment
        self._plan = lower({str(place): plan for place, (_, plan) in enumerate(fragment.outputs)})
        self.engine = Engine(self._plan.vertices, self._plan.query_vertices.values())
        self._edges = {at: edge for at, edge in enumerate(split.edges) if edge in fragment.edges}
        self._clocks = {at: ClockReader(e.clock) for at, e in self._edges.items() if e.clock is not None}
        self._outputs = [
            FragmentOutput(split, node, self._plan.query_vertices[str(place)], number)
            for place, (node, _) in enumerate(fragment.outputs)
        ]
        self._input_cti: dict[int, int] = {}
        self._clock_states: dict[int, ClockState] = {}

    def run(self, rows: SourceRows | None, packets: Sequence[Packet], answer: Answer) -> None:
        """Work through what came, and put what comes out into the answer."""
        flows, told = dict[int, Flow](), dict[int, int]()
        for number, edge in self._edges.items():
            flow, came = self._arrival(number, edge, rows, packets)
            if came is not None and came.marks and number in self._clocks:
                flow = self._hear_clock(number, edge, flow, came, told)
            if flow:
                flows[self._vertex(edge.source)] = flow
        if flows:
            self._step(flows)
        for vertex, t in told.items():
            self._step({vertex: Flow([], t)})
        for output in self._outputs:
            output.give(answer, takes_part=bool(packets or flows or told))
        answer.no_effect_before |= self._no_effect_before()
        answer.dropped |= self.engine.take_dropped()

    def _step(self, flows: Mapping[int, Flow]) -> None:
        given = self.engine.step(flows)
        for output in self._outputs:
            if output.vertex in given:
                output.add(self.engine.wanted_outside(output.vertex, given[output.vertex]))

    def _arrival(
        self, number: int, edge: Edge, rows: SourceRows | None, packets: Sequence[Packet]
    ) -> tuple[Flow, Inflow | None]:
        """What came on an edge, and how it came if it has events."""
        if isinstance(edge.origin, Source):
            return self._share(number, rows)
        own = [packet for packet in packets if packet.edge == number]
        came = merge_packets(own, edge.origin.schema)
        if edge.clock is None and edge.origin.properties.is_ordered:
            # Each shard's answers are in order, and none goes back behind the CTI of all.
            came.events = came.events.take(np.argsort(came.events.sync(), kind="stable"))
        t, previous = (
            min((packet.cti for packet in own), default=BEGINNING),
            self._input_cti.get(number, BEGINNING),
        )
        self._input_cti[number] = max(t, previous)
        flow = flow_of(came.events)
        flow.cti = t if t > previous else None
        return flow, came

    def _share(self, number: int, rows: SourceRows | None) -> tuple[Flow, Inflow | None]:
        """What this shard gets of the rows of a source."""
        if rows is None or number not in rows.addressed:
            return Flow(), None
        if rows.events is None:
            return Flow([], rows.cti), None
        addressed = rows.addressed[number]
        share = addressed.share(rows.events, {}, self._number)
        if share is None:
            return Flow([], rows.cti), None
        events = share.contents.events
        marks = [] if share.marks is None else [share.marks]
        flow = Flow([events] if len(events) else [], rows.cti, rows.has_external)
        return flow, Inflow(events, [("", share.contents)], marks=marks)

    def _hear_clock(self, number: int, edge: Edge, flow: Flow, came: Inflow, told: dict[int, int]) -> Flow:
        """Let the step that hears a clock know how far it is before each row; ``told`` is for after all."""
        assert edge.clock is not None
        before = self._clock_states.get(number, ClockState())
        times, now = self._clocks[number].read(came, before)
        self._clock_states[number] = now
        vertex = self._vertex(edge.clock.source)
        if now.time > before.time:
            told[vertex] = now.time
        if not len(came.events):
            return flow
        self._step({vertex: flow_of(told_times(times))})
        return replace(flow, batches=[number_rows(came.events)])

    def _vertex(self, source: Source) -> int:
        return self._plan.source_vertices[source.name]

    def _no_effect_before(self) -> dict[int, int]:
        times = self.engine.no_effect_before()
        return {
            number: times.get(self._vertex(edge.source), BEGINNING)
            for number, edge in self._edges.items()
            if isinstance(edge.origin, Source)
        }

    def check_end(self, sources: set[str]) -> None:
        """Raise what an operator would raise if these sources ended; nothing changes."""
        ended = [
            self._vertex(edge.source)
            for edge in self._edges.values()
            if isinstance(edge.origin, Source) and edge.origin.name in sources
        ]
        clocks = [self._vertex(e.clock.source) for e in self._edges.values() if e.clock is not None]
        self.engine.check_end([*ended, *clocks] if ended else [])

    def receive_feedback(self, query: int, t: int) -> None:
        """Those who read a query do not need events that finally end before ``t``."""
        for output in self._outputs:
            if query in output.queries:
                self.engine.receive_feedback(output.vertex, t)

    def counters(self) -> list[tuple[str, tuple[Any, ...]]]:
        """What every operator has counted."""
        counted = zip(self._plan.vertices, self.engine.counters(), strict=True)
        return [(vertex.name, counters) for vertex, counters in counted if vertex.operator is not None]

    def measure(self) -> Iterator[Metrics]:
        """What every operator has done so far, and the state it holds."""
        found = self.engine.metrics(self.engine.counters())
        for vertex, metrics in zip(self._plan.vertices, found, strict=True):
            if vertex.operator is not None:
                yield metrics

    def query_ctis(self) -> dict[int, int]:
        """The CTIs of the queries that it answers."""
        return {query: output.cti for output in self._outputs for query in output.queries}

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        memory = {
            "input_cti": list(self._input_cti.items()),
            "output_cti": [output.cti for output in self._outputs],
            "clocks": [[number, *state] for number, state in self._clock_states.items()],
        }
        engine = {f"engine/{name}": table for name, table in tables_of(self.engine.parts()).items()}
        return {_MEMORY: pa.table({"memory": [json.dumps(memory)]}), **engine}

    def restore(self, chunks: Chunks) -> None:
        """Become the fragment whose snapshot this is."""
        memory = json.loads(chunks[_MEMORY]["memory"][0].as_py())
        self._input_cti = dict(memory["input_cti"])
        self._clock_states = {number: ClockState(*state) for number, *state in memory["clocks"]}
        for output, t in zip(self._outputs, memory["output_cti"], strict=True):
            output.cti = t
        self.engine.restore(take_prefix("engine", chunks))


class FragmentOutput:
    """What a fragment gives for one of its nodes: to the edges that read it, and to the session."""

    def __init__(self, split: Split, node: Any, vertex: int, number: int) -> None:
        self.vertex, self._number = vertex, number
        self.queries = [place for place, root in enumerate(split.roots) if root is node]
        self._senders = {
            at: (edge, EdgeSender(edge, split.shards))
            for at, edge in enumerate(split.edges)
            if edge.origin is node
        }
        self.cti = BEGINNING
        self._batches: list[EventBatch] = []

    def add(self, flow: Flow) -> None:
        """More of what comes out in a round."""
        self._batches += [batch for batch in flow.batches if len(batch)]
        self.cti = self.cti if flow.cti is None else max(self.cti, flow.cti)

    def give(self, answer: Answer, *, takes_part: bool) -> None:
        """Put what came out in this round into the answer."""
        batches, self._batches = self._batches, []
        if takes_part:
            answer.outputs += [Output(query, self.cti, batches) for query in self.queries]
        for number, (edge, sender) in self._senders.items():
            answer.packets += self._packets(number, edge, sender, batches)

    def _packets(
        self, number: int, edge: Edge, sender: EdgeSender, batches: list[EventBatch]
    ) -> list[Packet]:
        packet = Packet(0, number, f"{self._number:06}", edge.level, cti=self.cti)
        packets = [packet._replace(shard=shard) for shard in range(sender.shards)]
        for shard, contents, marks in sender.split(concat(batches), {}) if batches else ():
            packets[shard] = packet._replace(shard=shard, blob=contents, marks=marks).seal()
        return packets
