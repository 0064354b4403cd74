"""An engine whose operators run in worker processes, each with the shards of one number.

It stands where the engine of a session stands: sources are checked and answers are kept by the session. A
step is posted to all workers, and the session goes on; what came out is there at a later step, or when
somebody asks (`settle`). So is an error in a step.

Assumes     the elements of a source are valid.
Guarantees  answers are valid streams: what each shard gave of a step, then the least CTI of all, if it rose.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat
from recension.core.errors import RecensionError
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, kind_in_messages
from recension.lowering import PhysicalPlan
from recension.operators.base import Chunks
from recension.operators.pipeline import Flow
from recension.operators.state.chunks import take_prefix
from recension.plan.fragments import Edge
from recension.runners.engine import Engine
from recension.runners.exchange.clocks import Addressed, EdgeSender
from recension.runners.exchange.packets import Packet
from recension.runners.metrics import COUNTERS, Metrics
from recension.runners.snapshot import PLAN, WORKERS, plan_table, require_same_plan, require_workers
from recension.runners.workers.crew import Crew
from recension.runners.workers.messages import Answer, Round, SourceRows
from recension.runners.workers.shard import Shard
from recension.runners.workers.split import Split

_WARNINGS: Final = COUNTERS.index("warnings")
_NOWHERE: Final = Addressed(None, None)


class SplitEngine(Engine):
    """Runs the fragments of a split plan in as many processes as it has shards."""

    def __init__(self, plan: PhysicalPlan, split: Split) -> None:
        super().__init__(plan.vertices, plan.query_vertices.values())
        self._plan, self.split = plan, split
        self._sources = {number: name for name, number in plan.source_vertices.items()}
        self._answers = [plan.numbers[root] for root in split.roots]
        self._edges = {name: split.edges_of(name) for name in plan.sources}
        self._senders = {
            number: EdgeSender(edge, split.shards)
            for own in self._edges.values()
            for number, edge in own.items()
        }
        self._start()

    def _start(self) -> None:
        """Workers that know of nothing yet."""
        self._failure: Exception | None = None
        self._done: dict[int, Flow] = {}
        self._held: tuple[str, Flow] | None = None
        self._kind: TimeKind = None
        self._out_ctis: dict[tuple[int, int], int] = {}
        self._no_effect: dict[tuple[int, int], int] = {}
        self._counted: dict[tuple[int, int], list[tuple[str, tuple[Any, ...]]]] = {}
        self._dropped: dict[str, list[tuple[str, EventBatch]]] = {}
        self._last_words: dict[str, dict[int, Any]] = {}
        """What the workers would say, if they have ended because nothing more can come."""
        self._crew = Crew(partial(Shard, self.split), self.split.shards)

    @property
    def pids(self) -> list[int]:
        """The numbers of the worker processes."""
        return self._crew.pids

    def stop(self) -> None:
        if not self._last_words:
            self._failure = self._failure or RecensionError("the session was stopped: its workers have ended")
        self._crew.stop()

    def finish(self) -> None:
        questions = ("measure", "counts", "snapshot", "check_end", "receive_feedback")
        if not self._last_words:
            self._last_words = {method: self._ask(method) for method in questions[:3]} | {
                method: {} for method in questions[3:]
            }
            self._crew.stop()

    def step(self, given: Mapping[int, Flow], now: int | None = None) -> dict[int, Flow]:
        """Let the workers begin with what sources give; what came out of earlier steps."""
        for number, flow in given.items():
            self._metrics[number].count_out(flow)
            if number in self._outputs:
                _add(self._done, number, flow)
            if flow and self._edges[self._sources[number]]:
                self._hold(self._sources[number], flow)
        return self._take_done()

    def look(self, source: int, changes: EventBatch) -> None:
        """Rows are first looked at by the workers."""

    def _hold(self, source: str, flow: Flow) -> None:
        """Send what was held; hold this, for a CTI may follow: together they are one step."""
        self._require_whole()
        self._kind = kind_in_messages()
        if self._held is not None and self._held[0] == source and not flow.batches:
            self._held = source, replace(self._held[1], cti=flow.cti)
            return
        self._flush()
        self._held = source, flow

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._send(*held)

    def settle(self) -> dict[int, Flow]:
        """Wait for all workers; what came out of all steps since."""
        self._require_whole()
        self._flush()
        while self._crew.unanswered:
            self._collect()
        return self._take_done()

    def _take_done(self) -> dict[int, Flow]:
        done, self._done = self._done, {}
        return done

    def _send(self, source: str, flow: Flow) -> None:
        events = concat(flow.batches) if flow.batches else None
        edges = self._edges[source]
        if self.split.levels == 1:
            self._require_whole()
            if self._crew.is_full:
                self._collect()
            self._post(1, self._rows(edges, events, flow), None)
            return
        waiting = defaultdict[int, list[Packet]](list)
        for level in range(1, self.split.levels + 1):
            own = {number: edge for number, edge in edges.items() if edge.level == level}
            packets = waiting.pop(level, [])
            if own or packets:
                self._post(level, self._rows(own, events, flow) if own else None, packets)
                for packet in self._collect():
                    waiting[self.split.edges[packet.edge].level].append(packet)

    def _rows(self, edges: Mapping[int, Edge], events: EventBatch | None, flow: Flow) -> SourceRows:
        addressed = {
            number: _NOWHERE if events is None else self._senders[number].address(events, {})
            for number in edges
        }
        return SourceRows(events, flow.cti, flow.has_external, addressed)

    def _post(self, level: int, rows: SourceRows | None, packets: Sequence[Packet] | None) -> None:
        own = None
        if packets is not None:
            is_single = all(f.is_single for f in self.split.fragments if f.level == level)
            shards = range(1 if is_single else self.split.shards)
            own = [
                [p for p in packets if p.shard == n] if n in shards else None
                for n in range(self.split.shards)
            ]
        is_borrowed = rows is not None and all(_copies_rows(where, rows) for where in rows.addressed.values())
        self._call("run", [Round(level, self._kind, rows)], own, is_borrowed=is_borrowed)

    def _call(
        self,
        method: str,
        shared: Sequence[Any],
        own: Sequence[Any] | None = None,
        *,
        is_borrowed: bool = False,
    ) -> None:
        self._require_whole()
        try:
            self._crew.post(method, shared, own, is_borrowed=is_borrowed)
        except BaseException as why:
            self._fail(why)
            raise

    def _collect(self) -> list[Packet]:
        """Take the oldest answers that wait; gives what goes to the next levels."""
        self._require_whole()
        try:
            answers: dict[int, Answer] = self._crew.collect()
        except BaseException as why:
            self._fail(why)
            raise
        gave = defaultdict[int, list[EventBatch]](list)
        for worker, answer in answers.items():
            self._no_effect |= {(worker, edge): t for edge, t in answer.no_effect_before.items()}
            self._counted |= {(worker, place): counted for place, counted in answer.counters.items()}
            for name, dropped in answer.dropped.items():
                self._dropped.setdefault(name, []).extend(dropped)
            for query, t, batches in answer.outputs:
                gave[query] += batches
                self._out_ctis[query, worker] = t
        for query, batches in gave.items():
            self._answer(query, batches)
        self._pass_on_warnings()
        return [packet for answer in answers.values() for packet in answer.packets]

    def _answer(self, query: int, batches: list[EventBatch]) -> None:
        """What all shards gave of a query in a step, and the least of their CTIs."""
        if len(batches) > 1 and self.split.roots[query].properties.is_ordered:
            together = concat(batches)
            batches = [together.take(np.argsort(together.sync(), kind="stable"))]
        vertex, t = self._answers[query], self._least_cti(query)
        flow = Flow(batches, t if t > self._metrics[vertex].cti else None)
        if flow:
            self._metrics[vertex].cti = t
            _add(self._done, vertex, flow)

    def _least_cti(self, query: int) -> int:
        node = self.split.roots[query]
        fragment = next(f for f in self.split.fragments if any(n is node for n, _ in f.outputs))
        shards = range(1 if fragment.is_single else self.split.shards)
        return min(self._out_ctis.get((query, worker), BEGINNING) for worker in shards)

    def _fail(self, why: BaseException) -> None:
        """The workers are not where they should be: nothing goes on until a snapshot is restored."""
        self._failure = why if isinstance(why, RecensionError) else RecensionError(f"interrupted ({why!r})")

    def _require_whole(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ask(
        self, method: str, shared: Sequence[Any] = (), own: Sequence[Any] | None = None
    ) -> dict[int, Any]:
        """What a method of all workers gives, once they have done all steps."""
        if method in self._last_words:
            return self._last_words[method]
        self._flush()
        while self._crew.unanswered:
            self._collect()
        self._call(method, shared, own)
        return self._crew.collect()

    def check_end(self, sources: Collection[int]) -> None:
        self._ask("check_end", [[name for number, name in self._sources.items() if number in sources]])

    def receive_feedback(self, output: int, t: int) -> None:
        super().receive_feedback(output, t)
        if output in self._answers:
            self._ask("receive_feedback", [self._answers.index(output), t])

    def no_effect_before(self) -> dict[int, int]:
        found = {}
        for number, name in self._sources.items():
            times = [BEGINNING] if number in self._outputs else []
            for at, edge in self._edges[name].items():
                shards = range(1 if self.split.fragment_of(edge).is_single else self.split.shards)
                times += [self._no_effect.get((worker, at), BEGINNING) for worker in shards]
            found[number] = min(times, default=BEGINNING)
        return found

    def count_state_above(self, source: int) -> int:
        return sum(found.state_rows for shard in self._ask("measure").values() for found in shard)

    def take_dropped(self) -> dict[str, list[tuple[str, EventBatch]]]:
        dropped, self._dropped = self._dropped, {}
        return dropped

    def counts(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for shard in self._ask("counts").values():
            for name, counts in (pair for fragment in shard for pair in fragment.items()):
                found[name] = found.get(name, Counter()) + counts
        return found

    def _pass_on_warnings(self) -> None:
        """Say what an operator of any shard warns of, once."""
        for name, counters in (one for counted in self._counted.values() for one in counted):
            for warning in counters[_WARNINGS]:
                vertex = self._vertex(name, 0)
                if warning not in self._metrics[vertex].warnings:
                    self.warn(vertex, warning)

    def _vertex(self, name: str, place: int) -> int:
        """The vertex of the plan for the operator of that name, or one of those; an answer if none has it."""
        numbers = [n for n, vertex in enumerate(self._vertices) if vertex.name == name and vertex.operator]
        return numbers[min(place, len(numbers) - 1)] if numbers else self._answers[0]

    def counters(self) -> list[tuple[Any, ...]]:
        found = [dict(zip(COUNTERS, own, strict=True)) for own in super().counters()]
        for number, added in self._by_vertex(self._counted):
            line = found[number]
            for name, value in zip(COUNTERS, added, strict=True):
                if name not in ("cti", "warnings"):
                    line[name] += value
                elif name == "cti" and number not in self._answers:
                    line[name] = value if line[name] == BEGINNING else min(line[name], value)
        return [tuple(line.values()) for line in found]

    def _by_vertex(self, counted: Mapping[tuple[int, int], Any]) -> list[tuple[int, tuple[Any, ...]]]:
        """What operators of all shards have counted, each with the vertex of the plan that it is."""
        found, seen = [], Counter[tuple[int, str]]()
        for (worker, _), operators in sorted(counted.items(), key=lambda pair: pair[0]):
            for name, counters in operators:
                found.append((self._vertex(name, seen[worker, name]), counters))
                seen[worker, name] += 1
        return found

    def metrics(self, counters: Sequence[tuple[Any, ...]]) -> list[Metrics]:
        lines = [
            replace(own, **dict(zip(COUNTERS, counted, strict=True)))
            for own, counted in zip(self._metrics, counters, strict=False)
        ]
        for shard in self._ask("measure").values() if self._failure is None else ():
            seen = Counter[str]()
            for found in shard:
                line = lines[self._vertex(found.name, seen[found.name])]
                seen[found.name] += 1
                for name in ("state_rows", "state_bytes", "dropped", "late", "anomalies"):
                    setattr(line, name, getattr(line, name) + getattr(found, name))
                line.inputs, line.is_halted = found.inputs, line.is_halted or found.is_halted
                line.contradictions = dict(Counter(line.contradictions) + Counter(found.contradictions))
        return lines

    def parts(self) -> dict[str, Any]:
        workers = pa.table({WORKERS: [self.split.shards]})
        return {
            PLAN: plan_table(self._vertices, self._order),
            WORKERS: workers,
            **{
                f"{worker}/{name}": table
                for worker, shard in self._ask("snapshot").items()
                for name, table in shard.items()
            },
        }

    def require_same(self, chunks: Chunks) -> None:
        require_workers(chunks, self.split.shards)
        require_same_plan(chunks, plan_table(self._vertices, self._order))

    def restore(self, chunks: Chunks) -> None:
        self._crew.stop()
        self._start()
        own = [take_prefix(str(worker), chunks) for worker in range(self.split.shards)]
        for worker, ctis in self._ask("restore", (), own).items():
            self._out_ctis |= {(query, worker): t for query, t in ctis.items()}
        for query, vertex in enumerate(self._answers):
            self._metrics[vertex].cti = self._least_cti(query)


def _add(done: dict[int, Flow], number: int, flow: Flow) -> None:
    """More of what a vertex gives; a later CTI includes the earlier ones."""
    before = done.get(number, Flow())
    t = before.cti if flow.cti is None else flow.cti
    done[number] = Flow([*before.batches, *flow.batches], t, before.has_external or flow.has_external)


def _copies_rows(where: Addressed, rows: SourceRows) -> bool:
    """Does a worker copy the rows that it keeps, with all that belongs to their values?"""
    is_taken = rows.events is None or where.shards is not None
    return is_taken and (rows.events is None or all(_is_plain(field.type) for field in rows.events.schema))


def _is_plain(kind: pa.DataType) -> bool:
    t = pa.types
    return any(is_it(kind) for is_it in (t.is_primitive, t.is_boolean, t.is_string, t.is_binary))
