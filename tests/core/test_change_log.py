"""Several changes as one: of each key the last counts, whatever the keys are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recension.core.change_log import Change, newest
from recension.core.ticks import BEGINNING, FOREVER

TIMES = st.sampled_from([BEGINNING, -5, 0, 1, 2, 1 << 61, FOREVER - 1, FOREVER])
NEAR = st.sampled_from([-5, 0, 1, 2, FOREVER])
KEYS = {
    "one number": st.tuples(st.integers(0, 5)),
    "near": st.tuples(st.integers(0, 3), NEAR),
    "time first": st.tuples(NEAR, st.integers(0, 3)),
    "far apart": st.tuples(TIMES, TIMES),
    "hashes": st.tuples(st.sampled_from([0, 1, FOREVER, (1 << 64) - 1]), NEAR),
}


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Change], tuple[str, ...], int]:
    """Changes that follow each other, each sorted by key."""
    kind = draw(st.sampled_from(list(KEYS)))
    key = KEYS[kind]
    names = ("a", "b")[: len(draw(key))]
    types = [pa.uint64() if kind == "hashes" else pa.int64(), pa.int64()][: len(names)]
    changes = []
    for _ in range(draw(st.integers(1, 4))):
        told = draw(st.dictionaries(key, st.none() | st.integers(0, 9), max_size=6))
        rows = sorted(one for one, value in told.items() if value is not None)
        gone = sorted(one for one, value in told.items() if value is None)
        table = _table(rows, names, types).append_column("x", pa.array([told[r] for r in rows], pa.int64()))
        changes.append(Change(table, _table(gone, names, types), draw(st.booleans())))
    return changes, names, len(changes)


def _table(keys: list[tuple[int, ...]], names: tuple[str, ...], types: list[pa.DataType]) -> pa.Table:
    columns = [pa.array([key[i] for key in keys], kind) for i, kind in enumerate(types)]
    return pa.table(columns, names=list(names))


@given(logs())
def test_the_last_of_each_key_counts(log: tuple[list[Change], tuple[str, ...], int]) -> None:
    changes, key, size = log
    expected: dict[tuple[int, ...], tuple[int | None, int]] = {}
    for version, change in enumerate(changes):
        if change.is_whole:
            expected.clear()
        expected |= {tuple(r[k] for k in key): (r["x"], version) for r in change.rows.to_pylist()}
        expected |= {tuple(r[k] for k in key): (None, version) for r in change.gone.to_pylist()}
    found = newest(changes, list(range(size)), key)
    assert found.versions is not None
    rows = [(tuple(r[k] for k in key), r["x"]) for r in found.rows.to_pylist()]
    assert rows == sorted((k, x) for k, (x, _) in expected.items() if x is not None)
    assert found.versions.tolist() == [expected[k][1] for k, _ in rows]
    gone = [tuple(r[k] for k in key) for r in found.gone.to_pylist()]
    assert gone == sorted(k for k, (x, _) in expected.items() if x is None)
    assert found.is_whole == any(change.is_whole for change in changes)
    assert found.versions.dtype == np.int64
