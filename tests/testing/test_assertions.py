"""The messages of the assertions, and what they accept."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from recension.core.batch import from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.history import History
from recension.core.ticks import FOREVER
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
