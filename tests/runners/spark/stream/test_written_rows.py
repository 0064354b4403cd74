"""What a micro-batch writes, and a stale engine reads, follows what changes, not how much state there is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.runners.spark.stream.rehearsal import Memory

import recension as rc
from recension.runners.spark.stream.chunks import Head, load, load_since, save
from recension.runners.spark.stream.pieces import unpack_piece

SOURCE = rc.source("s", {"k": "int64", "x": "float64"})
QUERIES = {
    "sum": SOURCE.group_by("k").agg(n=rc.count(), t=rc.sum("x")),
    "distinct": SOURCE.select("k").distinct(),
    "max": SOURCE.group_by("k").agg(m=rc.max("x")),
    "join": SOURCE.join(SOURCE.select("k"), on="k"),
}
NEW = 200


def _rows(first: int, size: int, live: int, seed: int) -> pa.Table:
    dice, vs = np.random.default_rng(seed), np.arange(first, first + size)
    key = dice.integers(0, live // 2, size)
    times = {"_kind": ["insert"] * size, "_vs": vs, "_ve": vs + live}
    return pa.table({**times, "k": key, "x": dice.random(size)})


def _write(query: rc.Stream, live: int) -> tuple[int, int, int]:
    """Rows and bytes that a small micro-batch writes, with so many live events; what a stale engine reads."""
    session, store = rc.session(query, history_limit=0), Memory()
    session.push("s", _rows(0, live, live, 1))
    session.advance("s", live)
    session.read()
    head, _ = save(store, session.parts(), None, "", 0)
    stale = rc.session(query, history_limit=0)
    since = _load(stale, store, head)
    session.push("s", _rows(live, NEW, live, 2))
    session.advance("s", live + NEW)
    session.read()
    after, written = save(store, session.parts(), head, "", 1)
    fresh = [piece[0] for piece in after.pieces if piece[1] > head.version]
    rows = sum(len(change.rows) for name in fresh for change in unpack_piece(store[name]).values())
    stale.restore_state(load_since(store, after, stale.parts(), since))
    return rows, written, sum(len(store[name]) for name in fresh)


def _load(session: rc.Session, store: Memory, head: Head) -> int:
    session.restore_state(load(store, head))
    return head.version


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_written_follows_the_change(name: str) -> None:
    small, large = _write(QUERIES[name], 2_000), _write(QUERIES[name], 20_000)
    assert large[0] <= 1.25 * small[0]
    assert large[1] <= 1.3 * small[1]
    assert large[2] <= 1.3 * small[2]


def test_five_rows_a_new_end_point_at_most() -> None:
    """A new event has two end points; what is written for queues, bags and keys counts too."""
    rows, _, _ = _write(QUERIES["sum"], 20_000)
    assert rows <= 5 * 2 * NEW
