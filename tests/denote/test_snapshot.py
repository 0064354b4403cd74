from __future__ import annotations

from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import agg, canonical, count, grouped, max, snapshot, sum, top_k

COUNT = agg(n=count())


def counts(*lifetimes: tuple[int, int]) -> list[tuple[int, int, int]]:
    history = [Event({}, vs, ve) for vs, ve in lifetimes]
    return [(event.vs, event.ve, event.payload["n"]) for event in snapshot(history, COUNT)]


def test_empty() -> None:
    assert counts() == []


def test_duplicates_count_twice() -> None:
    assert counts((0, 4), (0, 4)) == [(0, 4, 2)]


def test_equal_neighbours_stay_two() -> None:
    assert counts((0, 4), (4, 9)) == [(0, 4, 1), (4, 9, 1)]


def test_gaps_give_no_row() -> None:
    assert counts((-8, -5), (3, 4)) == [(-8, -5, 1), (3, 4, 1)]


def test_endless_events() -> None:
    assert counts((4, FOREVER), (BEGINNING, 9)) == [(BEGINNING, 4, 1), (4, 9, 2), (9, FOREVER, 1)]


def test_an_end_point_cuts_though_the_value_stays() -> None:
    history = [Event({"x": 5}, 0, 9), Event({"x": 1}, 3, 6)]
    assert [(e.vs, e.ve, e.payload["m"]) for e in snapshot(history, agg(m=max("x")))] == [
        (0, 3, 5),
        (3, 6, 5),
        (6, 9, 5),
    ]


def test_groups_do_not_cut_each_other() -> None:
    history = [
        Event({"x": 1, "k": "a"}, 0, 9),
        Event({"x": 2, "k": "b"}, 3, 6),
        Event({"x": 4, "k": "a"}, 9, 10),
    ]
    result = grouped(history, "k", lambda group: snapshot(group, agg(total=sum("x"))))
    assert canonical(result) == [
        Event({"k": "a", "total": 1}, 0, 9),
        Event({"k": "b", "total": 2}, 3, 6),
        Event({"k": "a", "total": 4}, 9, 10),
    ]


def test_top_k_gives_rows_per_snapshot() -> None:
    history = [Event({"x": 5}, 0, 9), Event({"x": 1}, 3, 12), Event({"x": 7}, 3, 6)]
    assert snapshot(history, top_k(2, by="x")) == [
        Event({"x": 5, "rank": 1}, 0, 3),
        Event({"x": 7, "rank": 1}, 3, 6),
        Event({"x": 5, "rank": 2}, 3, 6),
        Event({"x": 5, "rank": 1}, 6, 9),
        Event({"x": 1, "rank": 2}, 6, 9),
        Event({"x": 1, "rank": 1}, 9, 12),
    ]
