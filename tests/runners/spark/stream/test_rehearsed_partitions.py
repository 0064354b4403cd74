"""Sources with partitions, in several tasks and shards: every micro-batch is that of the local engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.runners.spark.stream.disorder import Feed, count_dropped, without_ctis, write
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.formats.encode import stream_rows, stream_schema
from recension.runners.exchange.packets import NAMED, Packet
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Inlet

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def source(**more: Any) -> Stream:
    return rc.source("s", SCHEMA, partition="p", order="o", **more)


def by_key(stream: Stream) -> Stream:
    return stream.group_by("k").agg(n=rc.count(), top=rc.max("v"), speculate="eager")


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "as it is": lambda s: s,
    "by a key": by_key,
    "by two keys": lambda s: by_key(s).group_by("n").agg(keys=rc.count(), speculate="eager"),
    "all in one": lambda s: s.agg(n=rc.count()),
    "twice": lambda s: s.join(s.rename({"v": "w"}), on="k"),
    "beside a filter": lambda s: by_key(s).union(by_key(s.where(rc.col("v") > 1))),
    "blocked": lambda s: s.align(4),
    "with a delay": lambda s: by_key(s.advance_time(3)),
}


@dataclass
class Row:
    """An element in its place."""

    element: Element
    partition: str
    order: int
    more: dict[str, Any] = field(default_factory=dict)


@st.composite
def partitions(draw: st.DrawFn, name: str, *, kinds: str = "iiiirrc", disorder: int = 5) -> list[Row]:
    """A valid stream of its own, faster or slower than others."""
    speed, feed = draw(st.sampled_from([1, 1, 3, 9])), Feed()
    for step in range(draw(st.integers(1, 20))):
        feed.grow(draw, draw(st.sampled_from(kinds if step else "i")), step * speed, disorder)
    order = 0
    placed = []
    for element in feed.elements:
        order += draw(st.sampled_from([1, 1, 1, 7]))
        placed.append(Row(element, name, order))
    return placed


def cut(draw: Any, rows: list[Row], turns: int) -> list[list[Row]]:
    """A partition in micro-batches."""
    at = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=turns - 1, max_size=turns - 1)))
    return [rows[i:j] for i, j in zip([0, *at], [*at, len(rows)], strict=True)]


def to_rows(rows: list[Row]) -> pa.Table:
    """As anybody would write them."""
    batch = from_elements([row.element for row in rows], SCHEMA)
    table = pa.Table.from_batches([stream_rows(batch, stream_schema(SCHEMA, pa.int64()))])
    columns = [{"p": row.partition, "o": row.order} | row.more for row in rows]
    kinds = {"p": pa.string(), "o": pa.int64(), "r": pa.string(), "q": pa.int64()}
    for name, kind in kinds.items():
        table = table.append_column(name, pa.array([row.get(name) for row in columns], kind))
    return table


class Placed(Rehearsal):
    """A rehearsal in which several tasks send rows that have places."""

    now = 0

    def play(self, tasks: list[list[Row]]) -> list[Packet]:
        flowing: list[Packet] = []
        for level in range(1, self.plan.levels + 1):
            if any(e.level == level and e.origin in self.plan.sources().values() for e in self.plan.edges):
                for task, rows in enumerate(tasks):
                    flowing += self._pack(level, task, rows)
            flowing = [packet._replace(now=self.now) for packet in flowing]
            flowing = [packet.seal() for packet in self._level(level, flowing)]
        return flowing

    def _pack(self, level: int, task: int, rows: list[Row]) -> list[Packet]:
        packing, table = Packing(self.plan, "s", level, task), to_rows(rows)
        names = [n if n in SCHEMA.names or n[0] == "_" else f"{NAMED}{n}" for n in table.column_names]
        packets = [
            packet for batch in table.rename_columns(names).to_batches() for packet in packing.packets(batch)
        ]
        return [*(packet.seal() for packet in packets), *packing.end_of_task_packets()]


def spread(draw: Any, rows: list[Row]) -> list[list[Row]]:
    """The rows of a micro-batch in some tasks: a partition in one or in several, in any order."""
    is_mixed = draw(st.booleans())
    tasks: list[list[Row]] = [[], [], []]
    for row in rows:
        tasks[draw(st.integers(0, 2)) if is_mixed else ord(row.partition) % 3].append(row)
    if draw(st.booleans()):
        tasks = [draw(st.permutations(task)) for task in tasks]
    return tasks


def in_one_task(rows: list[Row]) -> list[list[Row]]:
    """The rows of a micro-batch in three tasks, those of a partition in one of them, as they come."""
    return [[row for row in rows if ord(row.partition) % 3 == task] for task in range(3)]


class Comparison:
    """The same micro-batches on shards, with failures and other workers, and on the local engine."""

    def __init__(
        self, draw: Any, query: Stream, inlet: Inlet | None = None, local: Stream | None = None
    ) -> None:
        self._draw, shards = draw, draw(st.integers(1, 3))
        self.play = Placed([query.plan], shards, {"s": inlet or Inlet()})
        self.local = rc.session(local or query, clock=lambda: self.play.now)
        self.dropped = Counter[str]()
        self._workers: list[dict[Any, Any]] = [{}, {}]

    def turn(self, rows: list[Row], *, is_ordered: bool = True) -> None:
        worker = self._workers[self._draw(st.integers(0, 1))]
        tasks = spread(self._draw, rows) if is_ordered else in_one_task(rows)
        processor._parked.clear()
        processor._parked.update(worker)
        if self._draw(st.booleans()):
            before = {key: type(store)(store) for key, store in self.play.stores.items()}
            self.play.play(tasks)
            self.play.stores.clear()
            self.play.stores.update(before)
        packets = self.play.play(tasks)
        worker.clear()
        worker.update(processor._parked)
        self.dropped += count_dropped(packets)
        self.local.push("s", to_rows(rows))
        shown, expected = self.play.output(packets).to_elements(), self.local.read().elements()
        note(f"{rows}\n  shown {shown}\n  local {expected}")
        assert write(shown) == write(expected)

    def check_counts(self) -> None:
        assert self.dropped == without_ctis(sum(self.local.counts().values(), Counter()))


EXAMPLES = settings(max_examples=3, suppress_health_check=list(HealthCheck), deadline=None)
MANY = settings(EXAMPLES, max_examples=100)


def drawn_turns(draw: Any, names: str = "abc", **how: Any) -> list[list[Row]]:
    """Several partitions in micro-batches, each at its own speed; at the end all are done."""
    turns = draw(st.integers(1, 5))
    parts = [draw(partitions(name, **how)) for name in names]
    cuts = [cut(draw, part, turns) for part in parts]
    found = [[row for part in cuts for row in part[turn]] for turn in range(turns)]
    ends = [Row(Cti(1000), name, 1000) for name, part in zip(names, parts, strict=True) if part]
    return [*found, ends]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
@EXAMPLES
def test_every_micro_batch_is_that_of_the_local_engine(name: str, data: st.DataObject) -> None:
    check_every_micro_batch(name, data)


@pytest.mark.soak
@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
@MANY
def test_every_micro_batch_in_many_examples(name: str, data: st.DataObject) -> None:
    check_every_micro_batch(name, data)


def check_every_micro_batch(name: str, data: st.DataObject) -> None:
    compared = Comparison(data.draw, QUERIES[name](source(partitions=3)))
    for turn in drawn_turns(data.draw):
        compared.turn(turn)
    compared.check_counts()


@pytest.mark.slow
@given(st.data())
@EXAMPLES
def test_without_an_order_rows_count_as_they_come(data: st.DataObject) -> None:
    unordered = rc.source("s", SCHEMA, partition="p", partitions=3)
    compared = Comparison(data.draw, by_key(unordered))
    for turn in drawn_turns(data.draw):
        compared.turn(turn, is_ordered=False)
    compared.check_counts()


@pytest.mark.slow
@given(st.data())
@EXAMPLES
def test_what_is_dropped_is_the_same(data: st.DataObject) -> None:
    """Rows that come late, go back in order, or retract what is not there."""
    policy = data.draw(st.sampled_from(["drop", "adjust"]))
    compared = Comparison(data.draw, by_key(source(on_violation=policy)))
    for turn in drawn_turns(data.draw):
        taken = {(row.partition, row.order) for row in turn}
        for row in data.draw(st.lists(st.sampled_from(turn), max_size=3)) if turn else []:
            order = data.draw(st.integers(0, 30))
            if (row.partition, order) not in taken:
                taken.add((row.partition, order))
                turn = [*turn, Row(row.element, row.partition, order)]
        compared.turn(turn)
    compared.check_counts()


@pytest.mark.slow
@given(st.data())
@EXAMPLES
def test_idle_partitions_and_those_that_have_not_spoken(data: st.DataObject) -> None:
    """Time goes by the micro-batch. A partition that comes late joins, and what it sends late is dropped."""
    expected = data.draw(st.sampled_from([None, 2, 3]))
    compared = Comparison(data.draw, by_key(source(partitions=expected, idle=10, on_violation="drop")))
    for turn in drawn_turns(data.draw):
        compared.play.now += data.draw(st.sampled_from([0, 1, 6, 12]))
        compared.turn(turn)
        if data.draw(st.booleans()):
            compared.play.now += data.draw(st.integers(0, 12))
            compared.turn([])
    compared.check_counts()


@pytest.mark.slow
@given(st.data())
@EXAMPLES
def test_a_watermark_follows_the_partition_that_lags(data: st.DataObject) -> None:
    """After each micro-batch: the least of the latest starts, less the delay."""
    play = Placed([source(partitions=3).plan], data.draw(st.integers(1, 3)), {"s": Inlet(delay=7)})
    latest: dict[str, int] = {}
    shown = 0
    for turn in drawn_turns(data.draw, kinds="i", disorder=3)[:-1]:
        packets = play.play(spread(data.draw, turn))
        for row in turn:
            assert isinstance(row.element, Insert)
            latest[row.partition] = max(row.element.vs, latest.get(row.partition, -100))
        t = min(latest.values()) - 7 if len(latest) == 3 else None
        ctis = [e.t for e in play.output(packets).to_elements() if isinstance(e, Cti)]
        assert ctis == ([t] if t is not None and (not shown or t > shown) else [])
        shown = t or shown


@pytest.mark.slow
@given(st.data())
@EXAMPLES
def test_what_is_sent_twice_counts_once(data: st.DataObject) -> None:
    """A producer that starts again sends the end of what it has sent, further on in its partition."""
    parts = []
    for name in "abc":
        rows, numbers = data.draw(partitions(name)), list[int]()
        for number in range(len(rows)):
            since = data.draw(st.integers(max(0, number - 5), number)) if number % 4 == 3 else number
            numbers += [*range(since, number), number]
        parts.append([Row(rows[q].element, name, o, {"r": "x", "q": q}) for o, q in enumerate(numbers)])
    turns = data.draw(st.integers(1, 4))
    cuts = [cut(data.draw, part, turns) for part in parts]
    compared = Comparison(data.draw, by_key(source(partitions=3, run="r", sequence="q")))
    for number in range(turns):
        compared.turn([row for part in cuts for row in part[number]])
    compared.check_counts()


def _refused(tasks: list[list[Row]], shards: int, **how: Any) -> str:
    play = Placed([source(**how).plan], shards)
    for task in tasks[:-1]:
        play.play([[row] for row in task])
    with pytest.raises(StreamError) as why:
        play.play([[row] for row in tasks[-1]])
    return str(why.value)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_errors_name_the_partition_and_the_order(shards: int) -> None:
    first = [Row(Insert({"k": k, "v": 0}, 5, 9), "3", 10 + k) for k in range(6)]
    more = {"k": 1, "v": 1}
    late = _refused([[*first, Row(Cti(7), "3", 17)], [Row(Insert(more, 6, 9), "3", 18)]], shards)
    assert late.startswith("s: partition 3, o 18: breaks an earlier cti: insert [6, 9)")
    back = _refused([first, [Row(Insert(more, 6, 9), "3", 12)]], shards)
    assert back.startswith("s: partition 3, o 12: does not come after what its partition has sent: order 12")
    other = _refused([first, [Row(Retract({"k": 2, "v": 0}, 5, 9, 7), "4", 1)]], shards)
    assert other.startswith("s: partition 4, o 1: retracts an event that is not in it, but in partition 3")


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_two_rows_of_one_order_are_found_in_whatever_tasks_and_shards(shards: int) -> None:
    rows = [Row(Insert({"k": k, "v": k}, 5, 9), "3", 10 + k) for k in range(40)]
    for twin in range(shards, 40, 6):
        again = Row(Insert({"k": -1 - twin, "v": 0}, 5, 9), "3", 10 + twin)
        why = _refused([[*rows, again]], shards)
        assert f"partition 3, o {10 + twin}" in why


def test_the_orders_of_a_partition_are_sent_as_runs() -> None:
    play = Placed([source().plan], 2)
    rows = [Row(Insert({"k": k, "v": k}, 5, 9), "3", 10 + k) for k in range(1000)]
    sent = [packet.summary for packet in play._pack(1, 0, rows) if packet.summary is not None]
    assert sum(map(len, sent)) < 5000
