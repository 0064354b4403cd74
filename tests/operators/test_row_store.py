"""Rows by number against a dictionary, with blocks so short that they are united and written anew."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.change_log import Change, newest
from recension.operators.state import row_store
from recension.operators.state.row_store import PayloadStore, RowStore

SCHEMA = pa.schema([("p", pa.string())])


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LONGEST": 16, "_SMALL": 4, "_MANY": 3}.items():
        monkeypatch.setattr(row_store, name, value)


def append(store: RowStore, texts: list[str]) -> list[int]:
    numbers = store.append(pa.record_batch([pa.array(texts, pa.string())], schema=SCHEMA), len(texts))
    return [int(number) for number in numbers]


def read(store: RowStore, numbers: list[int]) -> list[str]:
    found: list[str] = store.take(np.array(numbers, np.int64))["p"].to_pylist()
    return found


@pytest.mark.parametrize("kind", [RowStore, PayloadStore])
@given(st.lists(st.integers(0, 40), max_size=12), st.data())
def test_rows_keep_their_numbers(kind: type[RowStore], sizes: list[int], data: st.DataObject) -> None:
    store, rows, given = kind(SCHEMA), dict[int, str](), 0
    for size in sizes:
        fresh = [str(given + i) for i in range(size)]
        numbers = append(store, fresh)
        assert numbers == list(range(given, given + size))
        given += size
        rows |= dict(zip(numbers, fresh, strict=True))
        gone = data.draw(st.lists(st.sampled_from(sorted(rows)), unique=True)) if rows else []
        store.drop(np.array(gone, np.int64))
        rows = {number: text for number, text in rows.items() if number not in gone}
        assert len(store) == len(rows)
        picked = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=8)) if rows else []
        assert read(store, picked) == [rows[number] for number in picked]
        assert store.find_there(np.arange(given + 2)).tolist() == sorted(rows)
    other = kind(SCHEMA)
    other.restore(store.snapshot())
    assert read(other, sorted(rows)) == [rows[number] for number in sorted(rows)]
    other.retain(np.array(sorted(rows)[::2], np.int64))
    assert other.snapshot()["#"].to_pylist() == sorted(rows)[::2]


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=12), st.data())
def test_changes_are_the_rows(steps: list[tuple[int, bool, bool]], data: st.DataObject) -> None:
    """One store gives its changes; one follows now and then; one is loaded from all of them in the end."""
    store, behind, alive = RowStore(SCHEMA), RowStore(SCHEMA), list[int]()
    changes, seen = list[Change](), 0
    for size, is_stored, catches_up in steps:
        alive += append(store, [str(i) for i in range(size)])
        gone = data.draw(st.lists(st.sampled_from(alive), unique=True)) if alive else []
        store.drop(np.array(gone, np.int64))
        alive = [number for number in alive if number not in gone]
        if is_stored:
            changes.append(store.take_changes(len(changes)))
            if catches_up:
                behind.restore(newest(changes[seen:], range(seen, len(changes)), store.key))
                seen = len(changes)
                assert behind.snapshot().equals(store.snapshot())
    changes.append(store.take_changes(len(changes)))
    for version, change in enumerate(changes):
        is_there, _ = store.find_current(change, version)
        assert is_there.tolist() == [number in alive for number in change.rows["#"].to_pylist()]
    loaded = RowStore(SCHEMA)
    loaded.restore(newest(changes, range(len(changes)), store.key))
    assert loaded.snapshot().equals(store.snapshot())
    assert append(loaded, ["next"]) == append(store, ["next"])
