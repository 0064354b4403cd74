"""Pieces that are split, cleaned and put together hold what the store holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.runners.spark.stream.rehearsal import Memory

from recension.operators.lmerge.key_table import KeyTable
from recension.operators.state.leaf_table import LeafTable
from recension.operators.state.row_blocks import RowBlocks
from recension.runners.spark.stream import pieces
from recension.runners.spark.stream.pieces import PieceLog

Model = dict[tuple[int, int], int]


class Leaves(LeafTable):
    """Numbers by (group, time)."""

    def __init__(self) -> None:
        super().__init__({"n": np.int64})

    def rewrite(self, groups: np.ndarray[Any, Any], rows: Model) -> None:
        extract = self.extract(groups, np.full(len(groups), -1), np.full(len(groups), 9))
        self.replace(extract, dict(zip(("group", "time", "n"), _columns(rows), strict=True)))


class Blocks(RowBlocks):
    """Numbers by (group, time); (time, row) tells them apart."""

    def __init__(self) -> None:
        super().__init__({"row": np.int64, "n": np.int64})

    def rewrite(self, groups: np.ndarray[Any, Any], rows: Model) -> None:
        held = {
            name: column.to_numpy() for name, column in zip(self._types, self.snapshot().columns, strict=True)
        }
        own = np.isin(held["group"], groups)
        group, time, n = _columns(rows)
        added = {"group": group, "time": time, "row": group, "n": n}
        self.exchange({name: column[own] for name, column in held.items()}, added)


class Keyed(KeyTable):
    """Numbers by a key of both."""

    def __init__(self) -> None:
        super().__init__({"n": (np.int64, 0), "group": (np.int64, 0), "time": (np.int64, 0)})

    def rewrite(self, groups: np.ndarray[Any, Any], rows: Model) -> None:
        group, time, n = _columns(rows)
        key = (16 * group + time + 1).astype(np.uint64)
        held = self.rows()[np.isin(self["group"][self.rows()], groups)]
        self.remove_rows(held[~np.isin(self.keys[held], key)])
        nodes, _ = self.find_or_add(key, group=group, time=time)
        self["n"][nodes] = n
        self.note(nodes)


def _columns(rows: Model) -> list[np.ndarray[Any, Any]]:
    listed = sorted((*key, n) for key, n in rows.items())
    return [np.array([row[i] for row in listed], np.int64) for i in range(3)]


@pytest.mark.parametrize("make", [Leaves, Blocks, Keyed])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))])
def test_what_is_gone_stays_gone(make: Callable[[], Any], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a version was split into pieces, of which a micro-batch cleans only some."""
    for name, value in {"_BYTES": 200, "_FEW": 4, "_MANY": 6, "LINEAGE": 3}.items():
        monkeypatch.setattr(pieces, name, value)
    rng, table, log, store = np.random.default_rng(seed), make(), PieceLog([]), Memory()
    behind, reached = make(), -1
    model: Model = {}
    for version in range(1, 80):
        groups = np.sort(rng.choice(40, 40 if version == 1 else 3, replace=False))
        model = {key: n for key, n in model.items() if key[0] not in groups}
        fresh = {(int(g), t): version for g in groups for t in range(int(rng.integers(0, 3)))}
        model |= fresh
        table.rewrite(groups, fresh)
        log.extend(store, {"t": table}, version)
        loaded = log.load(store, {"t": table.key})["t"]
        assert _read(loaded.rows) == model
        assert not len(loaded.gone), "marks may name numbers that nothing has any more"
        if version % 3 == 0:
            behind.restore((log.load if reached < 0 else _since(log, reached))(store, {"t": table.key})["t"])
            reached = version
            assert _read(behind.snapshot()) == model


def _since(log: PieceLog, version: int) -> Callable[..., Any]:
    return lambda store, keys: log.load_since(store, keys, version)


def _read(rows: Any) -> Model:
    return {(row["group"], row["time"]): row["n"] for row in rows.to_pylist()}
