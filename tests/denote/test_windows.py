from __future__ import annotations

import pytest

from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote import Windows, count_window, hopping, snapshot_windows, tumbling


def divided(windows: Windows, *lifetimes: tuple[int, int]) -> list[tuple[int, int, list[int]]]:
    """Each window with the positions of its members."""
    history = [Event({"i": i}, vs, ve) for i, (vs, ve) in enumerate(lifetimes)]
    return [(*window, [event.payload["i"] for event in members]) for window, members in windows(history)]


def test_tumbling_membership_is_overlap_half_open() -> None:
    # An event that ends where a window starts, or starts where it ends, is not in it.
    assert divided(tumbling(5), (0, 5), (5, 6), (4, 6)) == [(0, 5, [0, 2]), (5, 10, [1, 2])]


def test_windows_without_events_do_not_exist() -> None:
    assert divided(tumbling(5), (1, 2), (12, 13)) == [(0, 5, [0]), (10, 15, [1])]


def test_negative_times_and_offset() -> None:
    assert divided(tumbling(5), (-1, 1)) == [(-5, 0, [0]), (0, 5, [0])]
    assert divided(tumbling(5, offset=2), (-1, 1)) == [(-3, 2, [0])]
    assert divided(tumbling(5, offset=12), (-1, 1)) == [(-3, 2, [0])]


def test_hopping_overlaps() -> None:
    assert divided(hopping(10, 5), (8, 13)) == [(0, 10, [0]), (5, 15, [0]), (10, 20, [0])]
    assert divided(hopping(10, 5), (10, 11)) == [(5, 15, [0]), (10, 20, [0])]


def test_hop_longer_than_size_leaves_gaps() -> None:
    assert divided(hopping(2, 5), (2, 5)) == []
    assert divided(hopping(2, 5), (1, 6), (3, 4)) == [(0, 2, [0]), (5, 7, [0])]


def test_size_no_multiple_of_hop() -> None:
    assert divided(hopping(7, 3), (7, 8)) == [(3, 10, [0]), (6, 13, [0])]


def test_until_keeps_windows_that_start_before_it() -> None:
    assert divided(hopping(10, 5, until=10), (3, FOREVER)) == [(-5, 5, [0]), (0, 10, [0]), (5, 15, [0])]
    assert divided(tumbling(5, until=10), (3, 4), (9, 12), (20, 21)) == [(0, 5, [0]), (5, 10, [1])]


def test_endless_events_ask_for_until() -> None:
    with pytest.raises(RecensionError, match="until="):
        divided(tumbling(5), (0, FOREVER))
    with pytest.raises(RecensionError, match="no beginning"):
        divided(tumbling(5, until=10), (BEGINNING, 3))


@pytest.mark.parametrize(("size", "hop"), [(0, 5), (5, 0), (-1, 5)])
def test_sizes_are_positive(size: int, hop: int) -> None:
    with pytest.raises(RecensionError, match="positive"):
        hopping(size, hop)


def test_windows_at_the_very_end_of_time_saturate() -> None:
    last = FOREVER - 1
    assert divided(tumbling(2**62), (last - 1, last)) == [(2**62, FOREVER, [0])]
    assert divided(tumbling(3), (BEGINNING + 1, BEGINNING + 2))[0][0] == BEGINNING


def test_snapshot_windows() -> None:
    assert divided(snapshot_windows(), (1, 5), (4, 9), (12, FOREVER)) == [
        (1, 4, [0]),
        (4, 5, [0, 1]),
        (5, 9, [1]),
        (12, FOREVER, [2]),
    ]


def test_count_by_start() -> None:
    # Several events at one time count once; a long event is in no window that starts after it.
    assert divided(count_window(2), (1, 9), (1, 2), (3, FOREVER), (7, 8)) == [
        (1, 4, [0, 1, 2]),
        (3, 8, [2, 3]),
    ]


def test_count_by_end_ignores_what_never_ends() -> None:
    assert divided(count_window(2, by="end"), (1, 9), (3, FOREVER), (1, 4), (2, 4)) == [(4, 10, [0, 2, 3])]
    assert divided(count_window(1, by="end"), (1, FOREVER)) == []


def test_count_of_one_and_too_few() -> None:
    assert divided(count_window(1), (-3, 5), (2, 5)) == [(-3, -2, [0]), (2, 3, [1])]
    assert divided(count_window(3), (0, 5), (2, 5)) == []
    with pytest.raises(RecensionError, match="at least one"):
        count_window(0)


@pytest.mark.parametrize("windows", [tumbling(5), snapshot_windows(), count_window(1)])
def test_empty(windows: Windows) -> None:
    assert windows([]) == []
