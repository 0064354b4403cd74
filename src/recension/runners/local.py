"""The local engine: push-based, columnar, in this process.

A session holds one or more queries over named sources. Whatever two of them have in common is computed
once. Nothing is lost on the way in: what the sources' policies leave out is counted and kept.

A push is checked as a whole before any of it is taken in, and its output can be read once all of it has
been worked through. Operators change their state in place: after an error in a step the session refuses
everything until a snapshot is restored. One thread at a time may be inside (see guard.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core import wall_clock
from recension.core.batch import EXTERNAL_CTI, EventBatch
from recension.core.errors import RecensionError, StreamError, TimeError, nearest
from recension.core.formats.reader import StreamReader
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER, TimeLike, instant
from recension.core.time_kind import TICKS, OneKind, kind_of, times_in_messages
from recension.core.wall_clock import Clock
from recension.lowering import PhysicalPlan, chosen, lower
from recension.operators.base import Chunks, Output
from recension.operators.pipeline import Flow, split
from recension.plan.explain import explain
from recension.plan.node import Node
from recension.plan.source import times_in
from recension.runners.answers import HISTORY_LIMIT, Answer
from recension.runners.engine import Engine, dropped_count, elements
from recension.runners.guard import Guarded, exclusive
from recension.runners.intake import Data, Intake, Push
from recension.runners.merging import MergePorts
from recension.runners.metrics import Metrics
from recension.runners.result import Result
from recension.runners.seal import opened, sealed
from recension.runners.session_identity import CHUNK, identity_of, require_same_session
from recension.runners.silence import Silence

BATCH_SIZE = 1 << 16
TIMES = "times"

Queries: TypeAlias = Mapping[str, Node]
# A stream of the API, which holds its plan, or a plan.
Joining: TypeAlias = Any
Dropped: TypeAlias = dict[str, list[tuple[str, EventBatch]]]


class Session(Guarded):
    """Queries that run as their inputs are pushed.

    Where a query counts by the wall clock, ``clock`` is looked at whenever something is pushed or read. The
    history of each answer is kept for `history` until it has more than ``history_limit`` events; None keeps
    it whatever its size, 0 never.
    """

    def __init__(
        self,
        queries: Queries,
        batch_size: int = BATCH_SIZE,
        clock: Clock = wall_clock.now,
        history_limit: int | None = HISTORY_LIMIT,
        times: OneKind | None = None,
    ) -> None:
        super().__init__()
        if not _is_count(batch_size, 1):
            raise RecensionError(f"batch_size is a number of elements from 1, not {batch_size!r}")
        if not callable(clock):
            raise RecensionError(f"clock is a function that gives microseconds since 1970, not {clock!r}")
        if history_limit is not None and not _is_count(history_limit, 0):
            raise RecensionError(
                f"history_limit is a number of events from 0, or None, not {history_limit!r}"
            )
        self._batch_size = batch_size
        self._written = dict(queries)
        self._plan: PhysicalPlan = lower(queries)
        self._engine = Engine(self._plan.vertices, self._plan.query_vertices.values())
        self._clock = clock
        self._merges: dict[str, MergePorts] = {}
        self._times = times or OneKind()
        self._name_times(self._times, times_in(queries.values()))
        self._intakes: dict[str, Intake] = {}
        self._open_intakes()
        self._answers = {
            name: Answer(name, node.schema, history_limit) for name, node in self._plan.queries.items()
        }
        self._staged: dict[str, list[EventBatch]] = {}
        self._aside: dict[str, Dropped] = {name: {} for name in queries}
        self._heard: dict[str, int] = {}
        self._silences: dict[str, Silence] = {}
        self.closes_inputs = False
        """Are sources closed when their inputs end? Then they need not send CTIs before."""

    @property
    def sources(self) -> list[str]:
        """The names to push to."""
        return list(self._intakes)

    def _open_intakes(self) -> None:
        """An intake for every source; those of sources that are no longer read go."""
        self.unchecked, self._without_external = self._plan.unchecked, self._plan.without_external
        self._intakes = {
            name: self._intakes.get(name)
            or Intake(source, check_orphans=name not in self.unchecked, times=self._times)
            for name, source in self._plan.sources.items()
        }

    @exclusive
    def attach(self, stream: Joining, from_time: TimeLike = BEGINNING, query: str | None = None) -> None:
        """Let a stream join the merge of a query while it runs.

        The stream promises to be complete for every event that ends at ``from_time`` or later; until the
        output has come that far, it moves nothing. Its sources, if new, can be pushed to from now on. A
        stream that was detached and is attached again starts afresh: it may repeat what it has sent before.
        """
        ports = self._ports(query)
        plan, since = _plan(stream), _instant(from_time, "attach, from_time")
        named = [("attach, from_time", since), *times_in([plan])]
        self._name_times(self._times.copy(), named)
        answer = ports.attach(plan, since)
        # A stream that was refused says nothing of the kind of times.
        self._name_times(self._times, named)
        with self._step():
            self._rewired(ports, answer)

    @exclusive
    def detach(self, stream: Joining | str, query: str | None = None) -> None:
        """Let a stream, or the source of that name, leave the merge of a query; sources only it reads go."""
        ports = self._ports(query)
        answer = ports.detach(stream if isinstance(stream, str) else _plan(stream))
        with self._step():
            self._rewired(ports, answer)

    @exclusive
    def state_of(self, stream: Joining | str, query: str | None = None) -> str:
        """Whether an input of the merge of a query is ``joining`` or has ``joined``."""
        return self._ports(query).state_of(stream if isinstance(stream, str) else _plan(stream))

    @exclusive
    def states(self, query: str | None = None) -> list[str]:
        """The state of every stream that ever joined the merge of a query, in the order they came."""
        return [str(state) for state in self._ports(query).merge.states()]

    def _ports(self, query: str | None) -> MergePorts:
        name = self._query(query)
        if name not in self._merges:
            self._merges[name] = MergePorts(self._plan, name, self._written[name])
        return self._merges[name]

    def _rewired(self, ports: MergePorts, answer: Output) -> None:
        self._set_aside()
        self._engine.rewire(self._plan.vertices)
        ports.forget(self._engine.running)
        self._open_intakes()
        if len(answer.batch) or answer.cti is not None:
            given = Flow([answer.batch] if len(answer.batch) else [], answer.cti)
            self._collect(self._engine.give(ports.vertex, given))

    @exclusive
    def push(self, source: str, data: Data) -> None:
        """Feed a source: a table, a frame, a history, a result, or elements.

        Data that is refused is refused whole, and the session goes on as if it had not been pushed. After an
        error in a step of a query the session refuses everything but `restore`.
        """
        intake = self._intake(source)
        with self.advising(source):
            push = intake.judge(data)
            self._refuse_external(source, push.batch)
            if push.is_promise:
                self._check_end(source, int(push.batch.vs.max()))
            elif intake.takes_all:
                self._engine.check_last(self._plan.source_vertices[source], *split(push.batch))
            self._take(source, push)

    @contextmanager
    def advising(self, source: str) -> Iterator[None]:
        """Errors in the elements of a source say what to do about them."""
        try:
            yield
        except StreamError as why:
            raise self._plan.advised(source, why) from None

    def _take(self, source: str, push: Push) -> None:
        """Take in what was judged, unless its elements are refused; work through it batch by batch."""
        refused: StreamError | None = None
        with self._step():
            try:
                batch = self._intake(source).take(push)
            except StreamError as why:
                refused = why
            else:
                # Nothing at all is fed as one empty batch: the clock is looked at.
                for start in range(0, max(len(batch), 1), self._batch_size):
                    self._feed(source, batch.slice(start, min(start + self._batch_size, len(batch))))
        if refused is not None:
            raise refused

    @exclusive
    def adopt(self, source: str, reader: StreamReader) -> None:
        """A source is fed from a reader, which makes the checks."""
        self._intake(source).adopt(reader)

    @exclusive
    def push_checked(self, source: str, batch: EventBatch, reader: StreamReader) -> None:
        """Feed a source from a reader, which has made the checks already."""
        self._refuse_external(source, batch)
        self._intake(source).adopt(reader)
        with self._step():
            self._feed(source, batch)

    @exclusive
    def feed(self, source: str, batch: EventBatch) -> None:
        """Feed a source with elements that are known to be valid."""
        self._refuse_external(source, batch)
        with self._step():
            self._feed(source, batch)

    @exclusive
    def advance(self, source: str, t: TimeLike) -> None:
        """Promise that nothing before ``t`` changes any more at this source."""
        intake, until = self._intake(source), _instant(t, where := f"{source}: advance")
        self._times.require(kind_of(until), where)
        push = intake.advance(until)
        self._check_end(source, until)
        self._name_times(self._times, [(where, until)])
        self._take(source, push)

    @exclusive
    def close(self) -> None:
        """Promise that nothing more comes at any source."""
        self._engine.check_end(list(self._plan.source_vertices.values()))
        pushes = {source: intake.advance(FOREVER) for source, intake in self._intakes.items()}
        with self._step():
            for source, push in pushes.items():
                self._feed(source, self._intakes[source].take(push))

    def _check_end(self, source: str, t: int) -> None:
        """Refuse the end of a source that an operator cannot take, while nothing has changed."""
        if t == FOREVER:
            closed = {name for name, intake in self._intakes.items() if intake.is_closed}
            self._engine.check_end([self._plan.source_vertices[name] for name in closed | {source}])

    @exclusive
    def hear(self, t: TimeLike, query: str | None = None) -> None:
        """Those who read a query do not want events that finally end before ``t``: they are spared.

        A merge of replicas says so of those that lag (`rc.merge`, ``feedback``). Where an answer is never
        lengthened such events are left out of it; state that only serves them is dropped.
        """
        name, until = self._query(query), _instant(t, "hear")
        self._name_times(self._times, [("hear", until)])
        with self._step():
            self._heard[name] = max(until, self._heard.get(name, BEGINNING))
            vertex = self._plan.query_vertices[name]
            readers = [one for one, number in self._plan.query_vertices.items() if number == vertex]
            self._engine.hear(vertex, min(self._heard.get(one, BEGINNING) for one in readers))

    @exclusive
    def tick(self) -> None:
        """Look at the wall clock: what has waited long enough comes out. Reading does this too."""
        with self._step():
            self._tick()

    def _tick(self) -> None:
        if self._engine.is_clocked:
            self._collect(self._engine.tick(self._clock()))

    @exclusive
    def read(self, query: str | None = None) -> Result:
        """What a query gave since the last reading; its name may be left out if it is the only one.

        So it is with the elements left out: a result has those since the last reading of its query. The
        counts are of all. What is true now, whatever was read, is `history`.
        """
        name = self._query(query)
        with self._step():
            self._tick()
        self._set_aside()
        is_whole = not self._answers[name].was_read
        batches, node = self._answers[name].take_unread(), self._plan.queries[name]
        dropped, self._aside[name] = self._aside[name], {}
        metrics, time_type = self._metrics(), self._time_type()
        return Result(batches, node.schema, node.properties, time_type, metrics, dropped, is_whole)

    @exclusive
    def history(self, query: str | None = None) -> History:
        """What is true now by a query's answer so far, whatever was read of it.

        >>> import recension as rc
        >>> s = rc.source("s", {"user": "string"})
        >>> live = rc.session(s.agg(n=rc.count(), speculate="eager"))
        >>> live.push("s", [rc.Insert({"user": "ann"}, 1, 5)])
        >>> _ = live.read()
        >>> live.push("s", [rc.Insert({"user": "bob"}, 3, 9)])
        >>> live.history().show()
        _vs  _ve  n
        1    3    1
        3    5    2
        5    9    1
        """
        name = self._query(query)
        with self._step():
            self._tick()
        return replace(self._answers[name].history(), time_type=self._time_type())

    def _time_type(self) -> pa.DataType:
        """How the times of the answers are written: as those of the inputs."""
        return TICKS if self._times.kind is None else self._times.kind

    @exclusive
    def metrics(self) -> list[Metrics]:
        """What every operator has done so far."""
        return self._metrics()

    def _metrics(self) -> list[Metrics]:
        metrics = self._engine.metrics()
        for name, intake in self._intakes.items():
            line = metrics[self._plan.source_vertices[name]]
            line.dropped = dropped_count(intake.counts)
            line.state_rows, line.state_bytes = intake.state_rows(), intake.state_bytes()
        return metrics

    @exclusive
    def explain(self, query: str | None = None) -> str:
        """The plan of a query as it runs: what its steps have chosen by now."""

        def words(node: Node) -> str | None:
            operator = self._plan.vertices[self._plan.numbers[node]].operator
            return "\n".join(operator.words() if operator else []) or chosen(node)

        return explain([self._plan.queries[self._query(query)]], annotate=words)

    @exclusive
    def counts(self) -> dict[str, Counter[str]]:
        """Per source and operator, the elements left out, moved or ignored so far, by reason."""
        return {name: intake.counts for name, intake in self._intakes.items()} | self._engine.counts()

    @exclusive
    def is_table(self, source: str) -> bool:
        """Was the last data pushed to this source a plain table?"""
        return self._intake(source).is_table

    @exclusive
    def rows_seen(self, source: str) -> int:
        """How many rows were pushed to this source: messages count from the first."""
        return self._intake(source).rows

    @exclusive
    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the session as named Arrow tables, with histories and the counts of what was left out.

        Read first: output that was not read, and the elements left out themselves, are not part of it. The
        tables carry a checksum; they may be stored as Parquet, Arrow IPC or Feather.
        """
        histories = {
            f"answers/{name}/{chunk}": table
            for name, answer in self._answers.items()
            for chunk, table in answer.snapshot().items()
        }
        return sealed({CHUNK: identity_of(self._plan), **histories, **self._state()})

    @exclusive
    def state(self) -> dict[str, pa.Table]:
        """What `snapshot` has of operators and sources, for who keeps it safe by other means."""
        return self._state()

    def _state(self) -> dict[str, pa.Table]:
        chunks = {f"operators/{name}": table for name, table in self._engine.snapshot().items()}
        for source, intake in self._intakes.items():
            chunks |= {f"sources/{source}/{name}": table for name, table in intake.snapshot().items()}
        return chunks | {TIMES: self._times.snapshot()}

    def restore(self, chunks: Chunks) -> None:
        """Become the session whose snapshot this is; the queries must be the same.

        A snapshot that is damaged, or of another session, is refused, and nothing changes. A session that has
        failed goes on from here.
        """
        with self._guard.inside("restore", even_failed=True):
            own = opened(chunks)
            require_same_session(own, self._plan)
            self._engine.require_same(_below("operators/", own))
            self._load(own)

    def load_state(self, chunks: Chunks) -> None:
        """Become the session whose `state` this is."""
        with self._guard.inside("load_state", even_failed=True):
            self._engine.require_same(_below("operators/", chunks))
            self._load(chunks)

    def _load(self, chunks: Chunks) -> None:
        with self._guard.step():
            try:
                self._set_state(chunks)
            except RecensionError:
                raise
            except Exception as why:
                reason = (str(why).splitlines() or [""])[0]
                told = f"the snapshot could not be restored: {type(why).__name__}: {reason}"
                raise RecensionError(told) from why
        self._guard.mend()

    def _set_state(self, chunks: Chunks) -> None:
        self._engine.restore(_below("operators/", chunks))
        for source, intake in self._intakes.items():
            intake.restore(_below(f"sources/{source}/", chunks))
        self._set_aside()
        for name, answer in self._answers.items():
            answer.restore(_below(f"answers/{name}/", chunks))
            self._aside[name] = {}
        self._staged = {}
        if TIMES in chunks:
            self._times.restore(chunks[TIMES])

    @contextmanager
    def _step(self) -> Iterator[None]:
        """What comes out in here can be read once all of it has gone well."""
        with self._guard.step():
            yield
            staged, self._staged = self._staged, {}
            for name, batches in staged.items():
                self._answers[name].add(batches)

    def _refuse_external(self, source: str, batch: EventBatch) -> None:
        if source in self._without_external and bool((batch.kind == EXTERNAL_CTI).any()):
            raise RecensionError(
                f"{source}: an external cti came, but a step above the source cannot take it in: declare "
                f"rc.source({source!r}, ..., external_ctis=True), or put .finalize() onto the source itself"
            )

    def _feed(self, source: str, batch: EventBatch) -> None:
        self._tick()
        changes, t = split(batch)
        with times_in_messages(self._times.kind):
            flows = self._engine.step(self._plan.source_vertices[source], changes, t)
        self._collect(flows)
        self._notice_silence(source)

    def _notice_silence(self, source: str) -> None:
        vertex = self._plan.source_vertices[source]
        taken, intake = self._engine.taken_in(vertex), self._intakes[source]
        if taken.cti > BEGINNING or self.closes_inputs or intake.is_table:
            return

        def held() -> int:
            return intake.state_rows() + self._engine.held_above(vertex)

        if warning := self._silences.setdefault(source, Silence()).note(source, taken.events_out, held):
            self._engine.warn(vertex, warning)

    def _set_aside(self) -> None:
        """Elements left out are kept for every query until it is read."""
        dropped = {source: intake.take_dropped() for source, intake in self._intakes.items()}
        for where, elements_out in (dropped | self._engine.take_dropped()).items():
            for aside in self._aside.values() if elements_out else ():
                aside.setdefault(where, []).extend(elements_out)

    def _collect(self, flows: Mapping[int, Flow]) -> None:
        for name, vertex in self._plan.query_vertices.items():
            if vertex in flows:
                wanted = self._engine.wanted(vertex, flows[vertex])
                given = elements(wanted, self._plan.queries[name].schema)
                self._staged.setdefault(name, []).extend(given)
        settled = self._engine.settled()
        for source, intake in self._intakes.items():
            intake.forget_before(settled.get(self._plan.source_vertices[source], BEGINNING))

    @staticmethod
    def _name_times(times: OneKind, named: Iterable[tuple[str, int]]) -> None:
        """Times that a query or a call names are of the kind of all others."""
        for where, ticks in named:
            times.note_named(kind_of(ticks), where)

    def _intake(self, source: str) -> Intake:
        return self._intakes[self._known(source)]

    def _known(self, source: str) -> str:
        if source not in self._intakes:
            known = list(self._intakes)
            raise RecensionError(
                f"no source {source!r}{nearest(source, known)}; the queries read {', '.join(known)}"
            )
        return source

    def _query(self, name: str | None) -> str:
        names = list(self._answers)
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            listed = ", ".join(names)
            raise RecensionError(
                f"the session runs {listed}: say which query, for example read({names[0]!r})"
            )
        if name not in names:
            raise RecensionError(
                f"no query {name!r}{nearest(name, names)}; the session runs {', '.join(names)}"
            )
        return name


def _instant(t: TimeLike, where: str) -> int:
    try:
        return instant(t)
    except TimeError as why:
        raise TimeError(f"{where}: {why}") from None


def _is_count(given: object, least: int) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= least


def _plan(stream: Joining) -> Node:
    plan = getattr(stream, "plan", stream)
    if not isinstance(plan, Node):
        raise RecensionError(f"a stream is needed here, not {stream!r}")
    return plan


def _below(prefix: str, chunks: Chunks) -> dict[str, pa.Table]:
    return {name.removeprefix(prefix): table for name, table in chunks.items() if name.startswith(prefix)}
