"""An event store and another that takes over its changes now and then: both hold the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.change_log import Change, Logged, newest
from recension.core.ticks import Ticks
from recension.operators.state import interval_log
from recension.operators.state.event_store import EventStore
from recension.operators.state.ranked_events import Pick, RankedEvents

SCHEMA = pa.schema([("p", pa.int64())])


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_log, "_PAGE", 4)


class Checkpoints:
    """The changes of the parts of a store, by version."""

    def __init__(self) -> None:
        self._changes: dict[str, list[Change]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self.version = 0

    def take(self, store: EventStore) -> None:
        """Store what has changed."""
        for name, part in store.parts("x").items():
            if not isinstance(part, pa.Table):
                logged: Logged = part
                self._keys[name] = logged.key
                self._changes.setdefault(name, []).append(logged.take_changes(self.version))
        self.version += 1

    def repeat_rows(self, store: EventStore, is_whole: bool) -> None:
        """Payloads are written again where pieces are cleaned, and their intervals may not be."""
        *others, last = self._changes["x/rows"]
        again = replace(last, rows=store.parts("x")["x/rows"].snapshot(), is_whole=is_whole)
        self._changes["x/rows"] = [*others, again]

    def load(self, store: EventStore, head: pa.Table, since: int) -> None:
        """Bring a store that has a version up to the last one."""
        chunks: dict[str, Any] = {"x/head": head}
        for name, changes in self._changes.items():
            versions = range(since, self.version)
            change = newest(changes[since:], versions, self._keys[name])
            chunks[name] = replace(change, memo=changes[-1].memo, since=since - 1)
        store.restore("x", chunks)


def add(store: EventStore, numbers: list[int], vs: int, ends: list[int]) -> None:
    size, at = len(numbers), np.array(numbers, np.int64)
    payload = pa.record_batch([pa.array(at)], schema=SCHEMA)
    group = np.zeros(size, np.uint64)
    store.insert(group, np.full(size, vs), np.array(ends, np.int64), at.view(np.uint64), payload)


def content(store: EventStore) -> list[tuple[int, int, int]]:
    at = store.positions()
    columns = (store.column(name, at).tolist() for name in ("row", "ve"))
    return sorted(zip(*columns, store.payload(at)["p"].to_pylist(), strict=True))


def _by_value(vs: Ticks, ve: Ticks, payload: pa.RecordBatch) -> np.ndarray:
    return np.argsort(payload["p"].to_numpy())


def deciding(store: RankedEvents) -> list[int]:
    """The least value of every tick."""
    low = np.arange(100)
    group = np.zeros(len(low), np.uint64)
    at = store.find_deciding(group, low, low + 1, [Pick(_by_value, 1)])[1]
    return sorted(set(store.payload(at)["p"].to_pylist()))


@given(st.data())
def test_one_that_is_behind_takes_over_what_it_missed(data: st.DataObject) -> None:
    store, behind = (RankedEvents(SCHEMA, (), ("vs", "ve")) for _ in range(2))
    log, seen, given, now = Checkpoints(), 0, 0, 0
    for _ in range(data.draw(st.integers(1, 12))):
        size = data.draw(st.integers(0, 6))
        ends = data.draw(st.lists(st.integers(now + 1, now + 12), min_size=size, max_size=size))
        add(store, list(range(given, given + size)), now, ends)
        given += size
        at = store.positions()
        if len(at):
            some = np.array(sorted(data.draw(st.sets(st.sampled_from(at.tolist())))), np.int64)
            goes = some[:: data.draw(st.integers(1, 3))]
            moves = np.setdiff1d(some, goes)
            names = ("group", "vs", "tag", "row")
            group, vs, tag, row = (store.column(name, moves) for name in names)
            store.remove(goes)
            store.remove(moves, rows_stay=True)
            end = np.array([data.draw(st.integers(now + 1, now + 12)) for _ in range(len(moves))], np.int64)
            store.add(group, vs, end, tag, row=row)
        now += data.draw(st.integers(0, 8))
        store.expire(now)
        log.take(store)
        if data.draw(st.booleans()):
            log.load(behind, store.parts("x")["x/head"], seen)
            seen = log.version
            assert content(behind) == content(store)
            assert deciding(behind) == deciding(store)
    loaded = EventStore(SCHEMA)
    log.load(loaded, store.parts("x")["x/head"], 0)
    assert content(loaded) == content(store)
    named = {row for row, _, _ in content(loaded)}
    assert set(loaded.parts("x")["x/rows"].snapshot()["#"].to_pylist()) == named


def test_an_end_that_moves_and_passes_between_two_checkpoints() -> None:
    store, behind, log = EventStore(SCHEMA), EventStore(SCHEMA), Checkpoints()
    add(store, list(range(10)), 0, [100] * 10)
    log.take(store)
    log.load(behind, store.parts("x")["x/head"], 0)
    at = store.positions()[:1]
    group, vs, tag, row = (store.column(name, at) for name in ("group", "vs", "tag", "row"))
    store.remove(at, rows_stay=True)
    store.add(group, vs, np.array([5]), tag, row=row)
    store.expire(6)
    log.take(store)
    log.load(behind, store.parts("x")["x/head"], 1)
    assert content(behind) == content(store)


@pytest.mark.parametrize("is_whole", [True, False])
def test_rows_that_are_stored_again_without_their_intervals(is_whole: bool) -> None:
    store, behind, log = EventStore(SCHEMA), EventStore(SCHEMA), Checkpoints()
    add(store, list(range(10)), 0, [100] * 10)
    log.take(store)
    log.load(behind, store.parts("x")["x/head"], 0)
    log.take(store)
    log.repeat_rows(store, is_whole)
    log.load(behind, store.parts("x")["x/head"], 1)
    assert content(behind) == content(store)
