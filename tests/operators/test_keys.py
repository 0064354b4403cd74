"""Group keys against a dictionary, with so few slots that keys lose theirs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import Index
from recension.core.change_log import Change, newest
from recension.operators.state import keys
from recension.operators.state.group_counts import GroupCounts
from recension.operators.state.keys import KeyIndex


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_PROBES": (0, 1), "_STEP": 3, "_ROOM": 1, "_FEW": 1, "_REPEATED": 1}.items():
        monkeypatch.setattr(keys, name, value)


_KEYS = st.integers(0, 200) | st.integers(0, 5) | st.none()


@given(st.lists(st.lists(_KEYS, max_size=40), max_size=30), st.booleans(), st.booleans())
def test_numbers_are_those_of_a_dictionary(
    batches: list[list[int | None]], is_text: bool, restores: bool
) -> None:
    kind = pa.string() if is_text else pa.int64()
    schema = pa.schema([("k", kind)])
    index, model = KeyIndex(schema), dict[int | None, int]()
    for batch in batches:
        values = pa.array(batch, pa.int64()).cast(kind)
        numbers = index.number(pa.record_batch([values], schema=schema))
        assert numbers.tolist() == [model.setdefault(key, len(model)) for key in batch]
        assert len(index) == len(model)
        assert index.rows(numbers).column(0).equals(values)
        if restores and len(model):
            stored = index.snapshot()
            index = KeyIndex(schema)
            index.restore(stored)


@given(st.lists(st.tuples(st.lists(st.integers(0, 60), max_size=20), st.booleans()), max_size=25), st.data())
def test_a_spare_number_goes_to_another_key(
    batches: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """Keys that have lost their number get another; an index that follows by changes numbers alike."""
    schema = pa.schema([("k", pa.int64())])
    index, behind = KeyIndex(schema), KeyIndex(schema)
    keys_by_number: dict[int, int] = {}
    changes, seen = list[Change](), 0
    for batch, is_stored in batches:
        spare = (
            data.draw(st.lists(st.sampled_from(sorted(keys_by_number)), unique=True))
            if keys_by_number
            else []
        )

        def find_spare(count: int, taken: Index, spare: list[int] = spare) -> Index:
            return np.array([n for n in spare if n not in taken.tolist()][:count], np.int64)

        held = set(keys_by_number.values())
        numbers = index.number(pa.record_batch([pa.array(batch, pa.int64())], schema=schema), find_spare)
        for key, number in zip(batch, numbers.tolist(), strict=True):
            assert keys_by_number.get(number) == key or key not in held
            keys_by_number[number] = key
        assert len(set(keys_by_number.values())) == len(index) == len(keys_by_number)
        every = np.arange(len(index))
        assert index.rows(every)["k"].to_pylist() == [keys_by_number[n] for n in every.tolist()]
        if is_stored:
            changes.append(index.take_changes(len(changes)))
            behind.restore(newest(changes[seen:], range(seen, len(changes)), index.key))
            seen = len(changes)
            assert behind.snapshot().equals(index.snapshot())
            again = behind.number(index.rows(every))
            assert again.tolist() == every.tolist()
            for version, change in enumerate(changes):
                is_current, _ = index.find_current(change, version)
                rows = zip(change.rows["#"].to_pylist(), change.rows["k"].to_pylist(), strict=True)
                assert is_current.tolist() == [keys_by_number[n] == key for n, key in rows]


@given(st.integers(7, 3000), st.lists(st.tuples(st.integers(0, 2999), st.booleans()), max_size=30))
def test_spare_numbers_are_the_first_of_groups_without_rows(
    groups: int, steps: list[tuple[int, bool]]
) -> None:
    counts = GroupCounts()
    counts.make_room(groups // 2 + 1)
    counts.make_room(groups + 1)
    model = [0] * (groups + 1)
    for group, comes in steps:
        if group < len(model) and (comes or model[group]):
            model[group] += 1 if comes else -1
            counts.set(np.array([group]), np.array([model[group]]))
    assert counts.in_use == np.count_nonzero(model)
    assert counts.groups_in_use().tolist() == np.flatnonzero(model).tolist()
    idle = [group for group, rows in enumerate(model) if not rows and group != 7]
    expected = idle[:600] if len(model) >= 1024 and 2 * counts.in_use <= len(model) else []
    assert counts.find_spare(600, np.array([7, 7])).tolist() == expected


def test_most_keys_are_found_in_slots() -> None:
    """Also while a larger table is being filled."""
    schema = pa.schema([("k", pa.int64())])
    index, rng = KeyIndex(schema), np.random.default_rng(1)
    order = rng.permutation(100_000)
    for start in range(0, len(order), 1_000):
        batch = pa.record_batch([pa.array(order[start : start + 1_000])], schema=schema)
        assert index.number(batch).tolist() == list(range(start, start + 1_000))
    every = pa.record_batch([pa.array(order)], schema=schema)
    assert index.number(every).tolist() == list(range(100_000))
