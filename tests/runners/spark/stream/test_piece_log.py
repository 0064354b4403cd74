"""Pieces that are split, cleaned and put together hold what the store holds."""

from __future__ import annotations

import numpy as np
import pytest
from tests.runners.spark.stream.rehearsal import Memory

from recension.operators.state.leaf_table import LeafTable
from recension.runners.spark.stream import pieces
from recension.runners.spark.stream.pieces import PieceLog


@pytest.mark.parametrize("seed", range(8))
def test_what_is_gone_stays_gone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a version was split into pieces, of which a micro-batch cleans only some."""
    for name, value in {"_BYTES": 200, "_FEW": 4, "_MANY": 6, "LINEAGE": 1}.items():
        monkeypatch.setattr(pieces, name, value)
    rng, table, log, store = np.random.default_rng(seed), LeafTable({"n": np.int64}), PieceLog([]), Memory()
    model: dict[tuple[int, int], int] = {}
    for version in range(1, 80):
        groups = np.sort(rng.choice(40, 40 if version == 1 else 3, replace=False))
        extract = table.extract(groups, np.full(len(groups), -1), np.full(len(groups), 9))
        model = {key: n for key, n in model.items() if key[0] not in groups}
        model |= {(int(g), t): version for g in groups for t in range(int(rng.integers(0, 3)))}
        rows = sorted((key, n) for key, n in model.items() if key[0] in groups)
        columns = [np.array(column, np.int64) for column in zip(*((*key, n) for key, n in rows), strict=True)]
        columns = columns or [np.zeros(0, np.int64)] * 3
        table.replace(extract, dict(zip(("group", "time", "n"), columns, strict=True)))
        log.extend(store, {"t": table}, version, f"v{version}")
        loaded = log.load(store, {"t": table.key})["t"].rows.to_pylist()
        assert {(row["group"], row["time"]): row["n"] for row in loaded} == model
