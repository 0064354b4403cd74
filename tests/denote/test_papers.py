"""The example tables of the papers, as the rulings print them (cedr.md §H)."""

from __future__ import annotations

from recension.core.events import Event
from recension.denote import (
    agg,
    canonical,
    coalesce,
    count,
    count_window,
    hopping,
    join,
    snapshot,
    snapshot_windows,
    sum,
    tumbling,
    window_aggregate,
)

WIN = [Event({"x": 1}, 1, 2), Event({"x": 2}, 3, 8), Event({"x": 4}, 8, 9), Event({"x": 4}, 8, 9)]
SUM = agg(total=sum("x"))


def rows(history: list[Event]) -> list[tuple[object, ...]]:
    return [(event.vs, event.ve, *event.payload.values()) for event in canonical(history)]


def test_gh_t2_count() -> None:
    history = [Event({"p": "P1"}, 1, 5), Event({"p": "P2"}, 4, 9)]
    assert rows(snapshot(history, agg(n=count()))) == [(1, 4, 1), (4, 5, 2), (5, 9, 1)]


def test_join() -> None:
    left = [Event({"p": "A0"}, 0, 2), Event({"p": "A1"}, 2, 4)]
    right = [Event({"p": "A1"}, 3, 5)]
    assert join(left, right, on="p") == [Event({"p": "A1"}, 3, 4)]


def test_three_variants_input_counted() -> None:
    history = [Event({"p": "A"}, 0, 5), Event({"p": "B"}, 0, 20), Event({"p": "C"}, 10, 11)]
    expected = [(0, 5, 2), (5, 10, 1), (10, 11, 2), (11, 20, 1)]
    assert rows(snapshot(history, agg(n=count()))) == expected


def test_win_tumbling_sum() -> None:
    assert rows(window_aggregate(WIN, tumbling(5), SUM)) == [(0, 5, 3), (5, 10, 10)]


def test_win_hopping_count() -> None:
    expected = [(-3, 3, 1), (0, 6, 2), (3, 9, 3), (6, 12, 3)]
    assert rows(window_aggregate(WIN, hopping(6, 3), agg(n=count()))) == expected


def test_win_count_by_start() -> None:
    assert rows(window_aggregate(WIN, count_window(2), SUM)) == [(1, 4, 3), (3, 9, 10)]


def test_win_count_by_end() -> None:
    assert rows(window_aggregate(WIN, count_window(2, by="end"), SUM)) == [(2, 9, 3), (8, 10, 10)]


def test_win_snapshot_sum() -> None:
    expected = [(1, 2, 1), (3, 8, 2), (8, 9, 8)]
    assert rows(window_aggregate(WIN, snapshot_windows(), SUM)) == expected
    assert rows(snapshot(WIN, SUM)) == expected


def test_anti() -> None:
    left = [Event({"x": "l"}, 0, 10), Event({"x": "l"}, 0, 10)]
    right = [Event({"y": 1}, 2, 4), Event({"y": 2}, 3, 6)]
    expected = [(0, 2, "l"), (0, 2, "l"), (6, 10, "l"), (6, 10, "l")]
    assert rows(join(left, right, how="anti")) == expected


def test_coal() -> None:
    history = [Event({"v": "x"}, 1, 3), Event({"v": "x"}, 3, 5), Event({"v": "x"}, 2, 4)]
    assert rows(coalesce(history, on="v")) == [(1, 5, "x")]
