"""Windows that one event would fill by the million are refused before they are made."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recension as rc
from recension.core.batch import inserts, payload_of
from recension.core.errors import RecensionError

AGES = 10**12
s = rc.source("s", {"k": "string", "x": "int64"})


class Spread(rc.Operator):
    result = {"x": "int64"}

    def compute(self, payloads: Any) -> list[dict[str, int]]:
        return [{"x": len(payloads)}]


WINDOWED: dict[str, Callable[[int, int], rc.Stream]] = {
    "sums": lambda hop, most: s.group_by("k").tumbling(hop, max_windows=most).agg(n=rc.count()),
    "extremes": lambda hop, most: s.tumbling(hop, max_windows=most).agg(x=rc.max("x")),
    "modules": lambda hop, most: s.tumbling(hop, max_windows=most).apply(Spread),
}


def long(end: int = AGES) -> list[rc.Insert]:
    return [rc.Insert({"k": "a", "x": 1}, 0, end)]


@pytest.mark.parametrize("kind", WINDOWED)
def test_an_event_over_too_many_windows_is_refused(kind: str) -> None:
    query = WINDOWED[kind](1, 1_000_000)
    with pytest.raises(
        RecensionError, match=r"1,000,000,000,000 windows, the limit is max_windows=1,000,000"
    ):
        rc.run(query, {"s": long()}, close=True)


@pytest.mark.parametrize("kind", WINDOWED)
def test_the_limit_can_be_raised_and_is_exact(kind: str) -> None:
    with pytest.raises(
        RecensionError, match="fill 20 windows, the limit is max_windows=19; take a larger hop"
    ):
        rc.run(WINDOWED[kind](5, 19), {"s": long(100)}, close=True)
    assert len(rc.run(WINDOWED[kind](5, 20), {"s": long(100)}, close=True).history()) == 20


def test_the_step_and_the_event_are_named() -> None:
    query = s.group_by("k").tumbling(1).agg(n=rc.count(), speculate="eager")
    with pytest.raises(RecensionError) as told:
        rc.run(query, {"s": [rc.Insert({"k": "b", "x": 2}, 3, 5), *long()]})
    assert str(told.value).startswith(
        "aggregate n = count() by k, speculate eager, tumbling windows of 1: "
        "the event [0, 1000000000000) {'k': 'a'} would fill"
    )


def test_what_has_not_ended_yet_is_shown_window_by_window() -> None:
    """A far end is no fault by itself: many feeds write it for one that is not known yet."""
    session = rc.session(s.tumbling(1, max_windows=10).agg(n=rc.count()))
    session.push("s", long())
    for t in range(10, 50, 10):
        session.advance("s", t)
    assert len(session.read().history()) == 40
    with pytest.raises(RecensionError, match="an event in the windows from 40 would fill 11 windows"):
        session.advance("s", 51)


def test_many_events_at_once_are_refused_too() -> None:
    size = 60
    vs = np.arange(size, dtype=np.int64) * 0
    payload = payload_of([{"k": str(n), "x": n} for n in range(size)], s.schema)
    query = s.group_by("k").tumbling(1, max_windows=100).agg(n=rc.count(), speculate="eager")
    with pytest.raises(RecensionError, match="a batch would give 6,000 windows at once"):
        rc.run(query, {"s": inserts(vs, vs + 100, payload)})
    assert len(rc.run(query, {"s": inserts(vs, vs + 100, payload)}, batch_size=50).history()) == 6_000


def test_what_every_event_would_fill_is_refused_when_the_query_is_built() -> None:
    with pytest.raises(RecensionError, match=r"every event would be in 3,600,000,000 windows or more"):
        s.hopping(size="1h", hop=1)
    with pytest.raises(
        RecensionError, match=r"range 3600000000 slide 1: every event would be in 3,600,000,001"
    ):
        rc.range("1h", slide=1)
    assert rc.range("1s", slide=1, max_windows=2_000_000).slide == 1
    for wrong in (0, 1.5, True, None):
        with pytest.raises(RecensionError, match="max_windows is a number of windows, 1 or more, not"):
            s.tumbling(5, max_windows=wrong)  # type: ignore[arg-type]


def test_readings_in_many_windows_at_once_are_refused() -> None:
    window = rc.range(99, slide=1, max_windows=100)
    query = s.coalesce(on="x", group_by="k", window=window, scheme="lazy")
    readings = [rc.Insert({"k": str(n), "x": n}, n, n + 1) for n in range(200)]
    with pytest.raises(
        RecensionError, match=r"coalesce, range 99 slide 1: a batch would give 14,950 windows"
    ):
        rc.run(query, {"s": readings}, close=True)


@pytest.mark.parametrize("kind", WINDOWED)
def test_another_limit_is_the_same_query(kind: str) -> None:
    """A running query may be given more room: its snapshots and checkpoints are its own still."""
    narrow, wide = (WINDOWED[kind](5, most) for most in (10, 20))
    assert narrow.explain() == wide.explain()
    before, after = rc.session(narrow), rc.session(wide)
    before.push("s", long(100))
    after.restore(before.snapshot())
    after.close()
    assert len(after.read().history()) == 20


def test_beside_timestamps_times_and_durations_are_shown_as_they_are_written() -> None:
    start = dt.datetime(2024, 1, 1)
    given = [rc.Insert({"k": "a", "x": 1}, start, start + dt.timedelta(days=400))]
    query = s.hopping("1h", "10ms", offset="5ms").agg(n=rc.count())
    with pytest.raises(RecensionError) as told:
        rc.run(query, {"s": given}, close=True)
    assert "windows every 10ms of 1h from 5ms: an event in the windows from 2023-12-31 23:00:00.00" in str(
        told.value
    )
    with pytest.raises(RecensionError) as told:
        rc.run(s.tumbling("10ms").agg(n=rc.count(), speculate="eager"), {"s": given})
    assert "tumbling windows of 10ms: the event [2024-01-01 00:00:00, 2025-02-04 00:00:00)" in str(told.value)
    readings = s.coalesce(on="x", group_by="k", window=rc.range("1h", slide="10ms", max_windows=360_001))
    many = [rc.Insert({"k": str(n), "x": 1}, start, start + dt.timedelta(days=1)) for n in range(60)]
    with pytest.raises(RecensionError, match="coalesce, range 1h slide 10ms: a batch would give"):
        rc.run(readings, {"s": many}, close=True)
