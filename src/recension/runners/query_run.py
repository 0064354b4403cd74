"""The queries of a session at work: from the elements of a source to the answers of the queries.

    data ── Intake.judge, take ──> valid elements ── Engine.step ──> what every vertex gives ──> Answers

Who may call, and when the session has failed, is the session's business (local.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, empty
from recension.core.errors import RecensionError, StreamError, describe_error, first_failure, first_line
from recension.core.memory import trim
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TICKS, OneKind, TimesInMessages, kind_of
from recension.core.wall_clock import Clock
from recension.lowering import PhysicalPlan, lower
from recension.operators.base import Chunks, Output
from recension.operators.pipeline import Flow, flow_of
from recension.operators.state.chunks import take_prefix
from recension.plan.durations import measures_in_units
from recension.plan.node import Node
from recension.plan.source import Source, Table, describe_unknown_source, times_in
from recension.plan.tables import find_followed
from recension.runners.answers import QueryAnswers
from recension.runners.engine import elements
from recension.runners.intake import Intake, Push
from recension.runners.merging import MergePorts
from recension.runners.metrics import Metrics, NoCtiWarning, dropped_count, late_count
from recension.runners.paced_partitions import PacedPartitions
from recension.runners.recorder import EdgeChoice, Recorder, StepObserver
from recension.runners.session_lock import RefusedError
from recension.runners.sub_streams import Arrival, IntoPartition, describe_progress
from recension.runners.table_intake import TableIntake
from recension.runners.workload import open_engine

TIMES: Final = "times"
FOLLOWED: Final = "followed"

Queries: TypeAlias = Mapping[str, Node]


class QueryRun:
    """The plan of some queries, the intakes of their sources, the engine and the answers."""

    def __init__(
        self,
        queries: Queries,
        batch_size: int,
        clock: Clock,
        history_limit: int | None,
        times: OneKind,
        keep: int = 0,
        workers: int = 1,
    ) -> None:
        self._batch_size, self._clock, self.times = batch_size, clock, times
        self.plan: PhysicalPlan = lower(queries)
        self.engine, self.work = open_engine(self.plan, workers)
        self.name_times(times_in(queries.values()))
        self.intakes: dict[str, Intake] = {}
        # By vertex, the last CTI it gave: what tables that may be read again follow.
        self._ctis: dict[int, int] = {}
        self._open_intakes()
        self.answers = QueryAnswers(self.plan.queries, history_limit, clock, keep)
        self._heard: dict[str, int] = {}
        self._cti_warnings: dict[str, NoCtiWarning] = {}
        self.closes_inputs = False
        # What the last push gives, in batches, as steps that read rows only have seen it.
        self._looked: list[Flow] = []
        self._observer: StepObserver | None = None
        self._has_begun = False

    def settle(self) -> None:
        """Wait until all that was fed has been worked through."""
        if flows := self.engine.settle():
            self._collect(flows)

    def require_one_process(self, what: str) -> None:
        """Refuse what needs all steps in this process."""
        if self.work.split is not None:
            shards = self.work.split.shards
            raise RecensionError(f"{what}: the session runs in {shards} workers; use one with workers=1")

    def record(self, path: str | PathLike[str], edges: EdgeChoice, limit: str | int) -> Recorder:
        """Record what comes on some edges from now on."""
        self.require_one_process("record")
        known = self._observer
        if isinstance(known, Recorder) and known.stopped is None:
            raise RecensionError(f"record: the session is recorded in {known.path}: close that first")

        def measure() -> list[Metrics]:
            return self.metrics(self.engine.counters())

        is_whole = not self._has_begun
        recorder = Recorder(path, edges, limit, self._clock, self.plan, measure, is_whole=is_whole)
        self._observer = recorder
        return recorder

    def observe(self, observer: StepObserver | None) -> None:
        """Let somebody see what comes on every edge from now on, or nobody."""
        self.require_one_process("observe")
        self._observer = observer

    def publish(self) -> None:
        """What came out of a push can be read, and is recorded."""
        self.answers.publish()
        if self._observer is not None:
            self._observer.publish(self.time_type)

    def end_recording(self, reason: str) -> None:
        """The streams do not go on from here."""
        if self._observer is not None:
            self._observer.end(reason)

    def _open_intakes(self) -> None:
        """An intake for every source; those of sources that are no longer read go."""
        self.unchecked_sources, self._without_external = (
            self.plan.unchecked_sources,
            self.plan.without_external,
        )
        self.intakes = {
            name: self.intakes.get(name) or self._open_intake(source)
            for name, source in self.plan.sources.items()
        }
        for name, intake in self.intakes.items():
            intake.feed_paced(self.plan.paced_vertices(name))
        self._followed = {
            name: [self.plan.numbers[node] for node in nodes]
            for name, nodes in find_followed(self.plan.queries.values()).items()
        }

    def _open_intake(self, source: Source) -> Intake:
        checks_orphans = source.name not in self.unchecked_sources
        if isinstance(source, Table):
            return TableIntake(source, check_orphans=checks_orphans, times=self.times)
        in_units = measures_in_units(self.plan.queries.values())
        return Intake(source, check_orphans=checks_orphans, times=self.times, in_units=in_units)

    def intake(self, source: str) -> Intake:
        """The intake of a source; an error if there is no such source."""
        if source not in self.intakes:
            raise RecensionError(describe_unknown_source(source, self.intakes, "the queries read"))
        return self.intakes[source]

    def name_times(self, named: Iterable[tuple[str, int]], times: OneKind | None = None) -> None:
        """Times that a query or a call names are of the kind of all others."""
        for where, ticks in named:
            (times or self.times).note_named(kind_of(ticks), where)

    @property
    def time_type(self) -> pa.DataType:
        """How the times of the answers are written: as those of the inputs."""
        return TICKS if self.times.kind is None else self.times.kind

    def check_push(self, source: str, push: Push) -> None:
        """Refuse what no step can take in, where that is certain, while nothing has changed."""
        self.refuse_external(source, push.batch)
        if push.is_only_ctis:
            self.check_end(source, push.cti)
        elif self.intakes[source].takes_all and push.cti == FOREVER:
            for vertex in self.vertices_of([source]):
                self.engine.check_last(vertex, push.stream)

    def look(self, source: str, push: Push) -> None:
        """Refuse a row that a step cannot compute anything of, while nothing has changed.

        Steps that read rows only work here: what they give is kept for `feed`, if it gets the same rows.
        """
        self._forget_looked()
        if self.plan.sources[source].are_rows or push.is_only_ctis or not len(push.batch):
            return
        vertex, parts = self.plan.source_vertices[source], self._cut(push.batch)
        with TimesInMessages(self.times.kind if push.kind is None else push.kind):
            for number, flow in enumerate(map(flow_of, parts)):
                changes = [batch.filter(batch.is_data()) for batch in flow.batches]
                try:
                    for batch in changes:
                        self.engine.look(vertex, batch)
                except Exception as why:
                    self.engine.forget_looked()
                    if not self.intakes[source].takes_all:  # perhaps a row that is left out
                        return
                    raise self._refuse_row(source, push, number * self._batch_size, changes[0], why) from why
                self._looked.append(flow)
        if push.placed is not None or self.plan.sources[source].on_violation == "adjust":
            self._forget_looked()

    def _forget_looked(self) -> None:
        if self._looked:
            self._looked = []
            self.engine.forget_looked()

    def _refuse_row(
        self, source: str, push: Push, start: int, changes: EventBatch, why: Exception
    ) -> StreamError:
        """The error for the first row that fails; ``changes`` are the elements from row ``start`` on."""
        vertex = self.plan.source_vertices[source]

        def fails(size: int) -> bool:
            nonlocal why
            try:
                self.engine.look(vertex, changes.slice(0, size))
            except Exception as own:
                why = own
                return True
            finally:
                self.engine.forget_looked()
            return False

        at = first_failure(len(changes), fails)
        row = start + int(np.flatnonzero(push.batch.is_data()[start:])[at])
        number = row if push.placed is None else int(push.placed.row[row])
        reason = first_line(why) if isinstance(why, RecensionError) else describe_error(why)
        return StreamError(reason, file=source, row=push.first_row + number)

    def _cut(self, batch: EventBatch) -> list[EventBatch]:
        """In batches of the usual size."""
        if len(batch) <= self._batch_size:
            return [batch]
        starts = range(0, len(batch), self._batch_size)
        return [batch.slice(start, min(start + self._batch_size, len(batch))) for start in starts]

    def refuse_external(self, source: str, batch: EventBatch) -> None:
        """Refuse external CTIs that would meet a step which cannot make sense of them."""
        has_external = batch.last_kind >= EXTERNAL_CTI and bool((batch.kind == EXTERNAL_CTI).any())
        if has_external and self.work.counts_external_ctis_alone(source):
            raise RecensionError(
                f"{source}: an external cti came, which counts the elements of all workers: declare "
                f"rc.source({source!r}, ..., external_ctis=True)"
            )
        if has_external and source in self._without_external:
            raise RecensionError(
                f"{source}: an external cti came, but a step above the source cannot take it in: declare "
                f"rc.source({source!r}, ..., external_ctis=True), or put .finalize() onto the source itself"
            )

    def check_end(self, source: str, t: int) -> None:
        """Refuse the end of a source that an operator cannot take, while nothing has changed."""
        if t == FOREVER:
            closed = {name for name, intake in self.intakes.items() if intake.is_closed}
            self.engine.check_end(self.vertices_of(closed | {source}))

    def vertices_of(self, sources: Iterable[str]) -> list[int]:
        """The vertices that these sources feed."""
        found = ([self.plan.source_vertices[name], *self.plan.paced_vertices(name)] for name in sources)
        return [vertex for vertices in found for vertex in vertices]

    def take(self, source: str, push: Push) -> list[EventBatch]:
        """Take in what was judged: its valid elements in batches. Nothing at all is one empty batch."""
        try:
            batch = self.intakes[source].take(push)
        except StreamError as why:
            raise RefusedError(why) from None
        if len(batch) != len(push.batch):  # rows were left out
            self._forget_looked()
        return self._cut(batch)

    def feed(self, source: str, batches: Iterable[EventBatch]) -> None:
        """Let the engine work through valid elements, a step for each batch."""
        vertex = self.plan.source_vertices[source]
        looked = iter(self._looked)
        if self.plan.sources[source].are_rows:
            batches = (part for batch in batches for part in _split_after_ctis(batch))
        paced = {at: flow_of(batch) for at, batch in self.intakes[source].take_paced().items()}
        for batch in batches:
            self._tick_steps()
            with TimesInMessages(self.times.kind):
                given = next(looked, None) or flow_of(batch)
                found = self.engine.step({vertex: given, **paced})
            self._collect(found)
            self._warn_without_cti(source, vertex)
            paced = {}
        self._forget_looked()
        self._follow_streams()

    def _follow_streams(self) -> None:
        """The CTIs of tables that may be read again follow those of the streams they are joined with."""
        for table in self._followed:
            intake = self.intakes[table]
            if isinstance(intake, TableIntake) and intake.may_follow:
                t = min(self._reached(table))
                if t > intake.cti:
                    self.feed(table, self.take(table, intake.advance(t)))

    def _reached(self, table: str) -> list[int]:
        """How far each of the steps is that a table follows."""
        return [self._ctis.get(vertex, BEGINNING) for vertex in self._followed[table]]

    def arrive(self, source: str, partition: IntoPartition | None = None, **options: Any) -> Arrival:
        """When data comes in at a source, if that matters, and of which partition it is."""
        now = self._clock() if self.intakes[source].is_clocked else 0
        return Arrival(partition, now, **options)

    @property
    def is_clocked(self) -> bool:
        """Does a step or a source count by the clock?"""
        return self.engine.is_clocked or any(intake.is_clocked for intake in self.intakes.values())

    def tick(self) -> None:
        """Look at the wall clock, if anything counts by it: what has waited long enough comes out."""
        self.settle()
        self._tick_steps()
        for source, intake in self.intakes.items():
            if intake.is_clocked:
                batch = intake.tick(self._clock())
                if batch is not None or intake.has_paced:
                    columns = self.plan.sources[source].columns
                    self.feed(source, [empty(columns) if batch is None else batch])

    def _tick_steps(self) -> None:
        if self.engine.is_clocked:
            self._collect(self.engine.step({}, self._clock()))

    def _collect(self, flows: Mapping[int, Flow]) -> None:
        """Keep what the queries gave; sources forget what can no longer matter."""
        self._has_begun = True
        if self._observer is not None:
            self._observer.stage(flows)
        self._ctis |= {vertex: flow.cti for vertex, flow in flows.items() if flow.cti is not None}
        for name, vertex in self.plan.query_vertices.items():
            if vertex in flows:
                wanted = self.engine.wanted_outside(vertex, flows[vertex])
                self.answers.stage(name, elements(wanted, self.plan.queries[name].schema))
        since = self.engine.no_effect_before()
        for source, intake in self.intakes.items():
            intake.forget_before(since.get(self.plan.source_vertices[source], BEGINNING))
        trim()

    def warn(self, warning: str) -> None:
        """Say something of the session in the metrics, at its first query, and in the log."""
        self.engine.warn(next(iter(self.plan.query_vertices.values())), warning)

    def _warn_without_cti(self, source: str, vertex: int) -> None:
        given, intake = self.engine.source_metrics(vertex), self.intakes[source]
        if given.cti > BEGINNING or self.closes_inputs or intake.is_table:
            return

        def count_held() -> int:
            return intake.state_rows() + self.engine.count_state_above(vertex)

        if (warning := self._cti_warnings.get(source)) is None:
            warning = self._cti_warnings[source] = NoCtiWarning()
        if message := warning.check(source, given.events_out, count_held):
            self.engine.warn(vertex, message)

    def keep_dropped(self) -> None:
        """Dropped elements are kept for every query until it is read."""
        dropped = {source: intake.take_dropped() for source, intake in self.intakes.items()}
        for at, paced in self._paced_steps():
            if gone := paced.take_dropped():
                dropped.setdefault(self.plan.vertices[at].name, []).extend(gone)
        self.answers.add_dropped(dropped | self.engine.take_dropped())

    def rewire(self, ports: MergePorts, answer: Output) -> None:
        """Go on with other inputs of a merge, which has given this for the change."""
        self.keep_dropped()
        self.engine.rewire(self.plan.vertices)
        ports.forget(self.engine.running_vertices)
        self._open_intakes()
        if self._observer is not None:
            self._observer.rewire()
        if len(answer.batch) or answer.cti is not None:
            given = Flow([answer.batch] if len(answer.batch) else [], answer.cti)
            self._collect(self.engine.step({ports.vertex: given}))

    def receive_feedback(self, query: str, t: int) -> None:
        """Those who read a query do not want events that finally end before ``t``."""
        self._heard[query] = max(t, self._heard.get(query, BEGINNING))
        vertex = self.plan.query_vertices[query]
        readers = [name for name, number in self.plan.query_vertices.items() if number == vertex]
        self.engine.receive_feedback(vertex, min(self._heard.get(name, BEGINNING) for name in readers))

    def metrics(self, counters: Sequence[tuple[Any, ...]]) -> list[Metrics]:
        """What every operator had done when these were its counters, with the state it holds now."""
        metrics = self.engine.metrics(counters)
        for name, intake in self.intakes.items():
            if (number := self.plan.source_vertices[name]) < len(metrics):
                line = metrics[number]
                line.dropped, line.late = dropped_count(intake.counts), late_count(intake.counts)
                line.state_rows, line.state_bytes = intake.state_rows(), intake.state_bytes()
                line.partitions, line.held_back_by = intake.progress(), intake.held_back_by()
            for number, paced in intake.paced_steps().items():
                if number < len(metrics):
                    line = metrics[number]
                    line.dropped, line.late = dropped_count(paced.counts), late_count(paced.counts)
                    line.state_rows, line.state_bytes = paced.state_rows(), paced.state_bytes()
                    line.partitions, line.held_back_by = paced.progress(), paced.held_back_by()
        return metrics

    def counts(self) -> dict[str, Counter[str]]:
        """Per source and operator, the elements dropped, moved or ignored so far, by reason."""
        counts = {name: intake.counts for name, intake in self.intakes.items()} | self.engine.counts()
        for at, paced in self._paced_steps():
            name = self.plan.vertices[at].name
            counts[name] = counts.get(name, Counter()) + paced.counts
        return counts

    def describe_partitions(self, node: Node) -> list[str]:
        """How far the partitions of a source are, or those of a step that goes by them."""
        if isinstance(node, Source) and node.partition:
            sub_streams: Intake | PacedPartitions = self.intakes[node.name]
        elif self.plan.numbers[node] in self.plan.paced:
            sub_streams = dict(self._paced_steps())[self.plan.numbers[node]]
        else:
            return []
        return describe_progress(sub_streams.progress(), sub_streams.held_back_by(), self.times.kind)

    def _paced_steps(self) -> list[tuple[int, PacedPartitions]]:
        return [pair for intake in self.intakes.values() for pair in intake.paced_steps().items()]

    def parts(self) -> dict[str, Any]:
        """The state of operators and sources, see `Operator.parts`."""
        chunks = {f"operators/{name}": table for name, table in self.engine.parts().items()}
        for source, intake in self.intakes.items():
            chunks |= {f"sources/{source}/{name}": table for name, table in intake.snapshot().items()}
        if self._followed:
            chunks[FOLLOWED] = pa.table({table: [self._reached(table)] for table in self._followed})
        return chunks | {TIMES: self.times.snapshot()}

    def require_same(self, chunks: Chunks) -> None:
        """Refuse a snapshot of other steps; nothing changes."""
        self.engine.require_same(take_prefix("operators", chunks))

    def restore(self, chunks: Chunks) -> None:
        """Take back a snapshot, and the histories of the answers if it has them; all else has been read."""
        self._has_begun = True
        self.end_recording("the session was restored from a snapshot")
        self.engine.restore(take_prefix("operators", chunks))
        for source, intake in self.intakes.items():
            intake.restore(take_prefix(f"sources/{source}", chunks))
        self.keep_dropped()
        self.answers.restore(take_prefix("answers", chunks))
        self._restore_ctis(chunks)
        if TIMES in chunks:
            self.times.restore(chunks[TIMES])

    def _restore_ctis(self, chunks: Chunks) -> None:
        """The CTIs that tables follow; snapshots of before have only those of the tables."""
        self._ctis = {}
        for table, vertices in self._followed.items():
            known = chunks[FOLLOWED][table][0].as_py() if FOLLOWED in chunks else None
            self._ctis |= dict(zip(vertices, known or [self.intakes[table].cti] * len(vertices), strict=True))


def _split_after_ctis(batch: EventBatch) -> list[EventBatch]:
    """The batch in parts that have CTIs at their ends only: which rows come after one matters."""
    is_cti = batch.kind == CTI
    ends = np.flatnonzero(is_cti & ~np.append(is_cti[1:], False)) + 1
    cuts = [0, *ends.tolist()]
    cuts += [len(batch)] if cuts[-1] < len(batch) or not len(batch) else []
    return [batch.slice(start, stop) for start, stop in pairwise(cuts)]
