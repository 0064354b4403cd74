"""Windows near both ends of time: they begin and end there, as the oracle says (ruling A7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension import denote
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.windowed.grid import GAP
from recension.testing import assert_equivalent, assert_valid

SOURCE = rc.source("s", {"x": "int64"})
AGGREGATES: dict[str, Any] = {"n": rc.count(), "top": rc.max("x")}
ROWS = denote.agg(n=denote.count(), top=denote.max("x"))
SPECULATE = ["perfect", "ordered", "eager"]


def answer(query: rc.Stream, events: list[Event]) -> list[Element]:
    """All events, one of them taken back again, and all CTIs."""
    gone = Event({"x": 99}, events[0].vs, events[0].ve)
    feed: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in [gone, *events]]
    feed.append(Retract(gone.payload, gone.vs, gone.ve, gone.vs))
    early = min(e.vs for e in events)
    out = rc.run(
        query, {"s": [*feed, Cti(early), Cti(max(e.vs for e in events)), Cti(FOREVER)]}, batch_size=1
    )
    assert_valid(out.elements())
    return list(out.elements())


def near(*places: int) -> st.SearchStrategy[list[Event]]:
    def event(place: int, at: int, length: int, x: int) -> Event:
        vs = max(BEGINNING + 1, min(place + at, FOREVER - 2))
        return Event({"x": x}, vs, min(vs + length, FOREVER - 1))

    some = st.builds(
        event, st.sampled_from(places), st.integers(-20, 20), st.integers(1, 12), st.integers(0, 3)
    )
    return st.lists(some, min_size=1, max_size=4)


GRIDS = [
    (10, 10, 0), (10, 3, 0), (3, 7, 1), (5, 5, FOREVER - 1), (4, 2, BEGINNING + 3), (9, 4, -(2**62)),
]  # fmt: skip


@pytest.mark.parametrize("speculate", SPECULATE)
@given(st.sampled_from(GRIDS), st.data())
def test_grids(speculate: Any, grid: tuple[int, int, int], data: st.DataObject) -> None:
    size, hop, offset = grid
    events = data.draw(near(data.draw(st.sampled_from([BEGINNING, 0, FOREVER]))))
    query = SOURCE.hopping(size, hop, offset=offset).agg(**AGGREGATES, speculate=speculate)
    windows = denote.hopping(size, hop, offset)
    assert_equivalent(answer(query, events), denote.window_aggregate(events, windows, ROWS))


@pytest.mark.parametrize("speculate", SPECULATE)
@given(st.integers(1, 3), st.sampled_from(["start", "end"]), near(BEGINNING, 0, FOREVER))
def test_count_windows(speculate: Any, n: int, by: Any, events: list[Event]) -> None:
    query = SOURCE.count_window(n, by=by).agg(**AGGREGATES, speculate=speculate)
    assert_equivalent(
        answer(query, events), denote.window_aggregate(events, denote.count_window(n, by), ROWS)
    )


@pytest.mark.parametrize("speculate", SPECULATE)
@pytest.mark.parametrize(
    ("size", "offset", "lifetime"),
    [
        (10, 0, (FOREVER - 5, FOREVER - 1)),
        (5, FOREVER - 1, (-4, 4)),
        (2**61, -(2**62), (2**62 + 1, 2**62 + 2)),
        (2**62, 2**61, (-(2**62), 2**62)),
        (FOREVER, 0, (-5, 5)),
        (10, 0, (-FOREVER + 1, -FOREVER + 4)),
    ],
)
def test_wide_windows(speculate: Any, size: int, offset: int, lifetime: tuple[int, int]) -> None:
    events = [Event({"x": 1}, *lifetime)]
    query = SOURCE.tumbling(size, offset=offset).agg(**AGGREGATES, speculate=speculate)
    windows = denote.tumbling(size, offset)
    assert_equivalent(answer(query, events), denote.window_aggregate(events, windows, ROWS))


def test_near_a_time_that_nobody_uses_there_are_more_windows_of_one_tick_than_numbers() -> None:
    query = SOURCE.hopping(3, 1).agg(**AGGREGATES)
    for lifetime in ((GAP - 9, GAP + 9), (GAP - 3, GAP - 2), (GAP - 9, FOREVER), (GAP + 1, GAP + 2)):
        with pytest.raises(rc.RecensionError, match="cannot be numbered"):
            answer(query, [Event({"x": 1}, *lifetime)])


@pytest.mark.parametrize("speculate", SPECULATE)
@given(st.sampled_from([1, 2, 3, 6]), st.data())
def test_every_tick(speculate: Any, size: int, data: st.DataObject) -> None:
    events = data.draw(near(BEGINNING, FOREVER, GAP - 60, GAP + 60))
    query = SOURCE.hopping(size, 1).agg(**AGGREGATES, speculate=speculate)
    windows = denote.hopping(size, 1)
    assert_equivalent(answer(query, events), denote.window_aggregate(events, windows, ROWS))


def test_a_window_for_every_tick_before_an_event() -> None:
    events = [Event({"x": 1}, BEGINNING + 1, BEGINNING + 4)]
    out = rc.run(SOURCE.hopping(3, 1).agg(n=rc.count()), {"s": feed(events)})
    lifetimes = [(e.vs - BEGINNING, e.ve - BEGINNING) for e in out.history().to_events()]
    assert lifetimes == [(0, 2), (0, 3), (1, 4), (2, 5), (3, 6)]


def feed(events: list[Event]) -> list[Element]:
    return [*(Insert(e.payload, e.vs, e.ve) for e in events), Cti(FOREVER)]


@pytest.mark.parametrize("apart", [2**61, 2**62 - 1, 2**62, 2**62 + 1, 3 * 2**61, 2**63 - 1, 2**63 + 2**61])
@pytest.mark.parametrize("speculate", SPECULATE)
def test_windows_come_in_order_however_far_apart_they_are(speculate: Any, apart: int) -> None:
    early = GAP - 2**61 + 9
    events = [Insert({"k": "b", "x": 1}, early + apart, early + apart + 1)]
    events.append(Insert({"k": "a", "x": 2}, early, early + 1))
    source = rc.source("s", {"k": "string", "x": "int64"})
    query = source.group_by("k").tumbling(1).agg(n=rc.count(), speculate=speculate)
    out = rc.run(query, {"s": [*events, Cti(FOREVER)]})
    assert [(e.payload["k"], e.vs) for e in out.elements() if isinstance(e, Insert)] == [
        ("a", early),
        ("b", early + apart),
    ]
