"""What the checks of a source remember is bounded by the CTIs made above it, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Cti, Element
from recension.gate.files import open_stream
from recension.gate.gate import Gate
from recension.gate.open_close import GONE
from recension.testing.strategies import batchings, histories, physical_streams

Query: TypeAlias = Callable[[rc.Stream, rc.Stream], rc.Stream]

ROWS = 3_000
SCHEMA = pa.schema([("x", pa.int64())])
one = rc.source("s", SCHEMA)
fast = rc.source("fast", SCHEMA)
QUERIES: dict[str, Query] = {
    "advance_time": lambda s, _: s.advance_time(5),
    "adjust": lambda s, _: s.advance_time(5, late="adjust"),
    "where": lambda s, _: s.where(rc.col("x") >= 1).advance_time(2),
    "finalize": lambda s, _: s.where(rc.col("x") >= 1).extend(-1).finalize(2),
    "forward": lambda s, _: s.shift(2).advance_time(2),
    "back": lambda s, _: s.shift(-2).advance_time(1),
    "longer": lambda s, _: s.extend(2).advance_time(1),
    "shorter": lambda s, _: s.extend(-2).advance_time(1),
    "duration": lambda s, _: s.set_duration(2).advance_time(1),
    "union": lambda s, t: s.union(t).advance_time(1),
    "import": lambda s, t: s.advance_time(by=t),
    "two": lambda s, _: s.advance_time(1).union(s.shift(1).advance_time(4)),
    "raw too": lambda s, _: s.advance_time(1).union(s),
}


def points(first: int) -> pa.Table:
    vs = np.arange(first, first + ROWS)
    return pa.table({"_kind": ["insert"] * ROWS, "_vs": vs, "_ve": vs + 3, "x": vs % 7})


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in ("union", "import", "raw too")])
def test_a_source_without_ctis_is_forgotten_behind_those_made_above_it(name: str) -> None:
    session = rc.session(QUERIES[name](one, fast))
    for n in range(4):
        session.push("s", points(n * ROWS))
        source = session.metrics()[0]
        assert source.name == "s"
        assert session.snapshot()["sources/s/live"].num_rows == source.state_rows <= 20
        # The last batch is there as it came, or else as hashes.
        assert source.state_bytes <= (32 + 8) * ROWS
        assert session.metrics()[0].state_bytes == 24 * source.state_rows


def test_a_slow_stream_is_forgotten_behind_the_fast_one() -> None:
    session = rc.session(one.advance_time(by=fast))
    for n in range(4):
        session.push("s", points(n * ROWS))
        session.advance("fast", (n + 1) * ROWS)
        assert session.snapshot()["sources/s/live"].num_rows <= 3


def test_a_stream_that_is_read_as_it_is_is_not_forgotten() -> None:
    session = rc.session(one.advance_time(1).union(one))
    session.push("s", points(0))
    assert session.metrics()[0].state_rows == ROWS


def test_orphans_are_still_told_with_their_row() -> None:
    session = rc.session(one.advance_time(5))
    session.push("s", points(0))
    with pytest.raises(StreamError, match=f"s: row {ROWS + 1}: retracts an event that is not there"):
        session.push("s", [rc.Retract({"x": 1}, ROWS - 2, ROWS + 1, ROWS + 2)])
    restored = rc.session(one.advance_time(5))
    restored.restore(session.snapshot())
    restored.push("s", [rc.Retract({"x": 1}, 1, 4, 5)])
    assert restored.read().metrics[1].dropped == 1


def outcome(name: str, batches: list[list[Element]], *, closes: bool) -> tuple[object, object]:
    session = rc.session(QUERIES[name](one, fast))
    for batch in batches:
        session.push("s", batch)
        if "fast" in session.sources:
            session.advance("fast", max((e.vs for e in batch if not isinstance(e, Cti)), default=0))
    if closes and "fast" in session.sources:
        session.advance("fast", rc.FOREVER)
        session.push("s", [e for batch in batches for e in batch if isinstance(e, rc.Insert)])
    return session.read().elements(), session.counts()


@pytest.mark.parametrize("name", QUERIES)
@given(st.data())
def test_forgetting_changes_nothing(name: str, data: st.DataObject) -> None:
    history = data.draw(histories(schema=SCHEMA))
    stream = data.draw(physical_streams(history, schema=SCHEMA))
    batches = data.draw(batchings([e for e in stream if not isinstance(e, Cti)]))
    closes = data.draw(st.booleans())
    found = outcome(name, batches, closes=closes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gate, "forget_before", lambda *_: None)
        assert found == outcome(name, batches, closes=closes)


def test_the_checks_of_a_file_are_forgotten_too(tmp_path: Path) -> None:
    pq.write_table(points(0), tmp_path / "s.parquet")
    reader = open_stream(tmp_path / "s.parquet", batch_size=500)
    result = rc.run(one.advance_time(5), {"s": reader})
    assert 0 < result.metrics[0].state_rows <= 20


def visits(first: int, kind: str) -> pa.Table:
    at = np.arange(first, first + ROWS)
    times = {"_vs": at, "_ve": pa.nulls(ROWS, pa.int64())} if kind == "open" else {"_vs": None, "_ve": at + 2}
    times = {name: pa.nulls(ROWS, pa.int64()) if t is None else t for name, t in times.items()}
    return pa.table({"_kind": [kind] * ROWS, **times, "x": at})


def test_what_was_opened_and_closed_is_forgotten_behind_the_ctis_made_above() -> None:
    session = rc.session(one.advance_time(ROWS + 5))
    for n in range(5):
        session.push("s", visits(n * ROWS, "open"))
        session.push("s", visits(n * ROWS, "close"))
        assert session.metrics()[0].state_rows <= 9 * ROWS
    session.push("s", [rc.Insert({"x": -1}, 9 * ROWS, 9 * ROWS + 1)])
    session.push("s", visits(9 * ROWS, "open"))
    assert session.snapshot()["sources/s/open"].num_rows == ROWS
    assert len(session.read().history().to_events()) == 6 * ROWS + 1


@pytest.mark.parametrize("revive", [False, True])
def test_a_close_of_what_is_forgotten_is_left_out_and_counted(revive: bool) -> None:
    session = rc.session(one.advance_time(5))
    session.push("s", visits(0, "open"))
    session.push("s", visits(0, "close"))
    session.push("s", [rc.Insert({"x": -1}, 2 * ROWS, 2 * ROWS + 1)])
    if revive:
        restored = rc.session(one.advance_time(5))
        restored.restore(session.snapshot())
        session = restored
    late = pa.table({"_kind": ["close"], "_vs": pa.nulls(1, pa.int64()), "_ve": [3 * ROWS], "x": [7]})
    session.push("s", late)
    assert session.counts()["s"] == {GONE: 1}
    [(reason, batch)] = session.read().dropped["s"]
    assert (reason, len(batch)) == (GONE, 1)


def test_a_close_of_nothing_is_an_error_as_long_as_all_is_remembered() -> None:
    session = rc.session(one.advance_time(5).union(one))
    session.push("s", visits(0, "open"))
    with pytest.raises(StreamError, match="closes an event that is not open, or whose end is final"):
        session.push("s", visits(ROWS, "close"))
