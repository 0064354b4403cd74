"""The messages of the assertions, and what they accept."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recension.core.batch import RETRACT, from_elements, inserts
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing import assert_equivalent, assert_valid

P = pa.schema([("p", pa.string())])
A, B = {"p": "A"}, {"p": "B"}
CHAIN: list[Element] = [Insert(A, 6, 20), Retract(A, 6, 20, 30), Retract(A, 6, 30, 25), Cti(FOREVER)]


class Result:
    """Like the result of a query: it can tell its history."""

    def history(self) -> History:
        return History.from_events([Event(A, 6, 25)], P)


@pytest.mark.parametrize(
    "witness",
    [
        [Event(A, 6, 25)],
        [Insert(A, 6, 25)],
        CHAIN,
        from_elements(CHAIN, P),
        [from_elements(CHAIN[:2], P), from_elements(CHAIN[2:], P)],
        History.from_events([Event(A, 6, 25)], P),
        Result(),
        pa.table({"_vs": [6], "_ve": [25], "p": ["A"]}),
        pa.table({"_kind": ["open", "close"], "_vs": [6, None], "_ve": [None, 25], "p": ["A", "A"]}),
        pa.table(
            {
                "_kind": ["retract", "insert", "cti"],
                "_vs": [6, 6, None],
                "_ve": [None, None, None],
                "_new_ve": [25, None, None],
                "p": ["A", "A", None],
                "_batch": [1, 0, 1],
                "_seq": [0, 7, 1],
            }
        ),
    ],
    ids=lambda witness: type(witness).__name__,
)
def test_whatever_a_test_holds_can_be_compared(witness: Any) -> None:
    assert_equivalent(witness, [Event(A, 6, 25)])
    with pytest.raises(AssertionError):
        assert_equivalent(witness, [Event(A, 6, 26)])


def test_near_misses_are_shown_in_pairs() -> None:
    actual = [Event(A, 6, 7), Event(B, 8, 15), Event({"p": "C"}, 1, 2), Event({"p": "X"}, 3, 4)]
    expected = [Event(A, 6, 12), Event(B, 8), Event({"p": "D"}, 1, 2), Event({"p": "Y"}, 5, 6)]
    with pytest.raises(AssertionError) as caught:
        assert_equivalent(actual, expected)
    assert str(caught.value).splitlines() == [
        "the histories differ: 2 other lifetime, 1 other payload, 1 missing, 1 unexpected",
        "  other lifetime (expected -> actual):",
        "    [6, 12) -> [6, 7)  p='A'",
        "    [8, ∞) -> [8, 15)  p='B'",
        "  other payload (expected -> actual):",
        "    [1, 2)  p='D' -> p='C'",
        "  missing:",
        "    [5, 6)  p='Y'",
        "  unexpected:",
        "    [3, 4)  p='X'",
    ]


def test_a_start_in_common_pairs_before_a_payload_alone() -> None:
    with pytest.raises(AssertionError, match=r"\[6, 12\) -> \[6, 7\)"):
        assert_equivalent([Event(A, 1, 2), Event(A, 6, 7)], [Event(A, 6, 12)])


def test_two_identical_events_are_two() -> None:
    with pytest.raises(AssertionError, match=r"missing:\n    \[1, 2\)  p='A'  x2"):
        assert_equivalent([Event(A, 1, 2)], [Event(A, 1, 2)] * 3)


def test_long_lists_are_cut() -> None:
    with pytest.raises(AssertionError, match=r"30 missing(.|\n)*and 20 more"):
        assert_equivalent([], [Event({"p": str(i)}, i, i + 1) for i in range(30)])


def test_nulls_nans_and_rounding_are_equal() -> None:
    left = [
        Event({"x": 0.1 + 0.2, "y": None}, 0, 1),
        Event({"x": float("nan")}, 0, 1),
        Event({"x": 0.0}, 0, 1),
    ]
    right = [Event({"x": -0.0}, 0, 1), Event({"x": 0.3}, 0, 1), Event({"x": float("nan"), "y": None}, 0, 1)]
    assert_equivalent(left, right)
    with pytest.raises(AssertionError, match=r"x=1\.0 -> x=1\.001"):
        assert_equivalent([Event({"x": 1.001}, 0, 1)], [Event({"x": 1.0}, 0, 1)])


def test_lists_within_payloads_are_compared_by_their_members() -> None:
    assert_equivalent([Event({"x": [0.1 + 0.2, None]}, 0, 1)], [Event({"x": [0.3, None]}, 0, 1)])
    with pytest.raises(AssertionError):
        assert_equivalent([Event({"x": [1, 2]}, 0, 1)], [Event({"x": [2, 1]}, 0, 1)])


def test_truth_is_not_a_number() -> None:
    with pytest.raises(AssertionError):
        assert_equivalent([Event({"x": True}, 0, 1)], [Event({"x": 1}, 0, 1)])


def test_columns_that_differ_are_named() -> None:
    with pytest.raises(AssertionError, match=r"columns differ: expected \['p', 'q'\], got \['p'\]"):
        assert_equivalent(
            History.from_events([], P), History.from_events([], pa.schema([*P, ("q", pa.int64())]))
        )


def test_a_stream_that_has_no_history_is_an_error() -> None:
    with pytest.raises(StreamError, match="row 2: retracts an event that is not there"):
        assert_equivalent([Insert(A, 1, 5), Retract(A, 1, 6, 3)], [])


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ([Cti(5), Insert(A, 4, 6)], "element 2 of 2 breaks an earlier cti"),
        ([Insert(A, 1, 9), Cti(5), Retract(A, 1, 9, 4)], "breaks an earlier cti"),
        ([Insert(A, 1, 4), Cti(5), Retract(A, 1, 4, 8)], "breaks an earlier cti"),
        ([Retract(A, 1, 4, 8)], "not there"),
        ([Insert(A, 3, 3)], "ends before it has begun"),
        ([Insert(A, 1, 5), Retract(A, 1, 5, 5)], "changes nothing"),
        ([Insert(A, 1, 5), Retract(A, 1, 5, 0)], "an end before the start"),
        ([Cti(5), Cti(4)], "does not advance"),
        ([Cti(5), Cti(5)], "does not advance"),
    ],
)
def test_invalid_streams_are_found_out(stream: list[Element], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_valid(stream)
    with pytest.raises(AssertionError, match=reason):
        assert_valid(from_elements(stream, P))


def test_the_way_to_a_fault_is_shown() -> None:
    stream = [Insert(A, i, i + 1) for i in range(9)]
    with pytest.raises(AssertionError) as caught:
        assert_valid([*stream, Retract(B, 1, 2, 1)])
    lines = str(caught.value).splitlines()
    assert lines[0] == "element 10 of 10 retracts an event that is not there"
    assert lines[1].strip() == "..."
    assert lines[-1] == "    > retract [1, 2) -> 1 {'p': 'B'}"


def test_sources_may_repeat_ctis_and_orphans_may_be_left_to_others() -> None:
    assert_valid([Cti(5), Cti(4), Insert(A, 5, 6)], stale_ctis=True)
    assert_valid([Retract(A, 1, 4, 8)], orphans=False)


@pytest.mark.slow
def test_the_assertions_need_neither_hypothesis_nor_yaml() -> None:
    block = "import sys; sys.modules.update(hypothesis=None, yaml=None)"
    subprocess.run([sys.executable, "-c", f"{block}; import recension.testing"], check=True)


NS = pa.timestamp("ns")


def one(value: Any, kind: pa.DataType) -> pa.Table:
    """A history of one event, with a value in the type's own units."""
    column = (
        pa.array([value], pa.int64()).view(kind) if pa.types.is_temporal(kind) else pa.array([value], kind)
    )
    return pa.table({"_vs": [1], "_ve": [5], "x": column})


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (one(1500, NS), one(1600, NS)),
        (one(1500, pa.time64("ns")), one(1600, pa.time64("ns"))),
        (one(1500, pa.duration("ns")), one(1600, pa.duration("ns"))),
        (one(Decimal("1e-20"), pa.decimal128(38, 20)), one(Decimal(0), pa.decimal128(38, 20))),
        (one(Decimal(2**200), pa.decimal256(76, 0)), one(Decimal(2**200) + 1, pa.decimal256(76, 0))),
        ([Event({"x": "a"}, 1, 5)], [Event({"x": b"a"}, 1, 5)]),
        ([Event({"x": "1"}, 1, 5)], [Event({"x": 1}, 1, 5)]),
        ([Event({"x": 1e-20}, 1, 5)], [Event({"x": 0.0}, 1, 5)]),
        ([Event({"x": dt.date(2024, 1, 1)}, 1, 5)], [Event({"x": dt.datetime(2024, 1, 1)}, 1, 5)]),
    ],
    ids=lambda side: str(side)[:20] if isinstance(side, list) else str(side.schema.field("x").type),
)
@pytest.mark.parametrize(
    "form", [lambda side: side, lambda side: _as_batches(side)], ids=["table", "batches"]
)
def test_other_values_are_never_equal(actual: Any, expected: Any, form: Callable[[Any], Any]) -> None:
    for side in (actual, expected):
        assert_equivalent(form(side), side)
    with pytest.raises(AssertionError, match=r"^the histories differ: "):
        assert_equivalent(form(actual), expected)


@pytest.mark.parametrize("wrap", [lambda x: x, pa.list_, lambda x: pa.struct([("a", x)])])
def test_views_of_texts_are_texts(wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    plain = pa.array(["one", None, "two"]).cast(pa.string())
    inner = {"list": [["one"], None, ["two"]], "struct": [{"a": "one"}, None, {"a": "two"}]}
    kind = str(wrap(pa.string())).partition("<")[0]
    values = inner.get(kind, plain.to_pylist())
    texts, views = (
        pa.table({"_vs": [1, 2, 3], "x": pa.array(values, wrap(of))})
        for of in (pa.string(), pa.string_view())
    )
    assert_equivalent(views, texts)
    with pytest.raises(AssertionError, match=r"^the histories differ: "):
        assert_equivalent(views.slice(0, 2), texts)


def _as_batches(side: Any) -> Any:
    """The same as batches of elements, inserted and told again."""
    if isinstance(side, list):
        return [Insert(event.payload, event.vs, event.ve) for event in side]
    payload = side.select(["x"]).to_batches()[0]
    rows = inserts(np.array([1]), np.array([5]), payload)
    gone = replace(rows, kind=np.array([RETRACT], np.uint8), new_ve=np.array([1]))
    return [rows, gone, rows]


MOMENT = dt.datetime(1970, 1, 1, 0, 0, 0, 5)
KINDS: dict[str, list[Any]] = {
    "ticks": [Event(A, 5, 9)],
    "naive": [Event(A, MOMENT, dt.datetime(1970, 1, 1, 0, 0, 0, 9))],
    "aware": [Event(A, MOMENT.replace(tzinfo=dt.UTC), "1970-01-01T00:00:00.000009Z")],
}


@pytest.mark.parametrize("actual", KINDS)
@pytest.mark.parametrize("expected", KINDS)
def test_times_of_two_kinds_are_not_the_same(actual: str, expected: str) -> None:
    if actual == expected:
        assert_equivalent(KINDS[actual], KINDS[expected])
        return
    with pytest.raises(
        AssertionError, match=r"^the histories differ: the times are .* on one side and .* on"
    ):
        assert_equivalent(KINDS[actual], KINDS[expected])
    with pytest.raises(AssertionError, match="the times are"):
        assert_equivalent(History.from_events(KINDS[actual], P), KINDS[expected])


def test_ends_of_time_and_batches_go_with_times_of_any_kind() -> None:
    assert_equivalent([Event(A, BEGINNING, FOREVER)], History.from_events([Event(A, BEGINNING, FOREVER)], P))
    assert_equivalent(from_elements([Insert(A, 5, 9)], P), KINDS["aware"])
    assert_equivalent([], History.from_events([], P))


def test_rows_whose_rounding_swaps_their_order() -> None:
    left = [Event({"x": 1.0 + 1e-12, "y": 1}, 0, 1), Event({"x": 1.0, "y": 2.0}, 0, 1)]
    right = [Event({"x": 1.0, "y": 1}, 0, 1), Event({"x": 1.0 + 1e-12, "y": 2.0}, 0, 1)]
    assert_equivalent(left, right)


def test_values_without_a_type_of_their_own_take_that_of_the_other_side() -> None:
    kind = pa.map_(pa.string(), pa.int8())
    table = pa.table({"_vs": [1], "_ve": [5], "x": pa.array([[("a", 1)]], kind)})
    assert_equivalent(table, [Event({"x": [("a", 1)]}, 1, 5)])
    assert_equivalent([Event({"x": "a"}, 1), Event({"x": 1}, 2)], [Event({"x": 1}, 2), Event({"x": "a"}, 1)])
