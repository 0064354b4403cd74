"""The tables operators keep their state in, against plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state import block_table
from recension.operators.state.block_table import BlockTable, KeyPacking, bisect
from recension.operators.state.keys import KeyIndex
from recension.operators.state.row_blocks import RowBlocks
from recension.operators.state.time_queue import TimeQueue

KEY = st.tuples(st.integers(0, 5), st.integers(0, 20))


def _columns(rows: dict[tuple[int, int], int]) -> Columns:
    keys = sorted(rows)
    group, time = (np.array([key[i] for key in keys], np.int64) for i in (0, 1))
    return {"group": group, "time": time, "x": np.array([rows[key] for key in keys], np.int64)}


_TIMES = st.integers(-50, 50) | st.integers(-(2**62), 2**62) | st.sampled_from([BEGINNING, FOREVER])


@given(st.lists(st.tuples(st.integers(0, 2**20), _TIMES), min_size=1), st.booleans())
def test_packed_keys_are_in_order_and_can_be_unpacked(keys: list[tuple[int, int]], by_shifts: bool) -> None:
    group, time = (np.array([key[i] for key in keys], np.int64) for i in (0, 1))
    packing = KeyPacking.for_keys([group], [time], by_shifts=by_shifts)
    packed = packing.pack(group, time)
    assert [keys[i] for i in np.argsort(packed, kind="stable")] == sorted(keys)
    assert list(zip(*(column.tolist() for column in packing.unpack(packed)), strict=True)) == keys


@given(
    st.lists(
        st.tuples(st.dictionaries(KEY, st.integers(0, 99), max_size=8), KEY, st.integers(0, 10)), max_size=12
    )
)
def test_block_table_reads_and_rewrites_parts(
    edits: list[tuple[dict[tuple[int, int], int], tuple[int, int], int]],
) -> None:
    """Each edit replaces whatever lies in one segment, in tables of very small blocks."""
    original, block_table._BLOCK = block_table._BLOCK, 2
    try:
        table, model = BlockTable({"x": np.int64}), dict[tuple[int, int], int]()
        for fresh, (group, low), length in edits:
            _edit(table, model, fresh, group, low, low + length)
            assert table.snapshot().to_pydict() == pa.table(_columns(model)).to_pydict()
            assert len(table) == len(model)
    finally:
        block_table._BLOCK = original


def _edit(
    table: BlockTable,
    model: dict[tuple[int, int], int],
    fresh: dict[tuple[int, int], int],
    group: int,
    low: int,
    high: int,
) -> None:
    inside = {key for key in model if key[0] == group and low <= key[1] <= high}
    extract = table.extract(*(np.array([x], np.int64) for x in (group, low, high)))
    got = list(zip(extract.columns["group"].tolist(), extract.columns["time"].tolist(), strict=True))
    before = max((k for k in model if k < (group, low)), default=None)
    after = min((k for k in model if k > (group, high)), default=None)
    assert inside | {k for k in (before, after) if k} <= set(got)
    kept = {
        key: model[key] for key, f in zip(got, extract.follower, strict=True) if not f and key not in inside
    }
    put = {key: value for key, value in fresh.items() if key[0] == group and low <= key[1] <= high}
    table.replace(extract.blocks, _columns(kept | put))
    for key in inside:
        del model[key]
    model.update(put)


def test_scattered_changes_of_a_block_table_read_few_rows() -> None:
    """Nine in ten rows go, a few at a time from everywhere; blocks that have become short are united."""
    size, rng = 50_000, np.random.default_rng(0)
    table, none = BlockTable({"x": np.int64}), np.zeros(size, np.int64)
    table.replace(none[:0], {"group": none, "time": np.arange(size), "x": np.arange(size)})
    for gone in np.array_split(rng.permutation(size)[: size * 9 // 10], 500):
        at = np.sort(gone)
        extract = table.extract(none[: len(at)], at, at)
        assert len(extract.follower) <= 3 * block_table._BLOCK * len(at)
        stays = ~extract.follower & ~np.isin(extract.columns["time"], at)
        table.replace(extract.blocks, {name: column[stays] for name, column in extract.columns.items()})
    left = table.snapshot()
    assert left["time"].to_pylist() == sorted(left["x"].to_pylist())
    assert len(left) == len(table) == size // 10
    every = table.extract(none[:1], none[:1], none[:1] + size)
    assert len(every.blocks) <= 8 * len(table) // block_table._BLOCK


@given(st.lists(KEY), st.lists(KEY))
def test_bisect_finds_the_place(sorted_keys: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    keys = sorted(sorted_keys)
    arrays = [np.array([k[i] for k in rows], np.int64) for rows in (keys, asked) for i in (0, 1)]
    assert bisect(*arrays).tolist() == [sum(k < a for k in keys) for a in asked]
    assert bisect(*arrays, after_equal=True).tolist() == [sum(k <= a for k in keys) for a in asked]


@given(st.lists(st.tuples(st.lists(KEY, max_size=10), st.integers(0, 25), st.booleans())))
def test_time_queue_gives_back_what_is_due(steps: list[tuple[list[tuple[int, int]], int, bool]]) -> None:
    queue, model = TimeQueue(), list[tuple[int, int]]()
    for pairs, t, strictly in steps:
        queue.push(np.array([p[1] for p in pairs], np.int64), np.array([p[0] for p in pairs], np.int64))
        model += [(time, group) for group, time in pairs]
        times, groups = queue.pop_before(t) if strictly else queue.pop_until(t)
        due = [p for p in model if (p[0] < t if strictly else p[0] <= t)]
        assert sorted(zip(times.tolist(), groups.tolist(), strict=True)) == sorted(due)
        model = [p for p in model if p not in due]
        assert len(queue) == len(model)


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=9), st.integers(0, 7)), max_size=20))
def test_some_of_a_queue(steps: list[tuple[list[int], int]]) -> None:
    """What is taken out step by step is all that is due, the earliest first."""
    queue, model = TimeQueue(), list[tuple[int, int]]()
    for number, (times, most) in enumerate(steps):
        queue.push(np.array(times, np.int64), np.full(len(times), number))
        model += [(time, number) for time in times]
        due = [pair for pair in model if pair[0] < 4]
        groups = queue.pop_some(4, most).tolist()
        assert len(groups) == min(most, len(due))
        last = sorted(time for time, _ in due)[len(groups) - 1] if groups else 0
        for group in groups:
            model.remove(min(pair for pair in due if pair[1] == group and pair in model))
        assert not [pair for pair in model if pair[0] < last]
    assert sorted(queue.pop_some(9, 1000).tolist()) == sorted(group for _, group in model)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", None, ""]), max_size=6), max_size=6), st.data())
def test_keys_are_numbered_in_order_of_appearance(
    batches: list[list[str | None]], data: st.DataObject
) -> None:
    schema = pa.schema([("k", pa.string())])
    index, model = KeyIndex(schema), list[str | None]()
    for keys in batches:
        model += [k for i, k in enumerate(keys) if k not in model and k not in keys[:i]]
        numbers = index.number(pa.record_batch([pa.array(keys, pa.string())], schema=schema))
        assert [model[n] for n in numbers.tolist()] == keys
        in_use = np.array(
            data.draw(st.lists(st.booleans(), min_size=len(model), max_size=len(model))), np.bool_
        )
        index.retire(in_use)
        model = [k for k, used in zip(model, in_use, strict=True) if used]
        assert index.snapshot()["k"].to_pylist() == model


_GROUPS = st.integers(0, 15)


@given(st.lists(_GROUPS, min_size=9, max_size=40), st.lists(st.sets(_GROUPS, max_size=2)))
@example([0, 0, 1, 1, 2, 2, 2, 3, 3], [{0, 3}])
def test_rows_of_one_key_reach_into_blocks_that_no_change_touches(
    first: list[int], edits: list[set[int]]
) -> None:
    """Each edit exchanges the rows of some keys for as many; keys fill several blocks or share one."""
    original, block_table._BLOCK = block_table._BLOCK, 4
    try:
        table, keys = RowBlocks({"row": np.int64}), dict(enumerate(first))
        table.exchange(_keyed({}), _keyed(keys))
        for edited in edits:
            lost = {row: key for row, key in keys.items() if key in edited}
            come = {row + len(first): key for row, key in lost.items()}
            removed = table.exchange(_keyed(lost), _keyed(come))
            keys = {row: key for row, key in keys.items() if row not in lost} | come
            assert sorted(removed["row"].tolist()) == sorted(lost)
            assert table.snapshot()["group"].to_pylist() == sorted(keys.values())
    finally:
        block_table._BLOCK = original


def _keyed(keys: dict[int, int]) -> Columns:
    """Rows by their numbers, all of one time."""
    group, row = (np.array(list(each), np.int64) for each in (keys.values(), keys))
    return {"group": group, "time": np.zeros(len(keys), np.int64), "row": row}
