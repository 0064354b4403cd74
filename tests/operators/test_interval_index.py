"""The interval index and what is built on it, against plain lists."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from recension.core.batch import from_elements
from recension.core.change_log import tables_of
from recension.core.events import Element, Insert, Retract
from recension.core.netting import expand
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.changes import identity, net_changes
from recension.operators.state.event_store import EventStore
from recension.operators.state.interval_index import IntervalIndex
from recension.operators.state.start_index import StartIndex

# Group 2 differs from group 1 only in bits that the sort key leaves out.
GROUPS = [1 << 63, (1 << 62) + 1, (1 << 62) + 2]
NEAR = st.integers(-8, 8)
FAR = st.sampled_from([BEGINNING, BEGINNING + 1, -(2**40), 2**20, 2**36, 2**50, FOREVER - 1])
TIMES = st.one_of(NEAR, NEAR, FAR)
ENDS = st.one_of(TIMES, st.just(FOREVER))
SPANS = st.tuples(st.sampled_from(GROUPS), TIMES, ENDS).filter(lambda span: span[1] < span[2])
Row = tuple[int, int, int]


def hashes(values: list[int]) -> Hashes:
    return np.array(values, np.uint64)


def ticks(values: list[int]) -> Ticks:
    return np.array(values, np.int64)


def tag_of(group: int, vs: int, ve: int) -> int:
    return int(identity(hashes([group]), ticks([vs]), ticks([ve]))[0])


class AnyIndex(RuleBasedStateMachine):
    """Adds, removes, expires, asks and restores in any order; a list of rows says what is right."""

    @initialize()
    def start(self) -> None:
        self.index = IntervalIndex(("extra",))
        self.rows: list[Row] = []
        self.frontier = BEGINNING

    @rule(rows=st.lists(SPANS, max_size=12), repeat=st.sampled_from([1, 1, 30]))
    def add(self, rows: list[Row], repeat: int) -> None:
        rows = [row for row in rows if row[2] > self.frontier] * repeat
        group, vs, ve = ([row[i] for row in rows] for i in range(3))
        tags = hashes([tag_of(*row) for row in rows])
        self.index.add(hashes(group), ticks(vs), ticks(ve), tags, extra=ticks(vs))
        self.rows += rows

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        picked = data.draw(st.lists(st.sampled_from(range(len(self.rows))), unique=True, max_size=5))
        at = self.index.find(hashes([tag_of(*self.rows[i]) for i in picked]))
        assert len(set(at.tolist())) == len(picked)
        assert self.named(at) == [self.rows[i] for i in picked]
        self.index.remove(at)
        self.rows = [row for i, row in enumerate(self.rows) if i not in picked]

    @rule(t=st.one_of([NEAR] * 9 + [FAR]))
    def expire(self, t: int) -> None:
        self.frontier = max(t, self.frontier)
        self.index.expire(t)
        self.rows = [row for row in self.rows if row[2] > self.frontier]

    @rule()
    def restore(self) -> None:
        chunks = tables_of(self.index.parts("x"))
        self.index = IntervalIndex(("extra",))
        self.index.restore("x", chunks)

    @rule(questions=st.lists(st.tuples(st.sampled_from(GROUPS), TIMES, ENDS), max_size=6))
    def ask(self, questions: list[Row]) -> None:
        group, lo, hi = ([q[i] for q in questions] for i in range(3))
        question, at = self.index.find_overlaps(hashes(group), ticks(lo), ticks(hi))
        assert question.tolist() == sorted(question.tolist())
        found = Counter(zip(question.tolist(), self.named(at), strict=True))
        assert found == Counter(
            (i, row)
            for i, (group_, lo_, hi_) in enumerate(questions)
            for row in self.rows
            if row[0] == group_ and row[1] < hi_ and row[2] > lo_
        )

    @invariant()
    def holds_no_more_than_it_should(self) -> None:
        assert self.index.count_live() == len(self.rows)
        assert self.index.find(hashes([7])).tolist() == [-1]

    def named(self, at: Ticks) -> list[Row]:
        group, vs, ve = (self.index.column(name, at).tolist() for name in ("group", "vs", "ve"))
        assert self.index.column("extra", at).tolist() == vs
        return list(zip(group, vs, ve, strict=True))


TestAnyIndex = AnyIndex.TestCase
TestAnyIndex.settings = settings(stateful_step_count=20)


@pytest.mark.parametrize("groups", [[1 << 63, 1 << 62, 5 << 60], GROUPS], ids=["own bits", "shared bits"])
@pytest.mark.parametrize("last", [2**12, 2**50], ids=["exact starts", "coarse starts"])
@pytest.mark.parametrize("asked_from", [0, -(2**60)])
def test_many_overlaps(groups: list[int], last: int, asked_from: int) -> None:
    """What need not be compared, as the search tells it exactly, is no other answer."""
    rng = np.random.default_rng(1)
    index, size = IntervalIndex(), 1500
    group, vs = rng.choice(hashes(groups), size), rng.integers(0, last, size)
    ve = vs + rng.integers(1, last // 4, size)
    for part in np.split(np.arange(size), [1000, 1400]):
        index.add(group[part], vs[part], ve[part], part.astype(np.uint64))
    index.remove(index.find(np.arange(50, dtype=np.uint64)))
    index.expire(last // 16)
    lo = rng.integers(0, last, 300)
    lo[0], hi = asked_from, lo + rng.integers(1, 100, 300)
    for of in (hashes([*groups, 7]), hashes([(1 << 62) + 3])):
        wanted = rng.choice(of, 300)
        asked, at = index.find_overlaps(wanted, lo, hi)
        found = zip(*(index.column(name, at).tolist() for name in ("group", "vs", "ve")), strict=True)
        left = list(zip(group.tolist(), vs.tolist(), ve.tolist(), strict=True))[50:]
        expected = [
            (question, row)
            for question, (g, begin, end) in enumerate(
                zip(wanted.tolist(), lo.tolist(), hi.tolist(), strict=True)
            )
            for row in left
            if row[0] == g and row[1] < end and row[2] > max(begin, last // 16)
        ]
        assert sorted(zip(asked.tolist(), found, strict=True)) == sorted(expected)


def test_equal_events_are_found_one_by_one() -> None:
    index = IntervalIndex()
    tag = hashes([9, 9, 4])
    index.add(hashes([1, 1, 1]), ticks([0, 0, 0]), ticks([5, 5, 6]), tag)
    found = index.find(hashes([9, 4, 9, 9]))
    assert sorted(found[:3].tolist()) == [0, 1, 2]
    assert found[3] == -1


def test_memory_is_given_back_as_time_passes() -> None:
    """What is held stays within a few times what is alive, while events come and go."""
    index, held = IntervalIndex(), []
    for start in range(0, 200_000, 1000):
        vs = np.arange(start, start + 1000)
        index.add(vs.astype(np.uint64), vs, vs + 5000, vs.astype(np.uint64))
        index.expire(start)
        held.append(len(index))
    assert index.count_live() == 6000 - 1
    assert max(held) < 5 * 6000


def test_nothing_is_left_at_the_end_of_time() -> None:
    index = IntervalIndex()
    index.add(hashes([1]), ticks([0]), ticks([FOREVER]), hashes([1]))
    index.expire(FOREVER)
    assert len(index) == 0
    assert index.nbytes() == 0


@given(st.lists(st.tuples(st.sampled_from(GROUPS), TIMES), max_size=40), st.data())
def test_the_next_start(instants: list[tuple[int, int]], data: st.DataObject) -> None:
    index = StartIndex()
    for some in (instants[:9], instants[9:]):
        index.insert(hashes([g for g, _ in some]), ticks([t for _, t in some]))
    gone = data.draw(st.lists(st.sampled_from(instants), max_size=30)) if instants else []
    index.remove_at(hashes([g for g, _ in gone]), ticks([t for _, t in gone]))
    left = (Counter(instants) - Counter(gone)).keys()
    for group in GROUPS:
        for after, before in ((BEGINNING, FOREVER), (-9, FOREVER), (-3, 4), (0, 1), (2, 2**50)):
            expected = min((t for g, t in left if g == group and after < t < before), default=before)
            assert index.find_next(hashes([group]), ticks([after]), ticks([before])).tolist() == [expected]


SCHEMA = pa.schema([("p", pa.string())])


def chain(path: list[int]) -> list[Element]:
    """The elements that take one event that starts at 1 from end to end."""
    return [
        Insert({"p": "x"}, 1, new) if old == 1 else Retract({"p": "x"}, 1, old, new)
        for old, new in pairwise(path)
    ]


@pytest.mark.parametrize(
    ("path", "net"),
    [
        ([1, 5, 3, 8], [(1, 8)]),
        ([1, 5, 1], []),
        ([5, 3, 5], []),
        ([5, 3, 8, 4], [(5, 4)]),
        ([5, 8, 1], [(5, 1)]),
        ([5, 1, 7], [(5, 7)]),
    ],
)
def test_chains_within_a_batch_become_one_change(path: list[int], net: list[tuple[int, int]]) -> None:
    change = net_changes(from_elements(chain(path), SCHEMA))
    assert list(zip(change.old.tolist(), change.new.tolist(), strict=True)) == net


def test_equal_events_pass_a_change_on() -> None:
    """R(1,5->3) before I(1,5): the bag loses nothing at 5 and gains one at 3."""
    elements: list[Element] = [Retract({"p": "x"}, 1, 5, 3), Insert({"p": "x"}, 1, 5)]
    change = net_changes(from_elements(elements, SCHEMA))
    assert list(zip(change.old.tolist(), change.new.tolist(), strict=True)) == [(1, 3)]


def test_live_events_change_and_keep_their_payloads() -> None:
    live = EventStore(SCHEMA)
    group = hashes([5])
    first: list[Element] = [Insert({"p": str(i)}, 0, 10) for i in range(3)]
    for elements in (first, [Retract({"p": "1"}, 0, 10, 4), Retract({"p": "2"}, 0, 10, 0)]):
        batch = from_elements(elements, SCHEMA)
        change = net_changes(batch)
        live.apply(change, np.repeat(group, len(change)), batch.payload)
    _, at = live.find_overlaps(group, ticks([0]), ticks([9]))
    shown = zip(live.payload(at)["p"].to_pylist(), live.column("ve", at).tolist(), strict=True)
    assert sorted(shown) == [("0", 10), ("1", 4)]
    live.expire(4)
    _, at = live.find_overlaps(group, ticks([0]), ticks([9]))
    assert live.payload(at)["p"].to_pylist() == ["0"]


def test_payloads_survive_when_dead_ones_are_dropped() -> None:
    """The last 50 events stay as they are; the others change twenty times."""
    live, names = EventStore(SCHEMA), [str(i) for i in range(300)]
    for end in range(10, 30):
        elements: list[Element] = [
            Insert({"p": n}, 0, end) if end == 10 else Retract({"p": n}, 0, end - 1, end)
            for n in (names if end == 10 else names[:250])
        ]
        batch = from_elements(elements, SCHEMA)
        live.apply(net_changes(batch), np.repeat(hashes([5]), len(batch)), batch.payload)
    _, at = live.find_overlaps(hashes([5]), ticks([0]), ticks([1]))
    found = zip(live.payload(at)["p"].to_pylist(), live.column("ve", at).tolist(), strict=True)
    assert dict(found) == {name: 29 if int(name) < 250 else 10 for name in names}
    rows = live.parts("x")["x/rows"].snapshot().num_rows
    assert rows < 2 * len(live) + 2000


def test_ranges_written_out() -> None:
    owner, at = expand(ticks([3, 5, 9]), ticks([5, 4, 10]))
    assert owner.tolist() == [0, 0, 2]
    assert at.tolist() == [3, 4, 9]
