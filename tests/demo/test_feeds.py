"""The servers of the demo: each tells a valid stream, all tell the same leases, none like another."""

from __future__ import annotations

import numpy as np
import pytest

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.difference import difference
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.validity import Checker
from recension.demo.leases import (
    CLOSES,
    HOURS,
    NORTH,
    OPENS,
    SCHEMA,
    SOUTH,
    WEST,
    Feed,
    as_history,
    leases,
)
from recension.demo.plans import LEASES, common_properties, complete_from, first_plan, other_plan

FEEDS = (NORTH, SOUTH, WEST)
SIZE = 700


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
def test_a_feed_is_valid_and_tells_what_happened(feed: Feed, seed: int) -> None:
    events = leases(SIZE, seed)
    parts = feed.parts(events, seed)
    assert len(parts) == HOURS
    checker = Checker("raise")
    for part in parts:
        checker.check(part)
    assert not any(checker.counts.values()), "every CTI advances"
    happened = as_history([event for event in events if event.ve >= feed.since])
    assert not difference(happened, reconstitute(parts, SCHEMA))
    assert int(parts[-1].vs[-1]) == rc.FOREVER, "in the end it says that this is all"


def test_a_lease_lies_within_the_day() -> None:
    history = as_history(leases(SIZE, 0))
    assert history.vs.min() >= OPENS
    assert history.ve.max() <= CLOSES
    assert (history.vs < history.ve).all()


def test_the_feeds_are_as_different_as_they_say() -> None:
    events = leases(SIZE, 0)
    north, south, west = (feed.parts(events, 0) for feed in FEEDS)
    assert [hour for hour, part in enumerate(west) if not len(part)] == [0, 1, 5, 6]
    assert _disorder(south) > 2 * _disorder(north)
    said = [set(_words(parts)) for parts in (north, south, west)]
    assert not said[0] & said[1], "not even one row is the same"
    for parts in (north, south, west):
        assert any((part.kind == 1).any() for part in parts), "everyone has second thoughts"


def _disorder(parts: list[EventBatch]) -> int:
    """By how much elements are behind others, at most."""
    data = concat(parts).filter(concat(parts).is_data())
    return int((np.maximum.accumulate(data.sync()) - data.sync()).max())


def _words(parts: list[EventBatch]) -> list[tuple[object, ...]]:
    whole = concat(parts)
    data = whole.filter(whole.is_data())
    columns = (data.kind, data.vs, data.ve, data.new_ve)
    return list(zip(*(c.tolist() for c in columns), data.payload["device"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_both_plans_give_one_history(seed: int) -> None:
    events = leases(SIZE, seed)
    truth = _answer(as_history(events))
    feed = concat(SOUTH.parts(events, seed))
    for plan in (first_plan(), other_plan()):
        assert not difference(truth, rc.run(plan, {LEASES: feed}, batch_size=500).history())
    physical = [rc.run(plan, {LEASES: feed}, batch_size=500).batch() for plan in (first_plan(), other_plan())]
    assert len(physical[0]) != len(physical[1]), "though they do not say it in the same words"
    assert common_properties().has_key


@pytest.mark.parametrize("seed", range(3))
def test_who_comes_late_is_complete_from_the_time_it_says(seed: int) -> None:
    events = leases(SIZE, seed)
    from_time = complete_from(events, WEST.since)
    assert from_time > WEST.since
    all_of_it, part = _answer(as_history(events)), _answer(reconstitute(WEST.parts(events, seed), SCHEMA))
    assert difference(all_of_it, part), "it does lack something"
    assert not difference(_ending(all_of_it, from_time), _ending(part, from_time))


def _answer(history: History) -> History:
    return rc.run(first_plan(), {LEASES: history.to_arrow()}).history()


def _ending(history: History, since: int) -> History:
    return history.filter(history.ve >= since)
