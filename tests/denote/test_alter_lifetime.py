from __future__ import annotations

from collections.abc import Callable

import pytest

from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import (
    alter_lifetime,
    clip,
    deletes,
    edges,
    extend,
    hop_lifetime,
    inserts,
    set_duration,
    shift,
    to_points,
)

P = {"x": 1}
Lifetimes = list[tuple[int, int]]


def altered(fn: Callable[[list[Event]], list[Event]], *lifetimes: tuple[int, int]) -> Lifetimes:
    return [(event.vs, event.ve) for event in fn([Event(P, vs, ve) for vs, ve in lifetimes])]


def test_general_form_drops_what_becomes_empty() -> None:
    # Ruling D2: both ends floored to 4.
    floored = altered(
        lambda h: alter_lifetime(h, lambda vs, ve: vs // 4 * 4, lambda vs, ve: ve // 4 * 4), (8, 11), (6, 9)
    )
    assert floored == [(4, 8)]


def test_shift() -> None:
    assert altered(lambda h: shift(h, -7), (3, 5), (3, FOREVER), (BEGINNING, 9)) == [
        (-4, -2),
        (-4, FOREVER),
        (BEGINNING, 2),
    ]


def test_shift_saturates() -> None:
    end = FOREVER - 1
    assert altered(lambda h: shift(h, 5), (3, end), (end, FOREVER)) == [(8, FOREVER)]
    assert altered(lambda h: shift(h, -5), (BEGINNING + 1, 9)) == [(BEGINNING, 4)]


def test_set_duration() -> None:
    assert altered(lambda h: set_duration(h, 4), (4, 7), (-9, FOREVER)) == [(4, 8), (-9, -5)]
    assert altered(lambda h: set_duration(h, FOREVER), (4, 7), (-9, 2)) == [(4, FOREVER), (-9, FOREVER)]
    assert altered(lambda h: set_duration(h, 0), (4, 7)) == []


def test_extend() -> None:
    assert altered(lambda h: extend(h, 3), (0, 5), (0, FOREVER)) == [(0, 8), (0, FOREVER)]
    assert altered(lambda h: extend(h, -3), (0, 5), (0, 3), (0, 2)) == [(0, 2)]


def test_hop_lifetime_floors_negative_times_too() -> None:
    result = altered(lambda h: hop_lifetime(h, size=10, hop=5), (7, 8), (5, FOREVER), (-1, 3), (-5, 0))
    assert result == [(5, 15), (5, 15), (-5, 5), (-5, 5)]


def test_inserts_and_deletes() -> None:
    lifetimes = [(1, 5), (2, FOREVER), (-4, -1)]
    assert altered(inserts, *lifetimes) == [(1, FOREVER), (2, FOREVER), (-4, FOREVER)]
    assert altered(deletes, *lifetimes) == [(5, FOREVER), (-1, FOREVER)]


def test_to_points() -> None:
    assert altered(to_points, (1, 5), (1, 5), (-2, FOREVER)) == [(1, 2), (1, 2), (-2, -1)]


@pytest.mark.parametrize(
    ("starts", "end"),
    [
        ([], 10),
        ([4, 2, 7], 2),
        ([10], 10),  # starts where the event ends anyway
        ([0], 10),  # starts together with it
        ([-3, 12], 10),
    ],
)
def test_clip_ends_at_the_first_start_inside(starts: list[int], end: int) -> None:
    assert clip([Event(P, 0, 10)], [Event({}, vs) for vs in starts]) == [Event(P, 0, end)]


def test_clip_matches_keys() -> None:
    left = [Event({"k": 1}, 0), Event({"k": None}, 0, 9), Event({"k": 1}, 0)]
    by = [Event({"k": 2}, 3), Event({"k": 1}, 5, 6), Event({"k": None}, 4)]
    expected = [Event({"k": 1}, 0, 5), Event({"k": None}, 0, 9), Event({"k": 1}, 0, 5)]
    assert clip(left, by, on=["k"]) == expected


def test_clipping_endless_events_by_themselves_gives_edges() -> None:
    readings = [Event({"k": k}, t, t + 1) for k, t in [(1, 1), (2, 2), (1, 5), (1, 6)]]
    assert sorted(clip(inserts(readings), readings, on="k"), key=str) == sorted(edges(readings, "k"), key=str)
