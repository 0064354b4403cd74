"""Groups that wait each by its own time: what was in order comes out of it."""

from __future__ import annotations

import pytest

import recension as rc
from recension.core.events import Element

PERFECT = rc.Properties(is_insert_only=True, is_ordered=True, is_strictly_increasing=True)
S = rc.source("s", {"k": "string"}, properties=PERFECT)
FEED: list[Element] = [
    rc.Insert({"k": "b"}, 5, 9),
    rc.Insert({"k": "a"}, 8, 12),
    rc.Insert({"k": "a"}, 11, 13),
    rc.Cti(rc.FOREVER),
]
WAITING = {
    "align": S.group_by("k").apply(lambda g: g.align(3)),
    "level": S.group_by("k").apply(lambda g: g.consistency(block=3)),
}


def _starts(query: rc.Stream) -> list[int]:
    return [e.vs for e in rc.run(query, {"s": FEED}, batch_size=1).elements() if isinstance(e, rc.Insert)]


@pytest.mark.parametrize("query", WAITING.values(), ids=WAITING)
def test_no_order_is_claimed(query: rc.Stream) -> None:
    assert _starts(query) == [8, 5, 11]
    assert not query.properties.is_ordered
    assert not query.properties.is_strictly_increasing


@pytest.mark.parametrize("query", WAITING.values(), ids=WAITING)
def test_strong_puts_them_in_order(query: rc.Stream) -> None:
    assert _starts(query.consistency(rc.STRONG)) == [5, 8, 11]


def test_groups_that_wait_differently_can_be_merged() -> None:
    merged = S.group_by("k").apply(lambda g: rc.merge(g.align(3), g.align(2)))
    assert sorted(_starts(merged)) == [5, 8, 11]
