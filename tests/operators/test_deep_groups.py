"""Deep groups: what is picked by rank is right for any stream; a batch does not look at all live events."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.operators.test_snapshot_aggregate import INPUT, KEY, VARIANTS, Query, shown

import recension as rc
from recension import denote
from recension.core.batch import INSERT, RETRACT, EventBatch
from recension.core.events import Event, Insert
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.denote.order import History
from recension.operators.state import interval_index, ranked_events, value_counts
from recension.operators.state.ranked_events import Pick, RankedEvents
from recension.operators.state.tied_starts import TiedStarts
from recension.operators.state.value_counts import ValueCounts
from recension.operators.windowed import accumulators as sums
from recension.operators.windowed import events as windowed_events
from recension.operators.windowed import selections
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation, aggregate_over
from recension.operators.windowed.events import least_of_ranges, order_of_events
from recension.operators.windowed.grid import Grid
from recension.operators.windowed.index import View
from recension.operators.windowed.numbered import NumberedIndex
from recension.operators.windowed.operator import WindowedOperator
from recension.operators.windowed.selections import Extreme, Positional, RankedValues, TopK
from recension.operators.windowed.snapshots import SnapshotIndex
from recension.plan.aggregates import Quantile
from recension.plan.expressions import expression
from recension.plan.node import Speculate
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import batchings, events, physical_streams

INT, FLOAT = pa.int64(), pa.float64()
k, i, f = (partial(pa.RecordBatch.column, i=name) for name in "kif")
QUERIES = {
    "extremes": Query(
        pa.schema([("a", INT), ("b", FLOAT), ("c", pa.string()), ("n", INT)]),
        [
            Aggregation(i, Extreme(greatest=False)),
            Aggregation(f, Extreme(greatest=True)),
            Aggregation(k, Extreme(greatest=True)),
            Aggregation(None, sums.CountEvents()),
        ],
        denote.agg(a=denote.min("i"), b=denote.max("f"), c=denote.max("k"), n=denote.count()),
    ),
    "quantiles": Query(
        pa.schema([("a", FLOAT), ("b", FLOAT), ("c", FLOAT), ("d", FLOAT)]),
        [
            Aggregation(i, RankedValues(Quantile(expression("i"), 0.3).choose)),
            Aggregation(f, RankedValues(Quantile(expression("f"), 0.5).choose)),
            Aggregation(f, Extreme(greatest=True)),
            Aggregation(f, RankedValues(Quantile(expression("f"), 1.0).choose)),
        ],
        denote.agg(
            a=denote.quantile("i", 0.3),
            b=denote.quantile("f", 0.5),
            c=denote.max("f"),
            d=denote.quantile("f", 1.0),
        ),
    ),
    "positions": Query(
        pa.schema([("a", INT), ("b", FLOAT), ("c", INT)]),
        [
            Aggregation(i, Positional(last=False)),
            Aggregation(f, Positional(last=True)),
            Aggregation(i, Extreme(greatest=True)),
        ],
        denote.agg(a=denote.first("i"), b=denote.last("f"), c=denote.max("i")),
        breaks_ties=True,
    ),
    "top": Query(
        pa.schema([INPUT.field("i"), INPUT.field("f"), ("rank", INT)]),
        [Aggregation(f, TopK(3, descending=True))],
        lambda alive: [
            {name: row[name] for name in ("i", "f", "rank")} for row in denote.top_k(3, by="f")(alive)
        ],
        breaks_ties=True,
    ),
}


@pytest.fixture(params=[0, 4], ids=["runs of a batch", "runs merged"])
def deep(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every stretch is deep, the trees are narrow and therefore high, runs are many or few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed_events, "_DEEP", 0)
        patch.setattr(windowed_events, "_LEAST_DEEP", -1)
        patch.setattr(windowed_events, "_MANY", 0)
        patch.setattr(windowed_events, "_LEAST_PAIRS", 0)
        patch.setattr(value_counts, "_RATIO", request.param)
        patch.setattr(selections, "_ROUND", 0)
        patch.setattr(ranked_events, "_BITS", 1)
        patch.setattr(ranked_events, "_WIDTH", 2)
        patch.setattr(interval_index, "_RATIO", request.param)
        yield


def histories() -> st.SearchStrategy[History]:
    columns = {
        "k": st.sampled_from(["a", "b", None]),
        "i": st.sampled_from([1, 0, -5, 7, None]),
        "f": st.sampled_from([1.5, 0.1, -0.0, 0.0, float("nan"), float("inf"), None]),
    }
    found = st.lists(events(st.fixed_dictionaries(columns)), max_size=12)
    return found.map(lambda events: events + events[:1])


@pytest.mark.pairs
@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("grouped", [False, True], ids=["ungrouped", "grouped"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
@settings(max_examples=examples(15))
def test_after_every_batch_the_history_is_the_oracles(
    name: str, variant: Speculate, grouped: bool, data: st.DataObject
) -> None:
    query = QUERIES[name]
    drive, m = Driver(lambda: query.operator(variant, grouped=grouped), INPUT), BEGINNING
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        m = max([m, drive.input_cti(), *(e.vs for e in batch if isinstance(e, Insert))])
        meaning = query.meaning(drive.input_history(), grouped=grouped)
        assert_equivalent(drive.history(), shown(variant, meaning, m))
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.operator.state_rows() == 0


@pytest.mark.pairs
@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("view", ["ended", "all"])
@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
@settings(max_examples=examples(15))
def test_windows_of_a_grid(name: str, view: View, data: st.DataObject) -> None:
    query, size, hop = QUERIES[name], *data.draw(st.sampled_from([(5, 5), (6, 2), (2, 5)]))

    def operator() -> WindowedOperator:
        schema = pa.schema([*KEY, *query.schema])
        keys = (lambda payload: payload.select(["k"])), KEY
        spec = AggregateSpec(schema, INPUT, query.aggregations, *keys, breaks_ties=query.breaks_ties)
        return aggregate_over(spec, view, lambda of: NumberedIndex(of, Grid(size, hop, 0, until=40)))

    def windows(group: History) -> History:
        divided = denote.hopping(size, hop, 0, until=40)(group)
        return [Event(row, *window) for window, members in divided for row in query.rows(members)]

    drive = Driver(operator, INPUT)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert_equivalent(drive.history(), denote.grouped(drive.input_history(), "k", windows))


intervals = st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda x: (x[0], x[0] + x[1]))


@given(st.lists(intervals, max_size=12), st.integers(1, 4))
def test_the_first_ranges_over_every_place(ranges: list[tuple[int, int]], count: int) -> None:
    first, stop = (np.array([r[side] for r in ranges], np.int64) for side in (0, 1))
    expected = []
    for place in range(20):
        over = [n for n, (a, b) in enumerate(ranges) if a <= place < b][:count]
        expected.append(over + [-1] * (count - len(over)))
    assert least_of_ranges(20, first, stop, count).tolist() == expected


@pytest.mark.usefixtures("deep")
@given(st.data())
def test_what_is_found_decides_and_is_alive(data: st.DataObject) -> None:
    """After adding, removing and forgetting: in every tick of a stretch the first by rank are among them."""
    store = RankedEvents(pa.schema([("x", INT)]), (), ("vs", "ve"))
    pick = Pick(_by_value, data.draw(st.integers(1, 3)))
    held: dict[int, tuple[int, int, int, int]] = {}
    for number in range(data.draw(st.integers(1, 5))):
        fresh = data.draw(st.lists(st.tuples(intervals, st.integers(0, 1)), max_size=6))
        tags = np.arange(len(fresh), dtype=np.uint64) + np.uint64(100 * number)
        rows = pa.record_batch({"x": pa.array(data.draw(_values(len(fresh))), INT)})
        vs, ve = (np.array([e[0][side] for e in fresh], np.int64) for side in (0, 1))
        groups = np.array([e[1] for e in fresh], np.uint64)
        there = np.flatnonzero(ve > store.expired_until)
        store.insert(groups[there], vs[there], ve[there], tags[there], rows.take(pa.array(there)))
        held |= {int(tags[n]): (int(groups[n]), int(vs[n]), int(ve[n]), rows["x"][n].as_py()) for n in there}
        for group in (0, 1):
            _check_stretch(store, held, group, data.draw(intervals), pick)
        gone = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []
        store.remove(store.find(np.array(gone, np.uint64)))
        store.expire(t := max(store.expired_until, data.draw(st.integers(0, 6))))
        held = {tag: event for tag, event in held.items() if tag not in gone and event[2] > t}


def _values(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 3), min_size=size, max_size=size)


def _by_value(vs: Ticks, ve: Ticks, payload: pa.RecordBatch) -> np.ndarray:
    by_event = order_of_events(vs, ve, payload)
    return by_event[np.argsort(payload["x"].to_numpy()[by_event], kind="stable")]


def _check_stretch(
    store: RankedEvents,
    held: dict[int, tuple[int, int, int, int]],
    group: int,
    stretch: tuple[int, int],
    pick: Pick,
) -> None:
    low, high = (np.array([t]) for t in stretch)
    _, at = store.find_deciding(np.array([group], np.uint64), low, high, [pick])
    found = store.column("tag", at).tolist()
    for t in range(max(stretch[0], store.expired_until), stretch[1]):
        alive = {tag: e for tag, e in held.items() if e[0] == group and e[1] <= t < e[2]}
        best = sorted((x, vs, ve, tag) for tag, (_, vs, ve, x) in alive.items())[: pick.count]
        got = sorted((alive[tag][3], *alive[tag][1:3]) for tag in found if tag in alive)[: pick.count]
        assert got == [(x, vs, ve) for x, vs, ve, _ in best]
    overlapping = {
        tag for tag, e in held.items() if e[0] == group and e[1] < stretch[1] and e[2] > stretch[0]
    }
    assert set(found) <= overlapping


NUMBERS = {
    INT: st.sampled_from([0, 1, -1, 7, None, 2**63 - 1, -(2**63)]),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1, None]),
    FLOAT: st.sampled_from([-0.0, 0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), None]),
}


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("ratio", [0, 1, 4])
@given(data=st.data())
def test_values_by_rank_at_any_time(kind: pa.DataType, ratio: int, data: st.DataObject) -> None:
    """After events came, ends moved and time went on; groups and values come in any order."""
    counts, since = ValueCounts(kind), 0
    held: list[tuple[int, int | float | None, int, int]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        old = data.draw(st.lists(st.sampled_from(held), max_size=4, unique_by=id)) if held else []
        fresh = data.draw(
            st.lists(st.tuples(st.integers(0, 2), NUMBERS[kind], st.integers(0, 20)), max_size=6)
        )
        old = [event for event in old if event[3] >= since] + [(*event, event[2]) for event in fresh]
        new = [(g, x, vs, max(vs, since, data.draw(st.integers(vs, 30)))) for g, x, vs, _ in old]
        for event in old:
            if event in held:
                held.remove(event)
        held += new
        group = np.array([event[0] for event in old], np.uint64)
        ends = (np.array([event[3] for event in side], np.int64) for side in (old, new))
        counts.change(group, pa.array([event[1] for event in old], kind), *ends)
        since = max(since, data.draw(st.integers(0, 12)))
        counts.expire(since)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(value_counts, "_RATIO", ratio)
            _check_values(counts, held, since)


def _check_values(
    counts: ValueCounts, held: list[tuple[int, int | float | None, int, int]], since: int
) -> None:
    asked = [(group, t) for group in range(4) for t in range(since, 31)]
    found = counts.look_at(np.array([g for g, _ in asked], np.uint64), np.array([t for _, t in asked]))
    expected = []
    for group, t in asked:
        values = [x for g, x, vs, ve in held if g == group and vs <= t < ve and x is not None]
        expected.append(sorted(values, key=lambda x: (x != x, x)))
    assert found.count().tolist() == [len(values) for values in expected]
    rows = np.repeat(np.arange(len(asked)), found.count())
    rank = np.concatenate([np.arange(len(values)) for values in expected])
    wanted = np.array([float(x) for values in expected for x in values], np.float64)
    np.testing.assert_array_equal(found.find(rows, rank), wanted)


@given(st.data())
def test_the_first_start_that_is_shared(data: st.DataObject) -> None:
    ties, t = TiedStarts(), 0
    held: list[tuple[int, int, int]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        fresh = data.draw(st.lists(st.tuples(st.integers(0, 1), intervals), max_size=5))
        changes = [(g, t + vs, t + vs, t + ve) for g, (vs, ve) in fresh]
        movable = [event for event in held if event[2] >= t]
        moved = data.draw(st.lists(st.sampled_from(movable), max_size=3)) if movable else []
        for event in moved:
            if event in held:
                held.remove(event)
                g, vs, ve = event
                changes.append((g, vs, ve, data.draw(st.sampled_from([max(vs, t), ve + 2]))))
        held += [(g, vs, new) for g, vs, _, new in changes if new > vs]
        group, *times = (
            (np.array(column, np.int64) for column in zip(*changes, strict=True))
            if changes
            else ([np.zeros(0, np.int64)] * 4)
        )
        ties.change(group.astype(np.uint64), *times)
        t += data.draw(st.integers(0, 5))
        open_starts = [(g, vs) for g, vs, ve in held if vs < t <= ve]
        shared = [vs for g, vs in open_starts if open_starts.count((g, vs)) > 1]
        assert ties.earliest(t, lambda start, end: end > start) == min(shared, default=FOREVER)


SCHEMA = pa.schema([("x", FLOAT)])


def _elements(kind: int, vs: Ticks, ve: Ticks, new_ve: Ticks, x: np.ndarray) -> EventBatch:
    payload = pa.record_batch([pa.array(x)], schema=SCHEMA)
    return EventBatch(np.full(len(vs), kind, np.uint8), vs, ve, new_ve, np.zeros(len(vs), np.int64), payload)


def _memory_of_a_batch(measure: selections.Selection | TopK, live: int) -> int:
    """The least that one of some batches allocates: 20 events come, 20 of those alive end."""
    is_ordered = not isinstance(measure, Extreme | RankedValues)
    schema = pa.schema([("x", FLOAT), ("rank", INT)][: 1 + isinstance(measure, TopK)])
    x = partial(pa.RecordBatch.column, i="x")
    spec = AggregateSpec(schema, SCHEMA, [Aggregation(x, measure)], breaks_ties=is_ordered)
    operator, rng = aggregate_over(spec, "ended", SnapshotIndex), np.random.default_rng(0)
    vs, values, endless = np.arange(live), rng.random(live + 1000), np.full(live, FOREVER)
    operator.on_batch(0, _elements(INSERT, vs, endless, endless, values[:live]))
    operator.on_cti(0, live)
    least = 10**9
    for number in range(4):
        at = live + 20 * number + np.arange(20)
        gone, ends = 40 * number + np.arange(20), np.full(20, FOREVER)
        tracemalloc.start()
        operator.on_batch(0, _elements(RETRACT, gone, ends, at, values[gone]))
        operator.on_batch(0, _elements(INSERT, at, ends, ends, values[at]))
        operator.on_cti(0, int(at[0]))
        least = min(least, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return least


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        Extreme(greatest=True),
        Positional(last=False),
        Positional(last=True),
        TopK(2, descending=True),
        RankedValues(Quantile(expression("x"), 0.9).choose),
    ],
    ids=["max", "first", "last", "top 2", "quantile"],
)
def test_a_batch_does_not_look_at_all_live_events(measure: selections.Selection | TopK) -> None:
    """What was looked at has been allocated; 50,000 events have 400 kB in one column of numbers."""
    few, many = (_memory_of_a_batch(measure, live) for live in (10_000, 50_000))
    assert many < 200_000
    assert many < 2 * few


def test_windows_that_meet_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No moment lives in two of them: what is looked at follows the windows, not the 100,000 events."""
    looked_at, find = list[int](), RankedEvents.find_deciding

    def count(self: RankedEvents, group: Hashes, low: Ticks, high: Ticks, picks: Sequence[Pick]) -> Any:
        found = find(self, group, low, high, picks)
        looked_at.append(len(found[1]))
        return found

    monkeypatch.setattr(RankedEvents, "find_deciding", count)
    live = rc.session(rc.source("s", {"x": "int64"}).tumbling(100).agg(x=rc.max("x"), speculate="eager"))
    at = np.arange(100_000)
    live.push("s", pa.table({"_vs": at % 1000, "_ve": at % 1000 + 1, "x": at * 7 % 1000}))
    live.push("s", [rc.Insert({"x": 2000 + i}, 100 * i, 100 * i + 1) for i in range(10)])
    live.close()
    assert [event.payload["x"] for event in live.history().to_events()] == [2000 + i for i in range(10)]
    assert looked_at
    assert max(looked_at) < 1000
