"""The first start whose event may still change, against a list; and another store that takes over changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.change_log import newest
from recension.core.ticks import FOREVER
from recension.operators.state import open_starts
from recension.operators.state.open_starts import OpenStarts

Times = list[int]


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_starts, "_FIRST_LOOK", 2)


def change(store: OpenStarts, start: Times, old: Times, new: Times) -> None:
    store.change(*(np.array(times, np.int64) for times in (start, old, new)))


@given(st.data())
def test_against_a_list(data: st.DataObject) -> None:
    store, behind, live, now = OpenStarts(), OpenStarts(), list[tuple[int, int]](), 0
    changes, taken = [], 0
    ends = st.one_of(st.integers(1, 12), st.just(FOREVER))
    for version in range(data.draw(st.integers(1, 12))):
        start, old, new = Times(), Times(), Times()
        for _ in range(data.draw(st.integers(0, 5))):
            moving = [i for i, (_, end) in enumerate(live) if end >= now]
            if bool(moving) and data.draw(st.booleans()):
                vs, end = live.pop(data.draw(st.sampled_from(moving)))
            else:
                vs = end = now + data.draw(st.integers(0, 5))
            to = data.draw(ends)
            to = to if to == FOREVER else max(now, vs) + to
            if end != vs and vs >= now and data.draw(st.booleans()):
                to = vs
            else:
                live.append((vs, to))
            start, old, new = [*start, vs], [*old, end], [*new, to]
        change(store, start, old, new)
        if data.draw(st.booleans()):
            now += data.draw(st.integers(0, 8))
            expected = min((vs for vs, end in live if end >= now), default=FOREVER)
            assert store.first_open(now) == expected
        changes.append(store.take_changes(version))
        rows, _ = store.find_current(changes[-1], version)
        assert bool(rows.all())
        if data.draw(st.booleans()):
            behind.restore(newest(changes[taken:], range(taken, version + 1), OpenStarts.key))
            taken = version + 1
            assert content(behind, now) == content(store, now) == Counter((v, e) for v, e in live if e >= now)
    again = OpenStarts()
    again.restore(store.snapshot())
    assert content(again, now) == content(store, now)
    assert again.first_open(now) == store.first_open(now)


def content(store: OpenStarts, now: int) -> Counter[tuple[int, int]]:
    found = Counter[tuple[int, int]]()
    for row in store.snapshot().to_pylist():
        found[row["start"], row["end"]] += row["count"]
    return Counter({key: count for key, count in found.items() if count and key[1] >= now})


def test_what_has_ended_takes_no_room() -> None:
    store = OpenStarts()
    for batch in range(50):
        start = np.arange(batch * 1000, batch * 1000 + 1000)
        store.change(start, start, start + 500)
        first = store.first_open(batch * 1000)
        assert first == max(0, batch * 1000 - 500)
        assert len(store) < 3000
