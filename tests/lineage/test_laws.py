"""What `why` says holds: what is not named does not matter, and the biography is that of a run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.lineage.judge import answers_given

import recension as rc
from recension import Cti, Event, Insert, col
from recension.lineage import Why, explain_answer

SCHEMA = {"k": "string", "v": "int64"}
s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)


def events(text: str) -> list[Insert]:
    """``0-5 a 2; 3- b 1``: from, to, and the columns."""
    found = []
    for one in text.split("; "):
        times, k, v = one.split()
        start, end = times.split("-")
        found.append(Insert({"k": k, "v": int(v)}, int(start), int(end) if end else rc.FOREVER))
    return found


def history(query: rc.Stream, **inputs: Any) -> list[str]:
    return sorted(map(str, rc.run(query, inputs, close=True).history().to_events()))


def test_what_keeps_another_window_from_having_the_same_value_is_named() -> None:
    """[0, 5) is followed by a window of two: with one of them less they would be one fact, n = 1."""
    query = s.tumbling(5).agg(n=rc.count()).coalesce("n")
    feed = events("1-2 a 1; 6-7 a 1; 8-9 a 1")
    reason = rc.why(query, {"s": feed}, {"n": 1}, at=0, biography=False)
    named = [Insert(e.payload, e.vs, e.ve) for e in reason.events("s")]
    for without in [one for one in feed if one not in named]:
        left = [one for one in feed if one != without]
        assert str(reason.answer) in history(query, s=left), without
    assert len(named) == 3


@pytest.mark.parametrize("small", [-1, 1000])
def test_an_earlier_reading_would_hold_until_the_first(small: int) -> None:
    query = s.edges("k").group_by("k").sessions(2).agg(n=rc.count())
    feed = events("5-6 a 1; 9-10 a 2")
    (answer,) = rc.run(query, {"s": feed}, close=True).history().to_events()
    reason = explain_answer(query.plan, {"s": feed}, answer, biography=False, small=small)
    (absence,) = reason.absences
    earlier = Event({"k": "a", "v": 7}, 1, 2)
    assert str(answer) not in history(query, s=[*feed, Insert(earlier.payload, 1, 2)])
    assert absence.region.touches(earlier)


def test_a_filter_that_runs_below_a_step_is_below_it_in_the_explanation_too() -> None:
    """Two readings of b at one time: a run never sees them, and the step by itself would refuse them."""
    query = s.edges("k").where(col("k") == "a").select("v")
    feed = events("1-2 a 1; 3-4 b 1; 3-5 b 2; 6-7 a 2")
    reason = rc.why(query, {"s": feed}, {"v": 1}, at=2)
    assert str(reason.answer) in history(query, s=feed)
    assert [str(e) for e in reason.events("s")] == ["[1, 2) {'k': 'a', 'v': 1}", "[6, 7) {'k': 'a', 'v': 2}"]


# The biography.


def told(reason: Why) -> list[list[str]]:
    assert reason.biography is not None
    return [sorted(map(str, one.after)) for one in reason.biography.revisions]


def given(query: rc.Stream, inputs: Any, reason: Why, **options: Any) -> list[list[str]]:
    return answers_given(query.plan, inputs, reason.question, **options)


ALARMS = s.join(t, on="k", how="anti")
DOORS, GUARDS = events("0-9 a 1"), events("0-9 b 1; 0-4 a 1")


@pytest.mark.parametrize("first", ["s", "t"])
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
@pytest.mark.parametrize("close", [True, False])
def test_inputs_are_read_in_the_order_they_are_given_in(first: str, batch_size: int, close: bool) -> None:
    """Guards first, and nobody is given an alarm from 0 on."""
    feeds = {"s": [*DOORS, Cti(9)], "t": [*GUARDS, Cti(9)]}
    inputs = {name: feeds[name] for name in (first, "t" if first == "s" else "s")}
    reason = rc.why(ALARMS, inputs, {"k": "a"}, at=5, batch_size=batch_size, close=close)
    expected = given(ALARMS, inputs, reason, batch_size=batch_size, close=close)
    assert [one for one in told(reason) if one in expected] == expected
    if first == "t" and batch_size > 1:
        assert told(reason) == [["[4, 9) {'k': 'a', 'v': 1}"]]


def test_an_input_ends_after_its_last_batch() -> None:
    """It is closed when it is asked for more: the other input's third batch comes after that."""
    query = s.union(t).group_by("k").tumbling(5).agg(n=rc.count())
    inputs = {"s": events("0-1 a 1; 1-2 a 1"), "t": [*events("2-3 a 1; 3-4 a 1"), Cti(9)]}
    for close in (True, False):
        reason = rc.why(query, inputs, {"k": "a"}, at=2, batch_size=1, close=close)
        assert told(reason) == given(query, inputs, reason, batch_size=1, close=close)


def test_ctis_that_do_not_advance_are_in_a_batch_as_all_elements_are() -> None:
    inputs = {"s": [Cti(0), Cti(-1), Cti(-2), *DOORS], "t": GUARDS}
    reason = rc.why(ALARMS, inputs, {"k": "a"}, at=5, batch_size=2, close=True)
    assert told(reason) == given(ALARMS, inputs, reason, batch_size=2, close=True)


@pytest.mark.parametrize("rows", [1, 40])
def test_an_answer_that_time_has_shown_was_given_however_much_there_is(rows: int) -> None:
    """Rows of other keys let `advance_time` go on."""
    query = s.advance_time(3).group_by("k").tumbling(5).agg(n=rc.count())
    feed = [
        *events("1-2 a 1; 2-3 a 1"),
        *(Insert({"k": "b", "v": 0}, at, at + 1) for at in range(3, 3 + rows)),
    ]
    inputs = {"s": feed}
    (answer,) = [e for e in rc.run(query, inputs, close=True).history().to_events() if e.payload["k"] == "a"]
    for small in (-1, 1000):
        reason = explain_answer(query.plan, inputs, answer, small=small)
        assert reason.biography is not None
        assert reason.biography.is_shown == bool(given(query, inputs, reason, batch_size=1))
        assert reason.biography.is_shown == (rows == 40)


def test_what_another_key_releases_was_given_however_much_there_is() -> None:
    """A step that is kept in order shows nothing of a key before all others are as far."""
    query = s.group_by("k").agg(n=rc.count(), speculate="eager").align(4)
    inputs = {"s": [*events("1-2 a 1; 20-21 b 1; 40-41 b 1")]}
    (answer,) = [e for e in rc.run(query, inputs, close=True).history().to_events() if e.payload["k"] == "a"]
    for small in (-1, 1000):
        reason = explain_answer(query.plan, inputs, answer, small=small)
        assert reason.biography is not None
        assert reason.biography.is_shown == bool(given(query, inputs, reason, batch_size=1))
