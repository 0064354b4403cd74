"""The local engine: push-based, columnar, in this process.

A session holds one or more queries over named sources. Whatever two of them have in common is computed
once. Nothing is lost on the way in: what the sources' policies leave out is counted and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import pyarrow as pa

from recension.core import wall_clock
from recension.core.batch import EXTERNAL_CTI, EventBatch, cti
from recension.core.errors import RecensionError, StreamError
from recension.core.formats.reader import StreamReader
from recension.core.ticks import BEGINNING, FOREVER, TimeLike, instant
from recension.core.wall_clock import Clock
from recension.lowering import PhysicalPlan, chosen, lower
from recension.operators.base import Chunks, Output
from recension.operators.flow import Flow, split
from recension.plan.explain import explain
from recension.plan.node import Node
from recension.runners.engine import Engine, elements, left_out
from recension.runners.intake import Data, Intake
from recension.runners.merging import MergePorts
from recension.runners.metrics import Metrics
from recension.runners.result import Result

BATCH_SIZE = 1 << 16

Queries: TypeAlias = Mapping[str, Node]
# A stream of the API, which holds its plan, or a plan.
Joining: TypeAlias = Any
Dropped: TypeAlias = dict[str, list[tuple[str, EventBatch]]]


class Session:
    """Queries that run as their inputs are pushed.

    Where a query counts by the wall clock, ``clock`` is looked at whenever something is pushed or read.
    """

    def __init__(self, queries: Queries, batch_size: int = BATCH_SIZE, clock: Clock = wall_clock.now) -> None:
        if batch_size < 1:
            raise RecensionError(f"batch_size is a number of elements from 1, not {batch_size}")
        if not callable(clock):
            raise RecensionError(f"clock is a function that gives microseconds since 1970, not {clock!r}")
        self._batch_size = batch_size
        self._written = dict(queries)
        self._plan: PhysicalPlan = lower(queries)
        self._engine = Engine(self._plan.vertices, self._plan.query_vertices.values())
        self._clock = clock
        self._merges: dict[str, MergePorts] = {}
        self._intakes: dict[str, Intake] = {}
        self._open_intakes()
        self._output: dict[str, list[EventBatch]] = {name: [] for name in queries}
        self._aside: dict[str, Dropped] = {name: {} for name in queries}
        self._heard: dict[str, int] = {}

    @property
    def sources(self) -> list[str]:
        """The names to push to."""
        return list(self._intakes)

    def _open_intakes(self) -> None:
        """An intake for every source; those of sources that are no longer read go."""
        self.unchecked, self._without_external = self._plan.unchecked, self._plan.without_external
        self._intakes = {
            name: self._intakes.get(name)
            or Intake(source, self._batch_size, check_orphans=name not in self.unchecked)
            for name, source in self._plan.sources.items()
        }

    def attach(self, stream: Joining, from_time: TimeLike = BEGINNING, query: str | None = None) -> None:
        """Let a stream join the merge of a query while it runs.

        The stream promises to be complete for every event that ends at ``from_time`` or later; until the
        output has come that far, it moves nothing. Its sources, if new, can be pushed to from now on. A
        stream that was detached and is attached again starts afresh: it may repeat what it has sent before.
        """
        ports = self._ports(query)
        answer = ports.attach(_plan(stream), instant(from_time))
        self._rewired(ports, answer)

    def detach(self, stream: Joining | str, query: str | None = None) -> None:
        """Let a stream, or the source of that name, leave the merge of a query; sources only it reads go."""
        ports = self._ports(query)
        answer = ports.detach(stream if isinstance(stream, str) else _plan(stream))
        self._rewired(ports, answer)

    def state_of(self, stream: Joining | str, query: str | None = None) -> str:
        """Whether an input of the merge of a query is ``joining`` or has ``joined``."""
        return self._ports(query).state_of(stream if isinstance(stream, str) else _plan(stream))

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

    def push(self, source: str, data: Data) -> None:
        """Feed a source: a table, a frame, elements. The queries are worked through batch by batch."""
        intake = self._intake(source)
        with self.advising(source):
            for batch in intake.take(data):
                self.feed(source, batch)

    @contextmanager
    def advising(self, source: str) -> Iterator[None]:
        """Errors in the elements of a source say what to do about them."""
        try:
            yield
        except StreamError as why:
            raise self._plan.advised(source, why) from None

    def push_checked(self, source: str, batch: EventBatch, reader: StreamReader) -> None:
        """Feed a source from a reader, which has made the checks already."""
        self._intake(source).adopt(reader)
        self.feed(source, batch)

    def advance(self, source: str, t: TimeLike) -> None:
        """Promise that nothing before ``t`` changes any more at this source."""
        self.push(source, cti(instant(t), self._plan.sources[self._known(source)].schema))

    def close(self) -> None:
        """Promise that nothing more comes at any source."""
        for source in self._intakes:
            self.advance(source, FOREVER)

    def hear(self, t: TimeLike, query: str | None = None) -> None:
        """Those who read a query do not want events that finally end before ``t``: they are spared.

        A merge of replicas says so of those that lag (`rc.merge`, ``feedback``). Where an answer is never
        lengthened such events are left out of it; state that only serves them is dropped.
        """
        name = self._query(query)
        self._heard[name] = max(instant(t), self._heard.get(name, BEGINNING))
        vertex = self._plan.query_vertices[name]
        readers = [one for one, number in self._plan.query_vertices.items() if number == vertex]
        self._engine.hear(vertex, min(self._heard.get(one, BEGINNING) for one in readers))

    def tick(self) -> None:
        """Look at the wall clock: what has waited long enough comes out. Reading does this too."""
        if self._engine.is_clocked:
            self._collect(self._engine.tick(self._clock()))

    def read(self, query: str | None = None) -> Result:
        """What a query gave since the last reading; its name may be left out if it is the only one.

        So it is with the elements left out: a result has those since the last reading of its query. The
        counts are of all.
        """
        name = self._query(query)
        self.tick()
        self._set_aside()
        batches, self._output[name] = self._output[name], []
        node = self._plan.queries[name]
        kinds = [intake.time_type for intake in self._intakes.values() if intake.time_type is not None]
        stamped = next((kind for kind in kinds if pa.types.is_timestamp(kind)), pa.int64())
        dropped, self._aside[name] = self._aside[name], {}
        return Result(batches, node.schema, node.properties, stamped, self.metrics(), dropped)

    def metrics(self) -> list[Metrics]:
        """What every operator has done so far."""
        metrics = self._engine.metrics()
        for name, intake in self._intakes.items():
            line = metrics[self._plan.source_vertices[name]]
            line.dropped = left_out(intake.counts)
            line.state_rows, line.state_bytes = intake.state_rows(), intake.state_bytes()
        return metrics

    def explain(self, query: str | None = None) -> str:
        """The plan of a query as it runs: what its steps have chosen by now."""

        def words(node: Node) -> str | None:
            operator = self._plan.vertices[self._plan.numbers[node]].operator
            return "\n".join(operator.words() if operator else []) or chosen(node)

        return explain([self._plan.queries[self._query(query)]], annotate=words)

    def counts(self) -> dict[str, Counter[str]]:
        """Per source and operator, the elements left out, moved or ignored so far, by reason."""
        return {name: intake.counts for name, intake in self._intakes.items()} | self._engine.counts()

    def is_table(self, source: str) -> bool:
        """Was the last data pushed to this source a plain table?"""
        return self._intake(source).is_table

    def rows_seen(self, source: str) -> int:
        """How many rows were pushed to this source: messages count from the first."""
        return self._intake(source).rows

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the session as named Arrow tables, with the counts of what was left out.

        Read first: output that was not read, and the elements left out themselves, are not part of it.
        """
        chunks = {f"operators/{name}": table for name, table in self._engine.snapshot().items()}
        for source, intake in self._intakes.items():
            chunks |= {f"sources/{source}/{name}": table for name, table in intake.snapshot().items()}
        return chunks

    def restore(self, chunks: Chunks) -> None:
        """Become the session whose snapshot this is; the queries must be the same."""
        self._engine.restore(_below("operators/", chunks))
        for source, intake in self._intakes.items():
            intake.restore(_below(f"sources/{source}/", chunks))

    def feed(self, source: str, batch: EventBatch) -> None:
        """Feed a source with elements that are known to be valid."""
        self.tick()
        if source in self._without_external and bool((batch.kind == EXTERNAL_CTI).any()):
            raise RecensionError(
                f"{source}: an external cti came, but a step above the source cannot take it in: declare "
                f"rc.source({source!r}, ..., external_ctis=True), or put .finalize() onto the source itself"
            )
        changes, t = split(batch)
        self._collect(self._engine.step(self._plan.source_vertices[source], changes, t))

    def _set_aside(self) -> None:
        """Elements left out are kept for every query until it is read."""
        dropped = {source: intake.take_dropped() for source, intake in self._intakes.items()}
        for where, elements_out in (dropped | self._engine.take_rejected()).items():
            for aside in self._aside.values() if elements_out else ():
                aside.setdefault(where, []).extend(elements_out)

    def _collect(self, flows: Mapping[int, Flow]) -> None:
        for name, vertex in self._plan.query_vertices.items():
            if vertex in flows:
                wanted = self._engine.wanted(vertex, flows[vertex])
                self._output[name] += elements(wanted, self._plan.queries[name].schema)
        settled = self._engine.settled()
        for source, intake in self._intakes.items():
            intake.forget_before(settled.get(self._plan.source_vertices[source], BEGINNING))

    def _intake(self, source: str) -> Intake:
        return self._intakes[self._known(source)]

    def _known(self, source: str) -> str:
        if source not in self._intakes:
            raise RecensionError(f"no source {source!r}; the queries read {', '.join(self._intakes)}")
        return source

    def _query(self, name: str | None) -> str:
        if name is None and len(self._output) == 1:
            return next(iter(self._output))
        if name not in self._output:
            raise RecensionError(f"no query {name!r}; the session runs {', '.join(self._output)}")
        return str(name)


def _plan(stream: Joining) -> Node:
    plan = getattr(stream, "plan", stream)
    if not isinstance(plan, Node):
        raise RecensionError(f"a stream is needed here, not {stream!r}")
    return plan


def _below(prefix: str, chunks: Chunks) -> dict[str, pa.Table]:
    return {name.removeprefix(prefix): table for name, table in chunks.items() if name.startswith(prefix)}
