"""The engine: a graph of physical operators, driven one step at a time.

In a step one source gives a batch and perhaps a CTI; every operator above it then works at most once, in
an order in which inputs come before the operators that read them. A stream that is read twice is
therefore computed once, and all its readers see the same state of it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from recension.core.batch import CTI, EventBatch, concat, cti, new_end, old_end
from recension.core.errors import RecensionError, describe_error
from recension.core.ticks import FOREVER
from recension.lowering import Vertex
from recension.operators.base import Chunks, Operator
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.pipeline import (
    Flow,
    check_end,
    drive,
    find_no_effect_times,
    parts_of_all,
    restore_all,
)
from recension.runners.feedback import OUTSIDE, Feedback
from recension.runners.metrics import COUNTERS, Metrics, counters_of, dropped_count, late_count
from recension.runners.snapshot import PLAN, plan_table, require_same_plan, require_workers

_log: Final = logging.getLogger("recension")


class Engine:
    """Runs a graph whose vertices are listed with inputs before their readers."""

    def __init__(self, vertices: Sequence[Vertex], outputs: Iterable[int]) -> None:
        """``outputs`` are the vertices that queries read."""
        self._outputs = list(outputs)
        self._metrics: list[Metrics] = []
        self._feedback = Feedback(self._outputs)
        self.rewire(vertices)

    def rewire(self, vertices: Sequence[Vertex]) -> None:
        """Go on with other vertices; those that were there keep their numbers and what they did."""
        self._vertices = list(vertices)
        self._metrics += [Metrics(vertex.name) for vertex in vertices[len(self._metrics) :]]
        self._order = in_order(self._vertices, self._outputs)
        running = ((number, self._vertices[number].operator) for number in self._order)
        self._clocked = {number for number, op in running if op is not None and op.is_clocked}
        self._feedback.rewire(self._vertices, self._order)

    @property
    def is_clocked(self) -> bool:
        """Does anything count by the wall clock?"""
        return bool(self._clocked)

    def step(self, given: Mapping[int, Flow], now: int | None = None) -> dict[int, Flow]:
        """What every vertex gives when some give this, or when the wall clock shows ``now``."""
        flows = dict(given)
        for number, flow in given.items():
            self._metrics[number].count_out(flow)
        for number in self._order:
            vertex, operator = self._vertices[number], self._vertices[number].operator
            at = now if number in self._clocked else None
            if operator is None or (at is None and flows.keys().isdisjoint(vertex.inputs)):
                continue
            started = time.perf_counter()
            arrivals = self._arrivals(number, vertex, flows)
            with _named_errors(vertex):
                out = drive(operator, arrivals, at)
            if out:
                flows[number] = out
            self._note_work(number, operator, out, time.perf_counter() - started)
        self._feedback.send()
        return flows

    def look(self, source: int, changes: EventBatch) -> None:
        """Raise what steps would raise that read rows only, as far as they see these; nothing changes.

        What those steps give is remembered: it is not computed again if this very batch comes.
        """
        coming: dict[int, EventBatch] = {source: changes}
        for number in self._order:
            vertex, operator = self._vertices[number], self._vertices[number].operator
            ports = [(port, i) for port, i in enumerate(vertex.inputs) if i in coming]
            wants_all = all(self._feedback.wants_all((number, port), i) for port, i in ports)
            if operator is None or not ports or not wants_all:
                continue
            started = time.perf_counter()
            with _named_errors(vertex):
                found = [operator.look(port, coming[i]) for port, i in ports]
            self._metrics[number].seconds += time.perf_counter() - started
            known = [batch for batch in found if batch is not None]
            if len(known) == len(ports):
                coming[number] = concat([batch for batch in known if len(batch)] or known[:1])

    def forget_looked(self) -> None:
        """What `look` remembered is not needed any more."""
        for number in self._order:
            if (operator := self._vertices[number].operator) is not None:
                operator.forget_looked()

    def _arrivals(self, number: int, vertex: Vertex, flows: Mapping[int, Flow]) -> list[tuple[int, Flow]]:
        """What comes in at each port, less what feedback says nobody wants."""
        arriving, metrics = list[tuple[int, Flow]](), self._metrics[number]
        for port, i in enumerate(vertex.inputs):
            if (flow := flows.get(i)) is not None:
                wanted = self._feedback.keep_wanted((number, port), i, flow)
                if wanted is not flow:
                    metrics.skipped += _size(flow) - _size(wanted)
                for batch in wanted.batches:
                    metrics.count_in(batch)
                arriving.append((port, wanted))
        return arriving

    def _note_work(self, number: int, operator: Operator, out: Flow, seconds: float) -> None:
        metrics = self._metrics[number]
        metrics.seconds += seconds
        metrics.count_out(out)
        for warning in operator.take_warnings():
            self.warn(number, f"{metrics.name}: {warning}")

    def settle(self) -> dict[int, Flow]:
        """What came out of steps that others do, once all of them are done; here nothing is left open."""
        return {}

    def finish(self) -> None:
        """Nothing more comes; others that work for it may go."""

    def stop(self) -> None:
        """End others that work for it, whatever they do."""

    def check_end(self, sources: Collection[int]) -> None:
        """Raise what an operator would raise if these sources ended, where it is certain; nothing changes."""
        check_end(self._steps(), sources)

    def _steps(self) -> list[tuple[int, Operator, Sequence[int]]]:
        """The operators that run, in order, each with its number and the numbers of its inputs."""
        running = ((number, self._vertices[number]) for number in self._order)
        return [(number, one.operator, one.inputs) for number, one in running if one.operator is not None]

    def check_last(self, source: int, batch: EventBatch) -> None:
        """The same of a source that gets this batch, if a CTI in it ends the source.

        It is certain of operators that read the source itself, or what filters and maps leave of it.
        """
        if not bool((batch.vs[batch.kind == CTI] == FOREVER).any()):
            return
        is_endless = (old_end(batch) == FOREVER) | (new_end(batch) == FOREVER)
        coming = {source: batch.filter(batch.is_data() & is_endless)}
        for number in self._order:
            vertex = self._vertices[number]
            if vertex.operator is None or len(vertex.inputs) != 1 or vertex.inputs[0] not in coming:
                continue
            left = vertex.operator.check_last(coming[vertex.inputs[0]])
            if left is not None:
                coming[number] = left

    def receive_feedback(self, output: int, t: int) -> None:
        """Those who read an answer do not want what finally ends before ``t``."""
        self._feedback.receive_feedback(output, t)

    def wanted_outside(self, output: int, flow: Flow) -> Flow:
        """What of an answer its readers want."""
        wanted = self._feedback.keep_wanted((OUTSIDE, output), output, flow)
        if wanted is not flow:
            self._metrics[output].skipped += _size(flow) - _size(wanted)
        return wanted

    def no_effect_before(self) -> dict[int, int]:
        """By vertex, the time before which changes in its output have no effect (see `Operator`)."""
        return find_no_effect_times(self._steps(), self._outputs)

    @property
    def running_vertices(self) -> list[int]:
        """The vertices that some query needs, inputs before their readers."""
        return self._order

    def warn(self, number: int, warning: str) -> None:
        """Say something of a vertex in its metrics and in the log."""
        metrics = self._metrics[number]
        metrics.warnings = [*metrics.warnings, warning]
        _log.warning(warning)

    def source_metrics(self, source: int) -> Metrics:
        """What a source has given so far."""
        return self._metrics[source]

    def count_state_above(self, source: int) -> int:
        """How many rows of state the operators above a source hold."""
        above, held = {source}, 0
        for number in self._order:
            vertex = self._vertices[number]
            if vertex.operator is not None and above.intersection(vertex.inputs):
                above.add(number)
                held += vertex.operator.state_rows()
        return held

    def counters(self) -> list[tuple[Any, ...]]:
        """What was counted of every operator by now; `metrics` says what it means."""
        return [counters_of(metrics) for metrics in self._metrics]

    def metrics(self, counters: Sequence[tuple[Any, ...]]) -> list[Metrics]:
        """What every operator had done when these were its counters, with the state it holds now."""
        measured = []
        for number, (metrics, counted) in enumerate(zip(self._metrics, counters, strict=False)):
            operator = self._vertices[number].operator
            found = replace(metrics, **dict(zip(COUNTERS, counted, strict=True)))
            if operator is not None:
                counts = operator.counts()
                found.dropped, found.late = dropped_count(counts), late_count(counts)
            if operator is not None and number in self._order:
                found.state_rows, found.state_bytes = operator.state_rows(), operator.state_bytes()
            if isinstance(operator, LogicalMerge):
                found.inputs = [str(state) for state in operator.states()]
                found.anomalies, found.is_halted = operator.anomalies, operator.is_halted
                found.contradictions = operator.contradictions.by_input()
            measured.append(found)
        return measured

    def counts(self) -> dict[str, Counter[str]]:
        """By operator, the elements dropped or moved so far, by reason."""
        found: dict[str, Counter[str]] = {}
        for vertex in self._vertices:
            if vertex.operator is not None and (counts := vertex.operator.counts()):
                found[vertex.name] = found.get(vertex.name, Counter()) + counts
        return found

    def take_dropped(self) -> dict[str, list[tuple[str, EventBatch]]]:
        """By operator, the elements dropped since the last call."""
        found: dict[str, list[tuple[str, EventBatch]]] = {}
        for vertex in self._vertices:
            if vertex.operator is not None and (dropped := vertex.operator.take_dropped()):
                found.setdefault(vertex.name, []).extend(dropped)
        return found

    def parts(self) -> dict[str, Any]:
        """The state of all operators, see `Operator.parts`."""
        running = [self._vertices[number].operator for number in self._order]
        return {PLAN: plan_table(self._vertices, self._order), **parts_of_all(running)}

    def require_same(self, chunks: Chunks) -> None:
        """Refuse a snapshot of another query; nothing changes."""
        require_workers(chunks, 1)
        require_same_plan(chunks, plan_table(self._vertices, self._order))

    def restore(self, chunks: Chunks) -> None:
        """Become the engine whose snapshot this is; `require_same` has looked at it."""
        restore_all([self._vertices[number].operator for number in self._order], chunks)


@contextmanager
def _named_errors(vertex: Vertex) -> Iterator[None]:
    """Errors that are not ours say in which step they were."""
    try:
        yield
    except RecensionError:
        raise
    except Exception as why:
        raise RecensionError(f"{vertex.name}: {describe_error(why)}") from why


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


def elements(flow: Flow, schema: pa.Schema) -> list[EventBatch]:
    """A vertex's output of one step as stream elements: changes, then the CTI."""
    return flow.batches if flow.cti is None else [*flow.batches, cti(flow.cti, schema)]


def _size(flow: Flow) -> int:
    return sum(map(len, flow.batches))
