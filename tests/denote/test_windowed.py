from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from recension.core.errors import RecensionError
from recension.core.events import Event, Payload
from recension.core.ticks import FOREVER
from recension.denote import (
    History,
    TimeSensitive,
    Window,
    agg,
    canonical,
    count,
    count_window,
    first,
    grouped,
    sum,
    top_k,
    tumbling,
    window_aggregate,
    window_apply,
    window_measure,
)

#   windows  |----[0,5)----|----[5,10)----|
#   event          [3 ========= 7)
CROSSING = [Event({"v": 10}, 3, 7)]


def echo(events: History, window: Window) -> History:
    return events


def weighted(events: History, window: Window) -> float:
    """The time-weighted average of [SI] IV."""
    total = 0.0
    for event in events:
        total += event.payload["v"] * (event.ve - event.vs)
    return total / (window.end - window.start)


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        ("none", [(3, 7), (3, 7)]),
        ("left", [(3, 7), (5, 7)]),
        ("right", [(3, 5), (3, 7)]),
        ("full", [(3, 5), (5, 7)]),
    ],
)
def test_input_clipping(
    clip: Literal["none", "left", "right", "full"], expected: list[tuple[int, int]]
) -> None:
    seen: list[tuple[int, int]] = []

    def look(events: History, window: Window) -> list[Payload]:
        seen.extend((event.vs, event.ve) for event in events)
        return []

    assert window_apply(CROSSING, tumbling(5), look, clip=clip) == []
    assert seen == expected


def test_clipping_is_full_unless_the_query_says_otherwise() -> None:
    expected = [Event({"v": 10}, 3, 5), Event({"v": 10}, 5, 7)]
    assert window_apply(CROSSING, tumbling(5), echo, stamp="keep") == expected


def test_count_by_end_may_hold_events_that_clipping_empties() -> None:
    def lengths(events: History, window: Window) -> list[Payload]:
        return [{"length": event.ve - event.vs} for event in events]

    history = [Event({}, 1, 2), Event({}, 3, 8)]
    assert window_apply(history, count_window(2, by="end"), lengths) == [
        Event({"length": 0}, 2, 9),
        Event({"length": 5}, 2, 9),
    ]


def test_align_overrides_the_module() -> None:
    assert window_apply(CROSSING, tumbling(5), echo) == [Event({"v": 10}, 0, 5), Event({"v": 10}, 5, 10)]


def around(events: History, window: Window) -> list[Event]:
    return [
        Event({"at": "before"}, window.start - 3, window.start),
        Event({"at": "over"}, window.start - 1, window.end + 1),
        Event({"at": "after"}, window.end, FOREVER),
    ]


def test_clip_cuts_to_the_window_and_drops_what_is_empty() -> None:
    assert window_apply([Event({}, 0, 1)], tumbling(5), around, stamp="clip") == [Event({"at": "over"}, 0, 5)]


@pytest.mark.parametrize("stamp", ["keep", "time_bound"])
def test_keep_refuses_the_past(stamp: Literal["keep", "time_bound"]) -> None:
    with pytest.raises(RecensionError, match="before its window"):
        window_apply([Event({}, 0, 1)], tumbling(5), around, stamp=stamp)


@pytest.mark.parametrize("stamp", ["keep", "time_bound"])
def test_keep_allows_output_beyond_the_window(stamp: Literal["keep", "time_bound"]) -> None:
    def beyond(events: History, window: Window) -> list[Event]:
        return [Event({}, window.end, FOREVER)]

    assert window_apply([Event({}, 0, 1)], tumbling(5), beyond, stamp=stamp) == [Event({}, 5, FOREVER)]


def test_keep_refuses_empty_lifetimes() -> None:
    def empty(events: History, window: Window) -> list[Event]:
        return [Event({}, window.start, window.start)]

    with pytest.raises(RecensionError, match="empty lifetime"):
        window_apply(CROSSING, tumbling(5), empty, stamp="keep")


@pytest.mark.parametrize("stamp", ["align", "keep", "clip", "time_bound"])
def test_bare_payloads_live_as_long_as_the_window(
    stamp: Literal["align", "keep", "clip", "time_bound"],
) -> None:
    def mixed(events: History, window: Window) -> Iterator[Payload | Event]:
        yield {"kind": "payload"}
        yield Event({"kind": "event"}, *window)

    assert window_apply([Event({}, 0, 1)], tumbling(5), mixed, stamp=stamp) == [
        Event({"kind": "payload"}, 0, 5),
        Event({"kind": "event"}, 0, 5),
    ]


def test_time_weighted_average() -> None:
    history = [*CROSSING, Event({"v": 5}, 0, 3)]
    result = window_measure(history, tumbling(5), {"avg": TimeSensitive(weighted)})
    assert result == [Event({"avg": 7.0}, 0, 5), Event({"avg": 4.0}, 5, 10)]


def test_sum_of_ends_depends_on_clipping() -> None:
    # Ruling G5: an unclipped module of [5, 10) sees the end at 11.
    ends = TimeSensitive(lambda events, window: max(event.ve for event in events))
    history = [Event({}, 6, 11)]
    assert [e.payload["end"] for e in window_measure(history, tumbling(5), {"end": ends}, clip="none")] == [
        11,
        11,
    ]
    assert [e.payload["end"] for e in window_measure(history, tumbling(5), {"end": ends})] == [10, 11]


def test_clipping_does_not_touch_aggregates_that_know_no_time() -> None:
    # Clipped to [5, 10) both start at 5 and the shorter one would come first.
    history = [Event({"v": "long"}, 3, 9), Event({"v": "short"}, 4, 6)]
    span = TimeSensitive(lambda events, window: [event.vs for event in events])
    result = window_measure(history, tumbling(5), {"starts": span, "first": first("v")})
    assert result[1] == Event({"starts": [5, 5], "first": "long"}, 5, 10)


def test_members_come_in_order() -> None:
    history = [Event({"v": 2}, 1, 2), Event({"v": 1}, 1, 2), Event({"v": 3}, 0, 2)]
    assert [event.payload["v"] for event in window_apply(history, tumbling(5), echo)] == [3, 1, 2]


def test_top_k_over_windows() -> None:
    history = [Event({"x": 1}, 0, 7), Event({"x": 2}, 1, 2), Event({"x": 2}, 1, 2)]
    assert window_aggregate(history, tumbling(5), top_k(2, by="x")) == [
        Event({"x": 2, "rank": 1}, 0, 5),
        Event({"x": 2, "rank": 2}, 0, 5),
        Event({"x": 1, "rank": 1}, 5, 10),
    ]


def test_grouped_windows() -> None:
    history = [
        Event({"x": x, "k": k}, t, t + 1) for x, k, t in [(1, "a", 0), (2, "b", 1), (4, "a", 2), (8, "b", 7)]
    ]
    result = grouped(
        history, "k", lambda group: window_aggregate(group, tumbling(5), agg(n=count(), total=sum("x")))
    )
    assert canonical(result) == [
        Event({"k": "a", "n": 2, "total": 5}, 0, 5),
        Event({"k": "b", "n": 1, "total": 2}, 0, 5),
        Event({"k": "b", "n": 1, "total": 8}, 5, 10),
    ]
    assert [list(event.payload) for event in result] == [["k", "n", "total"]] * 3
