"""The past of groups is dropped a few groups at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state import block_table, end_points, leaf_table
from recension.operators.state.end_points import EndPoints

KEYS = pa.schema([("k", pa.int64())])


def test_a_group_that_shares_a_block_keeps_its_past_until_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LONG": 2, "_SHORT": 1}.items():
        monkeypatch.setattr(leaf_table, name, value)
    monkeypatch.setattr(block_table, "_BLOCK", 2)
    monkeypatch.setattr(end_points, "_AT_ONCE", 1)
    points = EndPoints({"n": np.int64}, KEYS)
    groups = points.number(pa.record_batch([pa.array([7, 8])], schema=KEYS), 2)
    group, time = np.repeat(groups, 4), np.array([3, 4, 5, 6, 1, 2, 7, 8])
    n = np.array([3, 2, 1, 0, 1, 1, 1, 0])
    empty = points.extract(groups, np.full(2, BEGINNING), np.full(2, FOREVER))
    points.replace(empty, {"group": group, "time": time, "n": n}, (group, time), (group[:0], time[:0]))
    points.forget_some_before(BEGINNING)

    # The second group is due first. The end of the first one, of which nothing is left at 6, is in its block.
    points.forget_some_before(10)

    rows = points.snapshot()["points"].snapshot()
    left = {(g, t): n for g, t, n in zip(*(rows[c].to_pylist() for c in ("group", "time", "n")), strict=True)}
    assert left == {(0, 3): 3, (0, 4): 2, (0, 5): 1, (0, 6): 0}
    assert points.groups_in_use().tolist() == [0]
