"""The local engine: push-based, columnar, in this process.

A session runs one or more queries over named sources. Common steps of two queries are computed once. Elements
that the policies of sources drop are counted and kept.

A push is checked as a whole before any of it is processed, and its output can be read once all of it has been
processed. Operators change their state in place: after an error in a step the session refuses every call
until a snapshot is restored. One thread at a time may be inside (see session_lock.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral
from os import PathLike
from typing import Any, Self, TypeAlias

import pyarrow as pa

from recension.core import wall_clock
from recension.core.batch import EventBatch
from recension.core.change_log import tables_of
from recension.core.errors import RecensionError, StreamError, TimeError, describe_error
from recension.core.formats.reader import StreamFiles
from recension.core.formats.versions import time_of_belief
from recension.core.history import History
from recension.core.memory_pool import MemoryPool, MemoryUse
from recension.core.rows import Origin, Rows
from recension.core.ticks import BEGINNING, FOREVER, TimeLike, instant
from recension.core.time_kind import OneKind, kind_of
from recension.core.wall_clock import Clock
from recension.gate.decode import Data, open_source
from recension.gate.partition_state import Heard
from recension.gate.readings import Reading
from recension.gate.step import IntoPartition
from recension.lowering import PhysicalPlan, describe_choice
from recension.operators.base import Chunks
from recension.operators.state.chunks import take_prefix
from recension.plan.explain import explain
from recension.plan.node import Node
from recension.plan.source import Table, times_in
from recension.runners.answers import HISTORY_LIMIT
from recension.runners.blockers import Blocker
from recension.runners.merging import MergePorts
from recension.runners.metrics import Metrics
from recension.runners.query_run import Queries, QueryRun
from recension.runners.recorder import EdgeChoice, Recorder, StepObserver
from recension.runners.recording_files import LIMIT
from recension.runners.result import Result
from recension.runners.session_lock import LockedSession, run_exclusively
from recension.runners.snapshot import (
    NOTES,
    SESSION,
    open_snapshot,
    require_same_session,
    seal_snapshot,
    session_table,
)

BATCH_SIZE = 1 << 16

# A stream of the API, which holds its plan, or a plan.
Joining: TypeAlias = Any


class Session(LockedSession):
    """Queries that run while you push their inputs.

    If a query uses the wall clock, ``clock`` is read at every push and read. The history of each answer is
    kept for `history` until it has more than ``history_limit`` events; with None it has no limit, with 0 it
    is not kept. For ``keep`` microseconds the session remembers what was believed when. With a ``pool``, the
    state is in the pool's memory. With several ``workers``, the steps are in that many processes.
    """

    def __init__(
        self,
        queries: Queries,
        batch_size: int = BATCH_SIZE,
        clock: Clock = wall_clock.now,
        history_limit: int | None = HISTORY_LIMIT,
        times: OneKind | None = None,
        pool: MemoryPool | None = None,
        keep: int = 0,
        workers: int = 1,
    ) -> None:
        super().__init__(pool)
        self._pool, self._clock = pool, clock
        _require_options(batch_size, clock, history_limit, workers)
        if pool is not None and workers > 1:
            raise RecensionError("session: memory= bounds the state of one process: leave out workers=")
        self._queries = dict(queries)
        self._last_reading: int | None = None
        self._keeps = bool(keep)
        self._run = QueryRun(
            *(queries, batch_size, self._now, history_limit, times or OneKind(), keep, workers, self._moment)
        )
        self._merges: dict[str, MergePorts] = {}

    @property
    def sources(self) -> list[str]:
        """The names to push to."""
        return list(self._run.gates)

    def columns_of(self, source: str) -> pa.Schema:
        """The columns of a source."""
        return self._run.gate(source).source.columns

    @property
    def tables(self) -> set[str]:
        """The names of sources that are tables without times."""
        return {name for name, source in self._run.plan.sources.items() if isinstance(source, Table)}

    @property
    def plan(self) -> PhysicalPlan:
        """The steps that run, with the queries and sources by name."""
        return self._run.plan

    @property
    def is_clocked(self) -> bool:
        """Does anything use the clock? Then `tick` may give output."""
        return self._run.is_clocked

    @property
    def partitioned_sources(self) -> set[str]:
        """The names of sources that have partitions."""
        return {name for name, source in self._run.plan.sources.items() if source.partition}

    @property
    def unchecked_sources(self) -> set[str]:
        """Sources in which a retraction may name an unknown event: a step above handles that."""
        return self._run.unchecked_sources

    def warn_of_meaning(self) -> Self:
        """Say with the first rows what of the queries is hardly meant; for sessions that users begin."""
        self._run.warns_of_meaning = True
        return self

    @property
    def closes_inputs(self) -> bool:
        """Are sources closed when their inputs end? Then they need not send CTIs before."""
        return self._run.closes_inputs

    @closes_inputs.setter
    def closes_inputs(self, closes: bool) -> None:
        self._run.closes_inputs = closes

    def _now(self) -> int:
        self._last_reading = self._clock()
        return self._last_reading

    def _moment(self) -> int | None:
        """What the clock shows; a clock on which something depends is not read once more for this."""
        return self._last_reading if self._keeps or self._run.is_clocked else self._clock()

    @run_exclusively
    def use_clock(self, clock: Clock) -> None:
        """Use another clock from now on, for example to replay earlier input."""
        self._clock = clock

    @run_exclusively
    def attach(self, stream: Joining, from_time: TimeLike = BEGINNING, query: str | None = None) -> None:
        """Let a stream join the merge of a query while it runs.

        The stream must be complete for every event that ends at ``from_time`` or later. Until the output's
        CTI has reached that time, the stream cannot advance it. You can push to its new sources from now on.
        A stream that was detached and is attached again starts from scratch: it may repeat its elements.
        """
        ports = self._merge_ports(query)
        plan, since = _plan_of(stream), _instant(from_time, "attach, from_time")
        named = [("attach, from_time", since), *times_in([plan])]
        self._run.name_times(named, self._run.times.copy())
        answer = ports.attach(plan, since)
        # A stream that was refused says nothing of the kind of times.
        self._run.name_times(named)
        with self._step():
            self._run.rewire(ports, answer)

    @run_exclusively
    def detach(self, stream: Joining | str, query: str | None = None) -> None:
        """Let a stream, or the source of that name, leave the merge of a query, with its own sources."""
        ports = self._merge_ports(query)
        answer = ports.detach(stream if isinstance(stream, str) else _plan_of(stream))
        with self._step():
            self._run.rewire(ports, answer)

    @run_exclusively
    def state_of(self, stream: Joining | str, query: str | None = None) -> str:
        """Whether an input of the merge of a query is ``joining`` or has ``joined``."""
        return self._merge_ports(query).state_of(stream if isinstance(stream, str) else _plan_of(stream))

    @run_exclusively
    def states(self, query: str | None = None) -> list[str]:
        """The state of every stream that ever joined the merge of a query, in the order of joining."""
        return [str(state) for state in self._merge_ports(query).merge.states()]

    def _merge_ports(self, query: str | None) -> MergePorts:
        name = self._run.answers.query_name(query)
        self._run.require_one_process("the streams of a merge")
        if name not in self._merges:
            self._merges[name] = MergePorts(self._run.plan, name, self._queries[name])
        return self._merges[name]

    def push(
        self,
        source: str,
        data: Data,
        partition: IntoPartition | None = None,
        *,
        heard: Heard | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Feed a source: a table, a frame, a history, a result, elements, or the path of files.

        For a source with partitions, ``partition`` names the partition of data without such a column; for a
        list of elements it may be a list too. Data of several partitions may be given as ``{partition:
        data}``. Files are read whole. ``heard`` is for shards: what they know of the rows of all shards.
        ``origin`` is for those who know where the rows of a table come from.

        A push is refused as a whole, and the session continues as if it had not happened, also if a row
        breaks an expression or function that reads just that row. After an error in any other step the
        session refuses every call except `restore`.
        """
        with self._lock.hold("push"):
            gate = self._run.gate(source)
            try:
                arrival = self._run.arrive(source, partition, heard=heard, origin=origin)
                admission = gate.judge(data, arrival)
                self._run.check_push(source, admission)
                self._run.look(source, admission)
                with self._step():
                    self._run.feed(source, self._run.take(source, admission))
            except StreamError as why:
                raise self._run.plan.with_advice(source, why) from None

    def open_files(self, source: str, data: StreamFiles | str | PathLike[str], size: int) -> Iterator[Rows]:
        """The rows of files, to be pushed to a source piece by piece; they are opened at once."""
        gate = self._run.gate(source)
        return open_source(gate.source, data, size).rows(gate.source.on_violation)

    @run_exclusively
    def feed(self, source: str, batch: EventBatch) -> None:
        """Feed a source with elements that are known to be valid."""
        self._run.refuse_external(source, batch)
        self._run.bypasses_gates = True
        with self._step():
            self._run.feed(source, [batch])

    @run_exclusively
    def advance(self, source: str, t: TimeLike, partition: IntoPartition | None = None) -> None:
        """Send a CTI: nothing before ``t`` changes any more at this source, or in one partition of it.

        Without a partition it applies to all, even to those that have sent nothing yet.
        """
        gate, until = self._run.gate(source), _instant(t, where := f"{source}: advance")
        self._run.times.require(kind_of(until), where)
        push = gate.advance(until, self._run.arrive(source, partition))
        self._run.check_push(source, push)
        self._run.name_times([(where, until)])
        with self._step():
            self._run.feed(source, self._run.take(source, push))

    @run_exclusively
    def expect_partitions(self, source: str, number: int) -> None:
        """No CTI takes effect before this many partitions have sent something; the source's own number wins.

        A snapshot keeps it: the first number stays.
        """
        self._run.gate(source).expect_partitions(number)

    @run_exclusively
    def close(self) -> None:
        """End all sources: nothing more comes."""
        self._run.engine.check_end(self._run.vertices_of(self._run.gates))
        pushes = {
            source: gate.advance(FOREVER, self._run.arrive(source))
            for source, gate in self._run.gates.items()
        }
        with self._step():
            for source, push in pushes.items():
                self._run.feed(source, self._run.take(source, push))

        # Nothing is left to do for workers.
        self._settle()
        self._run.engine.finish()

    def stop(self) -> None:
        """End the workers of the session, if it has any; it refuses most calls from then on.

        They also end when the session is closed or nobody holds it any more, and after a ``with`` block.
        """
        with self._lock.hold("stop", even_failed=True):
            self._run.engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @run_exclusively
    def hear(self, t: TimeLike, query: str | None = None) -> None:
        """Feedback from readers of a query: they do not need events that finally end before ``t``.

        A merge of replicas sends this to slow replicas (`rc.merge`, ``feedback``). If an answer is never
        lengthened, such events are not sent, and their state is freed.
        """
        name, until = self._run.answers.query_name(query), _instant(t, "hear")
        self._run.name_times([("hear", until)])
        with self._step():
            self._run.receive_feedback(name, until)

    @run_exclusively
    def tick(self) -> None:
        """Read the wall clock: elements that have waited long enough are released. `read` does this too."""
        with self._step():
            self._run.tick()

    @run_exclusively
    def read(self, query: str | None = None) -> Result:
        """The output of a query since the last read; the name is optional if there is only one query.

        A result also has the elements dropped since the last read of its query; the counts are totals. For
        what is true now, whatever was read, use `history`.
        """
        name = self._run.answers.query_name(query)
        with self._step():
            self._run.tick()
        self._run.keep_dropped()
        answer, node = self._run.answers[name], self._run.plan.queries[name]
        begin, time_type = answer.position, self._run.time_type
        batches, dropped = answer.take_unread(), answer.take_dropped()
        reading = Reading(begin, answer.position)
        measure = partial(self._metrics_at, self._run.engine.counters())
        return Result(batches, node.schema, node.properties, time_type, dropped, reading, measure)

    @run_exclusively
    def history(self, query: str | None = None, *, as_of: TimeLike | None = None) -> History:
        """What is true now by a query's answer, whatever was read of it.

        With ``as_of``, what was believed then: a time on the session's clock, as a datetime or ISO text with
        a zone, or in microseconds since 1970. ``keep=`` of `rc.session` says how far back you can ask.

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
        name = self._run.answers.query_name(query)
        with self._step():
            self._run.tick()
        moment = None if as_of is None else time_of_belief(as_of, self._clock())
        return replace(self._run.answers[name].history(moment), time_type=self._run.time_type)

    @run_exclusively
    def record(
        self, path: str | PathLike[str], edges: EdgeChoice = "ends", limit: str | int = LIMIT
    ) -> Recorder:
        """Record what comes from now on, see `rc.record`."""
        return self._run.record(path, edges, limit)

    def observe(self, observer: StepObserver | None) -> None:
        """Pass the elements on every edge of the plan to an observer from now on; None ends it."""
        self._run.observe(observer)

    @run_exclusively
    def metrics(self) -> list[Metrics]:
        """What every operator has done so far, and the state it holds."""
        self._settle()
        return self._run.metrics(self._run.engine.counters())

    @run_exclusively
    def memory(self) -> MemoryUse | None:
        """How much of the state is in memory and how much is in files; None if there is no bound."""
        return None if self._pool is None else self._pool.measure()

    def _metrics_at(self, counters: Sequence[tuple[Any, ...]]) -> list[Metrics]:
        """The metrics of a result that was read when these were the counters."""
        with self._lock.hold("metrics", even_failed=True):
            return self._run.metrics(counters)

    @run_exclusively
    def explain(self, query: str | None = None) -> str:
        """The plan of a query, or of all, as it runs: what its steps have chosen; who answers wait for."""
        plan = self._run.plan

        def describe_step(node: Node) -> str | None:
            operator = plan.vertices[plan.numbers[node]].operator
            chosen = operator.describe_choices() if operator else self._run.describe_partitions(node)
            return "\n".join(chosen) or describe_choice(node)

        names = list(plan.queries) if query is None else [self._run.answers.query_name(query)]
        text = explain([plan.queries[name] for name in names], annotate=describe_step)
        return text + str(self._run.work) + "".join(self._describe_waiting(name) for name in names)

    def _describe_waiting(self, query: str) -> str:
        kind = self._run.times.kind
        of = query if len(self._run.plan.queries) > 1 else "the answer"
        return "".join(f"{of} {one.describe(kind)}\n" for one in self._run.find_blockers(query))

    @run_exclusively
    def blockers(self, query: str | None = None) -> list[Blocker]:
        """The inputs that a query waits for: where their CTIs stand, since when, and what would free it.

        >>> import recension as rc
        >>> trades, calib = rc.source("trades", {"k": "string"}), rc.source("calib", {"k": "string"})
        >>> live = rc.session(trades.join(calib, on="k"))
        >>> live.push("trades", [rc.Insert({"k": "a"}, 1, 5), rc.Cti(9)])
        >>> [(one.source, one.remedy) for one in live.blockers()]
        [('calib', "advance it: session.advance('calib', t), send ctis, or put .advance_time(...) on it")]
        """
        self._settle()
        return self._run.find_blockers(self._run.answers.query_name(query))

    @run_exclusively
    def counts(self) -> dict[str, Counter[str]]:
        """Per source and operator, the elements dropped, moved or ignored so far, by reason."""
        self._settle()
        return self._run.counts()

    @run_exclusively
    def is_table(self, source: str) -> bool:
        """Was the last data pushed to this source a plain table?"""
        return self._run.gate(source).is_table

    @run_exclusively
    def is_closed(self, source: str) -> bool:
        """Can nothing more come at this source?"""
        return self._run.gate(source).is_closed

    @run_exclusively
    def rows_seen(self, source: str) -> int:
        """How many rows were pushed to this source; row numbers in messages count from the first."""
        return self._run.gate(source).rows

    @run_exclusively
    def snapshot(self, notes: Chunks | None = None) -> dict[str, pa.Table]:
        """The state of the session as named Arrow tables, with histories and the counts of what was dropped.

        Read all output first: unread output, and the dropped elements themselves, are not part of it. The
        tables have a checksum; store them as Parquet, Arrow IPC or Feather. ``notes`` are tables of your own,
        such as how far each input was read: they are sealed with the others, and `restore` returns them.
        """
        self._settle()
        histories = {f"answers/{name}": table for name, table in self._run.answers.snapshot().items()}
        own = {f"{NOTES}/{name}": table for name, table in (notes or {}).items()}
        return seal_snapshot(
            {SESSION: session_table(self._run.plan), **own, **histories, **tables_of(self._run.parts())}
        )

    @run_exclusively
    def parts(self) -> dict[str, Any]:
        """The state of operators and sources, to be stored in another way; see `Operator.parts`."""
        self._settle()
        return self._run.parts()

    def restore(self, chunks: Chunks) -> dict[str, pa.Table]:
        """Continue from a snapshot; the queries must be the same. Returns its notes.

        A damaged snapshot, or one of another session, is refused, and nothing changes. A failed session works
        again after this. Its next result follows the last one before the snapshot, if nothing was unread
        then: the two can be added.
        """
        with self._lock.hold("restore", even_failed=True):
            own = open_snapshot(chunks)
            require_same_session(own, self._run.plan)
            self._restore(own)
            return take_prefix(NOTES, own)

    def restore_state(self, chunks: Chunks) -> None:
        """Become the session that has these `parts`."""
        with self._lock.hold("restore_state", even_failed=True):
            self._restore(chunks)

    def _restore(self, chunks: Chunks) -> None:
        self._run.require_same(chunks)
        with self._lock.fail_on_error():
            try:
                self._run.restore(chunks)
            except RecensionError:
                raise
            except Exception as why:
                raise RecensionError(f"the snapshot could not be restored: {describe_error(why)}") from why
        self._lock.clear_failure()

    def _settle(self) -> None:
        """Wait for workers; what they have computed can be read."""
        with self._step():
            self._run.settle()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """What comes out in here can be read once all of it has gone well."""
        try:
            try:
                yield
            except BaseException:
                self._run.end_recording("the session failed")
                raise
            self._run.publish()
            if self._pool is not None and (warning := self._pool.take_warning()) is not None:
                self._run.warn(warning)
        except BaseException as why:
            self._lock.note_error(why)
            raise


def _require_options(batch_size: int, clock: Clock, history_limit: int | None, workers: int) -> None:
    if not _is_count(workers, 1):
        raise RecensionError(f"workers is a number of processes from 1, not {workers!r}")
    if not _is_count(batch_size, 1):
        raise RecensionError(f"batch_size is a number of elements from 1, not {batch_size!r}")
    if not callable(clock):
        raise RecensionError(f"clock is a function that gives microseconds since 1970, not {clock!r}")
    if history_limit is not None and not _is_count(history_limit, 0):
        raise RecensionError(f"history_limit is a number of events from 0, or None, not {history_limit!r}")


def _is_count(given: object, least: int) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= least


def _instant(t: TimeLike, where: str) -> int:
    try:
        return instant(t)
    except TimeError as why:
        raise TimeError(f"{where}: {why}") from None


def _plan_of(stream: Joining) -> Node:
    plan = getattr(stream, "plan", stream)
    if not isinstance(plan, Node):
        raise RecensionError(f"a stream is needed here, not {stream!r}")
    return plan
