"""Snapshot aggregates: what each variant shows after every batch, under any disorder and batching."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recension
from recension import denote
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.order import History
from recension.operators.state import block_table, group_counts
from recension.operators.windowed import accumulators as sums
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation, aggregate_over
from recension.operators.windowed.index import View
from recension.operators.windowed.operator import WindowedOperator
from recension.operators.windowed.selections import (
    Collect,
    Extreme,
    Positional,
    RankedValues,
    SortedValues,
    TopK,
)
from recension.operators.windowed.snapshots import SnapshotIndex
from recension.plan.aggregates import Quantile, StdDev
from recension.plan.expressions import expression
from recension.plan.node import Speculate
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.physical import sync_time
from recension.testing.strategies import batchings, events, physical_streams

INPUT = pa.schema([("k", pa.string()), ("i", pa.int64()), ("f", pa.float64())])
KEY = pa.schema([INPUT.field("k")])
VIEWS: dict[Speculate, View] = {"eager": "all", "ordered": "present", "perfect": "ended"}
VARIANTS = list(VIEWS)

i, f = partial(pa.RecordBatch.column, i="i"), partial(pa.RecordBatch.column, i="f")


@dataclass(frozen=True)
class Query:
    """Aggregates as the operator gets them, and what they mean."""

    schema: pa.Schema
    aggregations: list[Aggregation]
    rows: denote.RowFunction
    breaks_ties: bool = False
    is_sum: bool = False
    large: float = 1e3

    def operator(self, variant: Speculate, *, grouped: bool) -> WindowedOperator:
        schema = pa.schema([*KEY, *self.schema]) if grouped else self.schema
        keys: tuple[Any, Any] = (lambda payload: payload.select(["k"]), KEY) if grouped else (None, None)
        spec = AggregateSpec(schema, INPUT, self.aggregations, *keys, breaks_ties=self.breaks_ties)
        return aggregate_over(spec, VIEWS[variant], SnapshotIndex)

    def meaning(self, history: History, *, grouped: bool) -> History:
        if grouped:
            return denote.grouped(history, "k", lambda group: denote.snapshot(group, self.rows))
        return denote.snapshot(history, self.rows)


INT, FLOAT = pa.int64(), pa.float64()
SUMS = Query(
    pa.schema([("n", INT), ("c", INT), ("s", INT), ("m", FLOAT), ("fs", FLOAT), ("fm", FLOAT)]),
    [
        Aggregation(None, sums.CountEvents()),
        Aggregation(i, sums.CountValues()),
        Aggregation(i, sums.SumIntegers()),
        Aggregation(i, sums.MeanIntegers()),
        Aggregation(f, sums.SumFloats()),
        Aggregation(f, sums.Mean()),
    ],
    denote.agg(
        n=denote.count(),
        c=denote.count("i"),
        s=denote.sum("i"),
        m=denote.mean("i"),
        fs=denote.sum("f"),
        fm=denote.mean("f"),
    ),
    is_sum=True,
    large=1e16,
)
QUERIES = {
    "count": Query(
        pa.schema([("n", INT)]),
        [Aggregation(None, sums.CountEvents())],
        denote.agg(n=denote.count()),
        is_sum=True,
    ),
    "sums": SUMS,
    "stddev": Query(
        pa.schema([("d", FLOAT)]),
        [Aggregation(f, SortedValues(StdDev(expression("f")).kernel, FLOAT))],
        denote.agg(d=denote.stddev("f")),
        large=1e300,
    ),
    "extremes": Query(
        pa.schema([("a", INT), ("b", FLOAT), ("q", FLOAT)]),
        [
            Aggregation(i, Extreme(greatest=False)),
            Aggregation(f, Extreme(greatest=True)),
            Aggregation(f, RankedValues(Quantile(expression("f"), 0.3).choose)),
        ],
        denote.agg(a=denote.min("i"), b=denote.max("f"), q=denote.quantile("f", 0.3)),
    ),
    "positions": Query(
        pa.schema([("a", INT), ("b", FLOAT), ("n", INT), ("l", pa.list_(INT))]),
        [
            Aggregation(i, Positional(last=False)),
            Aggregation(f, Positional(last=True)),
            Aggregation(None, sums.CountEvents()),
            Aggregation(i, Collect()),
        ],
        denote.agg(a=denote.first("i"), b=denote.last("f"), n=denote.count(), l=denote.collect("i")),
        breaks_ties=True,
    ),
    "top": Query(
        pa.schema([INPUT.field("i"), INPUT.field("f"), ("rank", INT)]),
        [Aggregation(i, TopK(2, descending=True))],
        lambda alive: [
            {name: row[name] for name in ("i", "f", "rank")} for row in denote.top_k(2, by="i")(alive)
        ],
        breaks_ties=True,
    ),
}


def histories(query: Query) -> st.SearchStrategy[History]:
    """Few distinct values, among them all that is not a number, and some that swallow the others' digits."""
    floats = [1.5, 0.1, query.large, -query.large, float("nan"), float("inf"), -float("inf"), None]
    columns = {
        "k": st.sampled_from(["a", "b", None]),
        "i": st.sampled_from([1, 0, -5, 7, None]),
        "f": st.sampled_from(floats),
    }
    found = st.lists(events(st.fixed_dictionaries(columns)), max_size=6)
    return found.map(lambda events: events + events[:1])


def shown(variant: Speculate, meaning: History, m: int) -> History:
    """The part of the answer a variant shows when the watermark is ``m``."""
    if variant == "perfect":
        return [e for e in meaning if e.ve <= m]
    if variant == "ordered":
        return [Event(e.payload, e.vs, e.ve if e.ve <= m else FOREVER) for e in meaning if e.vs <= m]
    return meaning


def promised(variant: Speculate, meaning: History, t: int) -> int:
    """Ruling B10: ``perfect`` holds its CTI at the snapshot that reaches up to it."""
    if variant != "perfect" or t == FOREVER:
        return t
    return min([t, *(e.vs for e in meaning if e.vs < t <= e.ve)])


def bound(history: History, t: int, *, grouped: bool) -> int:
    """End points from the CTI on, and one before it, of every group that still has any."""
    reaching = [e for e in history if e.ve >= t]
    groups = {e.payload["k"] if grouped else None for e in reaching}
    points = {(e.payload["k"] if grouped else None, x) for e in reaching for x in (e.vs, e.ve) if x >= t}
    return len(groups) + len(points)


def check(data: st.DataObject, query: Query, variant: Speculate, *, grouped: bool) -> None:
    """Drive a random stream through the operator and compare after every batch."""
    drive, m = Driver(lambda: query.operator(variant, grouped=grouped), INPUT), BEGINNING
    expected_cti = BEGINNING
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(query)))))):
        answers = drive.feed(batch)
        lengthened = [e for e in answers if isinstance(e, Retract) and e.new_ve > e.ve]
        assert variant != "perfect" or not lengthened
        m = max([m, drive.input_cti(), *(e.vs for e in batch if isinstance(e, Insert))])
        meaning = query.meaning(drive.input_history(), grouped=grouped)
        assert_equivalent(drive.history(), shown(variant, meaning, m))
        if query.is_sum and any(isinstance(e, Cti) for e in batch):
            t = drive.input_cti()
            expected_cti = max(expected_cti, promised(variant, meaning, t))
            assert drive.cti == expected_cti
            assert drive.operator.state_rows() <= bound(drive.input_history(), t, grouped=grouped)
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.cti == FOREVER
    assert drive.operator.state_rows() == 0
    assert drive.operator.state_bytes() == 0 or not query.is_sum


@pytest.mark.pairs
@pytest.mark.parametrize("grouped", [False, True], ids=["ungrouped", "grouped"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
@settings(max_examples=max(3, settings().max_examples // 2))
def test_after_every_batch_the_history_is_the_oracles(
    name: str, variant: Speculate, grouped: bool, data: st.DataObject
) -> None:
    check(data, QUERIES[name], variant, grouped=grouped)


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_where_state_is_cut_and_how_groups_are_numbered_does_not_matter(
    variant: Speculate, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 2)
        patch.setattr(group_counts, "_REUSE_AT", 0)
        check(data, SUMS, variant, grouped=True)


def is_ordered(elements: Sequence[Element]) -> bool:
    data = [sync_time(e) for e in elements if not isinstance(e, Cti)]
    return all(a <= b for a, b in pairwise(data))


def outputs(data: st.DataObject, make: Callable[[], WindowedOperator], **shape: bool) -> list[Element]:
    drive = Driver(make, INPUT)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(SUMS)), **shape)))):
        drive.feed(batch)
    return drive.output


@given(st.data())
def test_perfect_turns_perfect_input_into_perfect_output(data: st.DataObject) -> None:
    make = partial(SUMS.operator, "perfect", grouped=False)
    found = outputs(data, make, insert_only=True, ordered=True)
    assert is_ordered(found)
    assert not any(isinstance(e, Retract) for e in found)


@pytest.mark.parametrize("grouped", [False, True], ids=["ungrouped", "grouped"])
@given(data=st.data())
def test_ordered_turns_ordered_input_into_ordered_output(grouped: bool, data: st.DataObject) -> None:
    assert is_ordered(outputs(data, partial(SUMS.operator, "ordered", grouped=grouped), ordered=True))


def count(variant: Speculate, *steps: Element) -> list[list[str]]:
    """The answers to one element at a time, counting."""
    drive = Driver(lambda: QUERIES["count"].operator(variant, grouped=False), INPUT)
    return [[str(e) for e in drive.feed([step])] for step in steps]


def n(number: int, vs: int, ve: int = FOREVER) -> Insert:
    return Insert({"n": number}, vs, ve)


def moved(number: int, vs: int, ve: int, new_ve: int) -> Retract:
    return Retract({"n": number}, vs, ve, new_ve)


A, B, C = ({"k": name, "i": None, "f": None} for name in "abc")
THREE: list[Element] = [
    Insert(A, 0, 5),
    Insert(B, 0, 20),
    Insert(C, 10, 12),
    Cti(11),
    Retract(C, 10, 12, 11),
    Cti(25),
]
ANSWERS: dict[Speculate, list[list[Element]]] = {
    "perfect": [
        [],
        [],
        [n(2, 0, 5), n(1, 5, 10)],
        [Cti(10)],
        [n(2, 10, 11)],
        [n(1, 11, 20), Cti(25)],
    ],
    "ordered": [
        [n(1, 0)],
        [moved(1, 0, FOREVER, 0), n(2, 0)],
        [moved(2, 0, FOREVER, 5), n(1, 5, 10), n(2, 10)],
        [Cti(11)],
        [moved(2, 10, FOREVER, 11), n(1, 11)],
        [moved(1, 11, FOREVER, 20), Cti(25)],
    ],
    "eager": [
        [n(1, 0, 5)],
        [moved(1, 0, 5, 0), n(2, 0, 5), n(1, 5, 20)],
        [moved(1, 5, 20, 10), n(2, 10, 12), n(1, 12, 20)],
        [Cti(11)],
        [moved(2, 10, 12, 11), n(1, 11, 20), moved(1, 12, 20, 12)],
        [Cti(25)],
    ],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_three_variants_side_by_side(variant: Speculate) -> None:
    """Rulings H, 3-VAR."""
    assert count(variant, *THREE) == [[str(e) for e in answer] for answer in ANSWERS[variant]]


@pytest.mark.parametrize("order", [1, -1])
def test_minus_nothing_is_nothing_where_ties_go_by_payload(order: int) -> None:
    """0.0 and -0.0 are one value: the next column decides, whichever of them came first."""
    rows = [{"f": 0.0, "k": "b"}, {"f": -0.0, "k": "a"}]
    source = recension.source("s", pa.schema([("f", pa.float64()), ("k", pa.string())]))
    elements = [Insert(row, 1, 5) for row in rows[::order]]
    found = recension.run(source.agg(all=recension.collect("k")), {"s": elements}, close=True)
    assert [event.payload["all"] for event in found.history().to_events()] == [["a", "b"]]
