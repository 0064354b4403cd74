"""Overlapping windows share panes: every event is added once, and a window costs a few merges."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest

import recension as rc
from recension.testing.assertions import assert_equivalent
from recension.testing.modules import Total

S: Any = rc.source("s", {"k": "string", "v": "int64"})


class Counted(Total):
    """A sum that counts what it is asked to do."""

    added: ClassVar[int] = 0
    merged: ClassVar[int] = 0

    def add(self, state: Any, payloads: Any) -> Any:
        Counted.added += len(payloads)
        return super().add(state, payloads)

    def merge(self, a: Any, b: Any) -> Any:
        Counted.merged += 1
        return super().merge(a, b)


@pytest.mark.parametrize("overlap", [2, 10, 100])
@pytest.mark.parametrize("batch", [40, 1_000])
def test_every_event_is_added_once(overlap: int, batch: int) -> None:
    events = [rc.Insert({"k": "a", "v": t}, t, t + 1) for t in range(1_000)]
    Counted.added = Counted.merged = 0
    out = rc.run(S.hopping(10 * overlap, 10).agg(t=Counted()), {"s": events}, close=True, batch_size=batch)
    windows = len(out.history().to_events())
    assert windows == 100 + overlap - 1
    assert Counted.added == len(events)
    if batch == len(events):
        # Windows come in two steps, with the batch and with the end, and each step merges its panes.
        assert Counted.merged <= 3 * (windows + 2 * overlap)


@pytest.mark.parametrize("seed", range(6))
def test_events_that_last_are_in_all_their_windows(seed: int) -> None:
    dice = random.Random(seed)
    starts = [dice.randrange(60) for _ in range(80)]
    events = [
        rc.Insert({"k": dice.choice("ab"), "v": dice.randrange(9)}, t, t + 1 + dice.choice([0, 0, 25]))
        for t in starts
    ]
    windowed = S.group_by("k").hopping(20, dice.choice([3, 4, 5]))
    batch_size = dice.choice([1, 7, 80])
    found = rc.run(windowed.agg(t=Total()), {"s": events}, close=True, batch_size=batch_size).history()
    assert_equivalent(found, rc.run(windowed.agg(t=rc.sum("v")), {"s": events}, close=True).history())
