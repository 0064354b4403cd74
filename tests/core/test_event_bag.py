"""The bag of events against a plain Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import inserts
from recension.core.event_bag import EventBag, bag_changes

KEYS = st.integers(0, 12)
# A key's end is fixed by the key, as an event's identity contains its end.
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, st.sampled_from([1, 1, -1])), max_size=20), st.integers(0, 13))
)


@given(BATCHES)
def test_counts_as_a_counter_does(batches: list[tuple[list[tuple[int, int]], int]]) -> None:
    bag, model, frontier = EventBag(), Counter[int](), 0
    for changes, advance in batches:
        live = [(key, delta) for key, delta in changes if key >= frontier]
        keys = np.array([key for key, _ in live], np.uint64)
        if len(keys):
            bag.change(keys, np.array([d for _, d in live], np.int64), keys.astype(np.int64))
        for key, delta in live:
            model[key] += delta
        frontier = max(frontier, advance)
        bag.forget_before(frontier)
        asked = np.arange(frontier, 13, dtype=np.uint64)
        assert bag.count(asked).tolist() == [model[int(key)] for key in asked]


@given(st.lists(st.tuples(st.lists(st.integers(0, 12), max_size=20), st.booleans(), st.integers(0, 13))))
def test_inserts_that_wait_count_as_others(steps: list[tuple[list[int], bool, int]]) -> None:
    waiting, hashed, frontier = EventBag(), EventBag(), 0
    for starts, is_asked, advance in steps:
        vs = np.array([start for start in starts if start >= frontier], np.int64)
        batch = inserts(vs, vs + 1, pa.RecordBatch.from_pydict({"x": vs % 2}))
        changes = bag_changes(batch, np.ones(len(batch), np.bool_))
        waiting.add_later(batch)
        hashed.apply(changes)
        frontier = max(frontier, advance)
        for bag in (waiting, hashed):
            bag.forget_before(frontier)
        if is_asked:
            keys = changes.key[changes.end >= frontier]
            assert waiting.count(keys).tolist() == hashed.count(keys).tolist()
    totals = [
        bag.snapshot().group_by(["key", "end"]).aggregate([("count", "sum")]) for bag in (waiting, hashed)
    ]
    assert totals[0].sort_by("key") == totals[1].sort_by("key")


def test_only_so_much_waits() -> None:
    bag = EventBag()
    for start in range(1000):
        vs = np.array([start])
        bag.add_later(inserts(vs, vs + 10_000, pa.RecordBatch.from_pydict({"x": ["x" * 1000]})))
    assert bag.count_events() == 1000
    assert bag.nbytes() < 300_000


def test_forgotten_events_take_no_room() -> None:
    bag = EventBag()
    for start in range(0, 100_000, 1000):
        keys = np.arange(start, start + 1000)
        bag.change(keys.astype(np.uint64), np.ones(1000, np.int64), keys)
        bag.forget_before(start)
    assert len(bag) < 10_000
