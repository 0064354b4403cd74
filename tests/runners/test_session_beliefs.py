"""What a session believed when: its history as of an earlier time of its clock."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.difference import difference
from recension.core.events import Element
from recension.testing.strategies import SCHEMA, histories, physical_streams

s = rc.source("s", {"k": "string"})
P = {"k": "a"}


class Hands:
    """A clock that is set by hand."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def events(history: rc.History) -> list[str]:
    return [str(event) for event in history.to_events()]


def test_what_was_believed_before_a_correction() -> None:
    clock = Hands()
    live = rc.session(s, clock=clock, keep="1m")
    live.push("s", [rc.Insert(P, 1, 9)])
    clock.now += 5
    live.push("s", [rc.Retract(P, 1, 9, 4)])
    clock.now += 5
    live.push("s", [rc.Retract(P, 1, 4, 1), rc.Insert(P, 2, 3)])
    assert events(live.history(as_of=1_000_004)) == ["[1, 9) {'k': 'a'}"]
    assert events(live.history(as_of=1_000_005)) == ["[1, 4) {'k': 'a'}"]
    assert events(live.history(as_of="1970-01-01T00:00:01.000009Z")) == ["[1, 4) {'k': 'a'}"]
    assert events(live.history(as_of=clock.now)) == events(live.history()) == ["[2, 3) {'k': 'a'}"]


def test_as_far_back_as_keep_says() -> None:
    clock = Hands()
    live = rc.session(s, clock=clock, keep=10)
    for n in range(5):
        live.push("s", [rc.Insert(P, n, n + 1)])
        clock.now += 4
    # The last push was at 16: what was at 6 is known, from the push at 4 on.
    assert len(live.history(as_of=1_000_006)) == 2
    assert len(live.history(as_of=1_000_004)) == 2
    with pytest.raises(
        rc.RecensionError, match=r"00:00:01.000003\+00:00 is no longer kept: the earliest time is .*000004"
    ):
        live.history(as_of=1_000_003)


def test_refusals() -> None:
    clock = Hands()
    with pytest.raises(rc.RecensionError, match=r"rc\.session\(\.\.\., keep='1h'\)"):
        rc.session(s, clock=clock).history(as_of=5)
    live = rc.session(s, clock=clock, keep="1h")
    refused: list[tuple[Any, str]] = [
        (clock.now + 1, "yet to come"),
        (dt.datetime(1970, 1, 1), "has no time zone"),
        ("soon", "not an ISO 8601"),
        (999_999, "is no longer kept: the earliest time is"),
    ]
    for as_of, message in refused:
        with pytest.raises(rc.RecensionError, match=message):
            live.history(as_of=as_of)
    with pytest.raises(rc.TimeError, match="keep is a length of time from 0"):
        rc.session(s, keep=-1)
    with pytest.raises(rc.RecensionError, match="history_limit=0"):
        rc.session(s, clock=clock, keep="1h", history_limit=0).history(as_of=clock.now)


def test_a_clock_that_goes_back_does_not_take_belief_with_it() -> None:
    clock = Hands()
    live = rc.session(s, clock=clock, keep="1m")
    live.push("s", [rc.Insert(P, 1, 9)])
    clock.now -= 500
    live.push("s", [rc.Retract(P, 1, 9, 4)])
    clock.now += 1000
    assert events(live.history(as_of=1_000_000)) == ["[1, 4) {'k': 'a'}"]


@given(st.data())
def test_the_past_is_what_it_was(data: st.DataObject) -> None:
    """After any pushes, with a snapshot somewhere, every earlier answer is found again."""
    stream: list[Element] = data.draw(histories(SCHEMA).flatmap(physical_streams))
    query = rc.source("s", SCHEMA)
    clock = Hands()
    live = rc.session(query, clock=clock, keep="1h")
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=4).map(sorted))
    then: list[tuple[int, rc.History]] = [(clock.now, live.history())]
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        clock.now += data.draw(st.integers(1, 3))
        live.push("s", stream[start:stop])
        then.append((clock.now, live.history()))
        if data.draw(st.booleans()):
            saved = live.snapshot()
            live = rc.session(query, clock=clock, keep="1h")
            live.restore(saved)
    for (at, expected), until in zip(then, [*(at for at, _ in then[1:]), clock.now + 1], strict=True):
        for as_of in {at, until - 1}:
            assert not difference(live.history(as_of=as_of), expected)
