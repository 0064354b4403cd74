"""The log of leaves against a dictionary, with segments so short that everything happens in a few steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state import leaf_log, leaf_table
from recension.operators.state.leaf_table import LeafTable

Model = dict[tuple[int, int], tuple[float, int]]


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_table, "_LONG", 6)
    monkeypatch.setattr(leaf_table, "_SHORT", 3)
    for name, value in {"_BITS": 4, "_SEGMENT": 16, "_SLACK": 16, "_CHUNK": 64, "_LEAST": 16}.items():
        monkeypatch.setattr(leaf_log, name, value)


def table_of(model: Model) -> pa.Table:
    keys = sorted(model)
    return pa.table(
        {
            "group": pa.array([group for group, _ in keys], pa.int64()),
            "time": pa.array([time for _, time in keys], pa.int64()),
            "x": pa.array([model[key][0] for key in keys], pa.float64()),
            "n": pa.array([model[key][1] for key in keys], pa.int64()),
        }
    )


Step = dict[int, dict[int, float | None]]
steps = st.lists(
    st.dictionaries(
        st.integers(0, 12),
        st.dictionaries(st.integers(0, 30), st.none() | st.floats(-1, 1), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=25,
)


@given(steps, st.booleans())
def test_rows_are_those_of_a_dictionary(changes: list[Step], restores: bool) -> None:
    table, model = LeafTable({"x": np.float64, "n": np.int64}), Model()
    for number, change in enumerate(changes):
        apply(table, model, change, number)
        if number % 2:
            forget(table, model, np.array(sorted(change)), number)
        assert table.snapshot().equals(table_of(model))
        assert len(table) == len(model)
        rows = table.count_rows(np.arange(13))
        assert rows.tolist() == [sum(group == one for group, _ in model) for one in range(13)]
        if restores and number % 3 == 2:
            stored, table = table.snapshot(), LeafTable({"x": np.float64, "n": np.int64})
            table.restore(stored)


def apply(table: LeafTable, model: Model, change: Step, number: int) -> None:
    """Read what the change touches, compare it, and put back what it becomes."""
    groups = np.array(sorted(change))
    low = np.array([min(change[group]) for group in groups.tolist()])
    high = np.array([max(change[group]) for group in groups.tolist()])
    extract = table.extract(groups, low, high)
    own = np.flatnonzero(~extract.follower)
    found = zip(*(extract.columns[name][own].tolist() for name in ("group", "time", "x", "n")), strict=True)
    rows = {(group, time): (x, n) for group, time, x, n in found}
    assert rows.items() <= model.items()
    for group, first, last in zip(groups.tolist(), low.tolist(), high.tolist(), strict=True):
        assert {k for k in model if k[0] == group and first <= k[1] <= last} <= rows.keys()
        for time, x in change[group].items():
            for held in (rows, model):
                held.pop((group, time), None)
                if x is not None:
                    held[group, time] = (x, number)
    fresh = table_of(rows)
    table.replace(extract, {name: fresh[name].to_numpy() for name in fresh.column_names})


def forget(table: LeafTable, model: Model, groups: npt.NDArray[np.int64], t: int) -> None:
    """Take the rows before ``t`` off some groups, and off what else was read with them."""
    extract = table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), t))
    gone = (extract.columns["time"] < t) & ~extract.follower
    for key in zip(*(extract.columns[name][gone].tolist() for name in ("group", "time")), strict=True):
        del model[key]
    table.forget(extract, gone)


def test_memory_follows_what_is_in_use() -> None:
    """Leaves that are written again and again do not make the log grow."""
    table, model, rng = LeafTable({"x": np.float64, "n": np.int64}), Model(), np.random.default_rng(1)
    for number in range(300):
        groups = rng.choice(100, 10, replace=False).tolist()
        apply(table, model, {group: {int(rng.integers(4)): 1.0} for group in groups}, number)
    assert 16 * len(table._log._written) < 4 * len(table) + 128
    assert table.snapshot().equals(table_of(model))


def test_a_group_grows_long_and_short_again() -> None:
    table, model = LeafTable({"x": np.float64, "n": np.int64}), Model()
    apply(table, model, {1: dict.fromkeys(range(20), 1.0), 2: {5: 2.0}}, 0)
    assert len(table._long) == 20
    around = table.extract_around(np.array([1, 2]), np.array([10, 5]), 2)
    assert {(1, time) for time in (8, 9, 11, 12)} | {(2, 5)} <= set(
        zip(around.columns["group"].tolist(), around.columns["time"].tolist(), strict=True)
    )
    apply(table, model, {1: dict.fromkeys(range(18), None)}, 1)
    assert len(table._long) == 0
    assert table.snapshot().equals(table_of(model))
    whole = table.extract(np.array([1]), np.array([BEGINNING]), np.array([FOREVER]))
    assert whole.columns["time"].tolist() == [18, 19]


def test_a_group_that_a_cti_makes_short_stays_long_until_it_is_written_to() -> None:
    """Where a CTI closes windows, the next batch often opens as many."""
    table, model = LeafTable({"x": np.float64, "n": np.int64}), Model()
    apply(table, model, {1: dict.fromkeys(range(20), 1.0), 2: {5: 2.0}}, 0)
    forget(table, model, np.array([1]), 19)
    assert len(table._long) == 1
    apply(table, model, {1: dict.fromkeys(range(19, 30), 1.0)}, 1)
    assert len(table._long) == 11
    forget(table, model, np.array([1]), 29)
    apply(table, model, {1: {30: 1.0}}, 2)
    assert len(table._long) == 0
    assert table.snapshot().equals(table_of(model))


def test_a_long_group_that_loses_all_rows_begins_anew() -> None:
    table, model = LeafTable({"x": np.float64, "n": np.int64}), Model()
    apply(table, model, {1: dict.fromkeys(range(20), 1.0)}, 0)
    forget(table, model, np.array([1]), 20)
    assert len(table) == 0
    apply(table, model, {1: {30: 1.0}, 2: {30: 1.0}}, 1)
    assert table.snapshot().equals(table_of(model))
