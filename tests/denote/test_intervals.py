from __future__ import annotations

from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.intervals import floor, intersect, merge_intervals, plus, uncovered_parts


def test_plus_saturates_at_both_ends() -> None:
    assert plus(FOREVER, -1) == FOREVER
    assert plus(BEGINNING, 1) == BEGINNING
    assert plus(FOREVER - 3, 4) == FOREVER
    assert plus(BEGINNING + 3, -4) == BEGINNING
    assert plus(5, FOREVER) == plus(-5, FOREVER) == FOREVER


def test_floor_leaves_the_ends_of_time() -> None:
    assert (floor(FOREVER, 10), floor(BEGINNING, 10)) == (FOREVER, BEGINNING)
    assert (floor(-10, 10), floor(-11, 10), floor(9, 10)) == (-10, -20, 0)


def test_common() -> None:
    assert intersect((0, FOREVER), (5, FOREVER)) == (5, FOREVER)
    assert intersect((0, 3), (3, 5)) is None


def test_maximal() -> None:
    assert merge_intervals([]) == []
    assert merge_intervals([(0, 9), (1, 2), (9, FOREVER)]) == [(0, FOREVER)]
    assert merge_intervals([(-5, -4), (-3, -2)]) == [(-5, -4), (-3, -2)]


def test_uncovered() -> None:
    assert uncovered_parts((0, 10), []) == [(0, 10)]
    assert uncovered_parts((0, 10), [(-5, 20)]) == []
    assert uncovered_parts((0, 10), [(-5, 0), (10, 12)]) == [(0, 10)]
    assert uncovered_parts((0, FOREVER), [(-5, 3), (8, FOREVER)]) == [(3, 8)]
