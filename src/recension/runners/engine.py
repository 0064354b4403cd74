"""The engine: a graph of physical operators, driven one step at a time.

In a step one source gives a batch and perhaps a CTI; every operator above it then works at most once, in
an order in which inputs come before the operators that read them. A stream that is read twice is
therefore computed once, and all its readers see the same state of it.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, RETRACT, EventBatch, cti, new_end, old_end
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import ADJUSTED, STALE_CTI
from recension.lowering import Vertex
from recension.operators.base import Chunks, Operator
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.pipeline import Flow, check_end, drive
from recension.operators.span import Span
from recension.plan.structure import difference
from recension.runners.feedback import Feedback
from recension.runners.metrics import Metrics

_log: Final = logging.getLogger("recension")

# Counted up whenever an operator keeps its state in another way: such snapshots are refused, not misread.
STATE_FORMAT: Final = 2


class Engine:
    """Runs a graph whose vertices are listed with inputs before their readers."""

    def __init__(self, vertices: Sequence[Vertex], outputs: Iterable[int] | None = None) -> None:
        """``outputs`` are the vertices that are wanted; without them, those that no other reads."""
        self._vertices = list(vertices)
        self._metrics = [Metrics(vertex.name) for vertex in vertices]
        read = {i for vertex in vertices for i in vertex.inputs}
        self._outputs = list(set(range(len(vertices))) - read if outputs is None else outputs)
        self._order = in_order(self._vertices, self._outputs)
        self._feedback = Feedback(self._vertices, self._order, self._outputs)

    @property
    def is_clocked(self) -> bool:
        """Does anything count by the wall clock?"""
        running = (self._vertices[number].operator for number in self._order)
        return any(operator is not None and operator.is_clocked for operator in running)

    def step(self, source: int, batch: EventBatch, t: int | None) -> dict[int, Flow]:
        """Feed one source; what every vertex that gave anything gave."""
        has_external = bool((batch.kind == EXTERNAL_CTI).any())
        return self.give(source, Flow([batch] if len(batch) else [], t, has_external))

    def give(self, start: int, given: Flow) -> dict[int, Flow]:
        """What every vertex gives, in one step, when this one gives something."""
        self._note(start, given)
        return self._run({start: given}, self._order[self._order.index(start) + 1 :])

    def tick(self, now: int) -> dict[int, Flow]:
        """The wall clock shows ``now``; what every vertex that gave anything gave."""
        return self._run({}, self._order, now)

    def _run(self, flows: dict[int, Flow], order: Sequence[int], now: int | None = None) -> dict[int, Flow]:
        for number in order:
            vertex = self._vertices[number]
            if vertex.operator is None:
                continue
            at = now if vertex.operator.is_clocked else None
            if at is not None or any(i in flows for i in vertex.inputs):
                flow = self._guarded(number, vertex, vertex.operator, flows, at)
                if flow.batches or flow.cti is not None:
                    flows[number] = flow
        self._feedback.send()
        return flows

    def check_end(self, sources: Collection[int]) -> None:
        """Raise what an operator would raise if these sources ended, where it is certain; nothing changes."""
        running = ((number, self._vertices[number]) for number in self._order)
        steps = (
            (number, vertex.operator, [i for i in vertex.inputs if i >= 0])
            for number, vertex in running
            if vertex.operator is not None
        )
        check_end(steps, sources)

    def check_last(self, source: int, batch: EventBatch, t: int | None) -> None:
        """The same of a source that gets this batch, and then a CTI at ``t``.

        It is certain of operators that read the source itself, or what filters and maps leave of it.
        """
        if t != FOREVER:
            return
        is_endless = (old_end(batch) == FOREVER) | (new_end(batch) == FOREVER)
        coming = {source: batch.filter(batch.is_data() & is_endless)}
        for number in self._order:
            vertex = self._vertices[number]
            if vertex.operator is None or len(vertex.inputs) != 1 or vertex.inputs[0] not in coming:
                continue
            given = coming[vertex.inputs[0]]
            if not isinstance(vertex.operator, Span):
                vertex.operator.check_last(given)
                continue
            with suppress(Exception):  # of a user's function: the step itself will tell
                coming[number] = vertex.operator.on_batch(0, given)

    def hear(self, output: int, t: int) -> None:
        """Those who read an answer do not want what finally ends before ``t``."""
        self._feedback.hear(output, t)

    def wanted(self, output: int, flow: Flow) -> Flow:
        """What of an answer its readers want."""
        batches = [self._feedback.wanted_outside(output, batch) for batch in flow.batches]
        self._metrics[output].skipped += sum(map(len, flow.batches)) - sum(map(len, batches))
        return Flow(batches, flow.cti, flow.has_external)

    def settled(self) -> dict[int, int]:
        """By vertex, a time such that nothing comes of changes in its output to events ended before it."""
        times: dict[int, int] = {}
        for number in reversed(self._order):
            vertex = self._vertices[number]
            if number in self._outputs:
                times[number] = BEGINNING
            for port, i in enumerate(vertex.inputs):
                assert vertex.operator is not None, "sources read nothing"
                since = vertex.operator.settled(port, times.get(number, BEGINNING))
                times[i] = min(times.get(i, FOREVER), since)
        return times

    @property
    def running(self) -> list[int]:
        """The vertices that some query needs, inputs before their readers."""
        return self._order

    def rewire(self, vertices: Sequence[Vertex]) -> None:
        """Go on with other vertices; those that were there keep their numbers and what they did."""
        self._vertices = list(vertices)
        self._metrics += [Metrics(vertex.name) for vertex in vertices[len(self._metrics) :]]
        self._order = in_order(self._vertices, self._outputs)
        self._feedback.rewire(self._vertices, self._order)

    def _guarded(
        self, number: int, vertex: Vertex, operator: Operator, flows: dict[int, Flow], now: int | None
    ) -> Flow:
        """Whatever goes wrong in a step, in data or in a user's function, is told with the step's name."""
        try:
            return self._drive(number, vertex, operator, flows, now)
        except RecensionError:
            raise
        except Exception as why:
            reason = (str(why).splitlines() or [""])[0]
            raise RecensionError(f"{vertex.name}: {type(why).__name__}: {reason}") from why

    def _drive(
        self, number: int, vertex: Vertex, operator: Operator, flows: dict[int, Flow], now: int | None
    ) -> Flow:
        started = time.perf_counter()
        read = [(port, flows[i]) for port, i in enumerate(vertex.inputs) if i in flows]
        out = drive(operator, [(port, self._wanted(number, port, flow)) for port, flow in read], now)
        self._metrics[number].seconds += time.perf_counter() - started
        for warning in operator.take_warnings():
            self.warn(number, f"{vertex.name}: {warning}")
        self._note(number, out)
        return out

    def warn(self, number: int, warning: str) -> None:
        """Say something of a vertex in its metrics and in the log."""
        self._metrics[number].warnings.append(warning)
        _log.warning(warning)

    def taken_in(self, source: int) -> Metrics:
        """What a source has given so far."""
        return self._metrics[source]

    def held_above(self, source: int) -> int:
        """How many rows of state the operators above a source hold."""
        above, held = {source}, 0
        for number in self._order:
            vertex = self._vertices[number]
            if vertex.operator is not None and above.intersection(vertex.inputs):
                above.add(number)
                held += vertex.operator.state_rows()
        return held

    def _wanted(self, number: int, port: int, flow: Flow) -> Flow:
        """What comes in at a port, less what feedback says nobody wants."""
        wanted = [self._feedback.wanted(number, port, batch) for batch in flow.batches]
        for given, kept in zip(flow.batches, wanted, strict=True):
            self._metrics[number].skipped += len(given) - len(kept)
            self._count_in(number, kept)
        return Flow(wanted, flow.cti, flow.has_external)

    def _count_in(self, number: int, batch: EventBatch) -> None:
        self._metrics[number].events_in += len(batch)
        self._metrics[number].retractions_in += int((batch.kind == RETRACT).sum())

    def _note(self, number: int, flow: Flow) -> None:
        metrics = self._metrics[number]
        for batch in flow.batches:
            metrics.events_out += len(batch)
            metrics.retractions_out += int((batch.kind == RETRACT).sum())
        if flow.cti is not None:
            metrics.cti = flow.cti

    def metrics(self) -> list[Metrics]:
        """What every operator has done so far, and the state it holds now."""
        for number, (vertex, metrics) in enumerate(zip(self._vertices, self._metrics, strict=True)):
            if vertex.operator is not None and number in self._order:
                metrics.state_rows = vertex.operator.state_rows()
                metrics.state_bytes = vertex.operator.state_bytes()
                metrics.dropped = dropped_count(vertex.operator.counts())
            if isinstance(vertex.operator, LogicalMerge):
                metrics.inputs = [str(state) for state in vertex.operator.states()]
                metrics.anomalies = vertex.operator.anomalies
                metrics.is_halted = vertex.operator.is_halted
        return self._metrics

    def counts(self) -> dict[str, Counter[str]]:
        """By operator, the elements left out or moved so far, by reason."""
        found: dict[str, Counter[str]] = {}
        for vertex in self._vertices:
            if vertex.operator is not None and (counts := vertex.operator.counts()):
                found[vertex.name] = found.get(vertex.name, Counter()) + counts
        return found

    def take_dropped(self) -> dict[str, list[tuple[str, EventBatch]]]:
        """By operator, the elements left out and kept aside since the last time of asking."""
        found: dict[str, list[tuple[str, EventBatch]]] = {}
        for vertex in self._vertices:
            if vertex.operator is not None and (dropped := vertex.operator.take_dropped()):
                found.setdefault(vertex.name, []).extend(dropped)
        return found

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of all operators as named Arrow tables."""
        running = [self._vertices[number] for number in self._order]
        return {"plan": self._written_plan()} | {
            f"{place}/{name}": table
            for place, vertex in enumerate(running)
            if vertex.operator is not None
            for name, table in vertex.operator.snapshot().items()
        }

    def require_same(self, chunks: Chunks) -> None:
        """Refuse a snapshot of another query; nothing changes."""
        if "plan" not in chunks:
            raise RecensionError("the snapshot does not say of which query it is")
        _require_format(chunks["plan"])
        _require_same(chunks["plan"], self._written_plan())

    def restore(self, chunks: Chunks) -> None:
        """Become the engine whose snapshot this is; `require_same` has looked at it."""
        running = [self._vertices[number] for number in self._order]
        by_place: dict[int, dict[str, pa.Table]] = {}
        for name, table in chunks.items():
            place, slash, rest = name.partition("/")
            if slash:
                by_place.setdefault(int(place), {})[rest] = table
        for number, own in by_place.items():
            operator = running[number].operator
            assert operator is not None
            operator.restore(own)

    def _written_plan(self) -> pa.Table:
        """What runs: every step by its structure, and the places of the steps it reads; names for people."""
        places = {number: place for place, number in enumerate(self._order)} | {-1: -1}
        running = [self._vertices[number] for number in self._order]
        columns = {
            "operator": pa.array([vertex.name for vertex in running], pa.string()),
            "structure": pa.array([vertex.structure for vertex in running], pa.string()),
            "inputs": pa.array([[places[i] for i in v.inputs] for v in running], pa.list_(pa.int64())),
            "format": pa.array([STATE_FORMAT] * len(running), pa.int64()),
        }
        return pa.table(columns)


def _require_same(theirs: pa.Table, ours: pa.Table) -> None:
    """Raise unless both are the same steps; the first that differs is named."""
    for a, b in zip_longest(theirs.to_pylist(), ours.to_pylist()):
        if a is None or b is None or a["structure"] != b["structure"]:
            raise RecensionError(f"the snapshot is of another query, {_difference(a, b)}")
        if a["inputs"] != b["inputs"]:
            raise RecensionError(
                f"the snapshot is of another query, in which {a['operator']!r} reads other steps"
            )


def _difference(theirs: dict[str, Any] | None, ours: dict[str, Any] | None) -> str:
    if theirs is None or ours is None:
        which = "which has" if ours is None else "which does not have"
        return f"{which} {(theirs or ours or {})['operator']!r}"
    if theirs["operator"] != ours["operator"]:
        return f"which has {theirs['operator']!r} where this one has {ours['operator']!r}"
    parts = (json.loads(plan["structure"]) for plan in (theirs, ours))
    return f"whose {ours['operator']!r} is another one: {difference(*parts)}"


def _require_format(plan: pa.Table) -> None:
    found = plan["format"][0].as_py() if "format" in plan.column_names else 0
    if found != STATE_FORMAT:
        raise RecensionError(
            f"the snapshot has format {found}, this version reads {STATE_FORMAT}: run the query again from "
            "its inputs, or let the old version and this one run side by side and cut over with a merge"
        )


def in_order(vertices: Sequence[Vertex], outputs: Iterable[int]) -> list[int]:
    """The vertices that the outputs need, inputs before their readers."""
    order: dict[int, None] = {}
    stack = [(number, False) for number in outputs]
    while stack:
        number, is_expanded = stack.pop()
        if is_expanded:
            order[number] = None
        elif number not in order:
            stack.append((number, True))
            stack.extend((i, False) for i in vertices[number].inputs if i >= 0)
    return list(order)


def dropped_count(counts: Counter[str]) -> int:
    """How many elements were left out, moved ones and idle CTIs aside."""
    return sum(n for reason, n in counts.items() if reason not in (ADJUSTED, STALE_CTI))


def elements(flow: Flow, schema: pa.Schema) -> list[EventBatch]:
    """A vertex's output of one step as stream elements: changes, then the CTI."""
    return flow.batches if flow.cti is None else [*flow.batches, cti(flow.cti, schema)]
