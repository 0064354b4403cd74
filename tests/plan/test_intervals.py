"""Temporal predicates agree with their endpoint definitions, exclude each other and leave nothing out."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import intervals as meaning
from recension.plan.evaluation import evaluate
from recension.plan.expressions import expression, result_type
from recension.plan.intervals import RELATIONS

COLUMNS = ("valid_start", "valid_end", "valid_start_right", "valid_end_right")
ONE, OTHER = rc.valid(), rc.valid("_right")
TICKS = pa.int64()
THIRTEEN = {holds.__name__: holds(ONE, OTHER) for holds in RELATIONS}

Drawn = tuple[int, int]


@st.composite
def intervals(draw: st.DrawFn) -> Drawn:
    """Few times, so that ends meet; some intervals are empty, some never end, some reach back for ever."""
    times = st.integers(0, 5) | st.sampled_from([BEGINNING, FOREVER - 1])
    start = draw(times)
    end = draw(times | st.just(FOREVER) | st.just(start))
    return min(start, end), max(start, end)


pairs = st.lists(st.tuples(intervals(), intervals()), min_size=1, max_size=40)


def table(drawn: list[tuple[Drawn, Drawn]], kind: pa.DataType = TICKS) -> pa.RecordBatch:
    """Ends that never come are null."""
    columns = [[one[i] for one, _ in drawn] for i in (0, 1)] + [
        [other[i] for _, other in drawn] for i in (0, 1)
    ]
    known = [[None if x == FOREVER else x for x in column] for column in columns]
    return pa.record_batch([pa.array(column, pa.int64()).cast(kind) for column in known], names=COLUMNS)


def values(computed: rc.Expr, payload: pa.RecordBatch) -> list[object]:
    return columns([computed], payload)[0]


def columns(computed: Sequence[rc.Expr], payload: pa.RecordBatch) -> list[list[object]]:
    wanted = [expression(each) for each in computed]
    kinds = [result_type(each, payload.schema, "test") for each in wanted]
    return [found.to_pylist() for found in evaluate(wanted, kinds, payload)]


@given(pairs)
def test_relations_agree_with_their_endpoints(drawn: list[tuple[Drawn, Drawn]]) -> None:
    payload = table(drawn)
    *truths, named = columns([*THIRTEEN.values(), rc.relation(ONE, OTHER)], payload)
    holding = dict(zip(THIRTEEN, truths, strict=True))
    for i, (one, other) in enumerate(drawn):
        # Exactly one of the thirteen is true, and the others are false, not null: they can be negated.
        expected = meaning.relation(one, other)
        assert {name: true[i] for name, true in holding.items()} == {
            name: name == expected for name in holding
        }
        assert named[i] == expected


@given(pairs)
def test_shared_instants(drawn: list[tuple[Drawn, Drawn]]) -> None:
    payload, shared = table(drawn), rc.intersect(ONE, OTHER)
    asked = [shared.start, shared.end, rc.duration(shared), rc.intersects(ONE, OTHER)]
    for (one, other), start, end, length, truth in zip(drawn, *columns(asked, payload), strict=True):
        expected = meaning.shared_part(one, other)
        assert truth is (expected is not None)
        if expected is None:
            assert (start, end, length) == (None, None, None)
        else:
            assert (start, FOREVER if end is None else end) == expected
            assert length == meaning.duration(expected)


def test_there_are_thirteen() -> None:
    proper = list(itertools.combinations(range(5), 2))
    names = {meaning.relation(one, other) for one in proper for other in proper}
    assert names == set(THIRTEEN)
    assert len(names) == 13


def test_nothing_is_true_of_an_interval_that_is_not_there() -> None:
    payload = pa.record_batch(
        [
            pa.array(column, pa.int64())
            for column in ([1, 1, None], [None, 4, 4], [None] * 3, [None, None, 3])
        ],
        names=COLUMNS,
    )
    for holds in (*RELATIONS, rc.intersects):
        assert True not in values(holds(ONE, OTHER), payload)
        assert True not in values(holds(OTHER, ONE), payload)
    assert values(rc.relation(ONE, OTHER), payload) == [None] * 3
    assert values(rc.duration(rc.intersect(ONE, OTHER)), payload) == [None] * 3
    assert values(rc.duration(ONE), payload) == [FOREVER, 3, None]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_timestamps_are_intervals_too(kind: pa.DataType) -> None:
    drawn = [((1, 4), (2, FOREVER)), ((1, 4), (4, 9)), ((3, 3), (3, 7)), ((2, FOREVER), (2, FOREVER))]
    payload = table(drawn, kind)
    one, other = rc.interval(*COLUMNS[:2]), rc.interval(*COLUMNS[2:])
    assert values(rc.relation(one, other), payload) == ["overlaps", "meets", "starts", "equals"]
    shared = rc.intersect(one, other)
    assert result_type(expression(shared.start), payload.schema, "test") == kind
    assert values(rc.duration(shared), payload) == [2, None, None, FOREVER]
    assert values(rc.duration(one) >= rc.duration("3us"), payload) == [True, True, False, True]


def test_dates_and_other_words_for_ever() -> None:
    day, never = dt.date, dt.date(9999, 12, 31)
    payload = pa.record_batch({"hired": [day(2024, 1, 1)] * 3, "left": [day(2024, 1, 3), never, None]})
    employed = rc.interval("hired", "left", forever=never)
    assert values(rc.duration(employed), payload) == [2 * rc.duration("1d"), FOREVER, FOREVER]
    assert values(rc.equals(employed, ("hired", "left")), payload) == [True, False, True]


def test_pairs_of_columns_will_do_and_nothing_else() -> None:
    payload = table([((1, 4), (2, 5))])
    assert values(rc.overlaps(COLUMNS[:2], (rc.col(COLUMNS[2]), COLUMNS[3])), payload) == [True]
    with pytest.raises(rc.SchemaError, match="meets: 'valid_start' is no interval"):
        rc.meets("valid_start", ONE)  # type: ignore[arg-type]
    assert rc.duration("90s") == 90_000_000
