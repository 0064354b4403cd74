"""Edges against the oracle, for any streams of readings and batching."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.readings_strategy import SCHEMA, reading_streams

import recension as rc
from recension.core.batch import inserts
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.denote import edges
from recension.operators.edges import Edges
from recension.operators.state import block_table, group_counts
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import batchings


def driver(*group_by: str) -> Driver:
    return Driver(lambda: Edges(SCHEMA, group_by), SCHEMA)


def check(data: st.DataObject) -> None:
    drive = driver("k")
    for batch in data.draw(batchings(data.draw(reading_streams()))):
        drive.feed(batch)
        assert_equivalent(drive.history(), edges(drive.input_history(), "k"))
        assert drive.cti == drive.input_cti()
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.operator.state_rows() == drive.operator.state_bytes() == 0


@given(st.data())
def test_after_every_batch_the_history_is_the_oracles(data: st.DataObject) -> None:
    check(data)


@given(st.data())
def test_blocks_and_numbers_of_groups_do_not_matter(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 2)
        patch.setattr(group_counts, "_REUSE_AT", 0)
        check(data)


@given(st.data())
def test_state_is_the_future_and_one_reading_a_group(data: st.DataObject) -> None:
    drive = driver("k")
    for element in data.draw(reading_streams()):
        drive.feed([element])
        if isinstance(element, Cti):
            groups = {e.payload["k"] for e in drive.input_history()}
            future = sum(e.vs >= element.t for e in drive.input_history())
            assert drive.operator.state_rows() <= future + len(groups)


def a(v: int) -> dict[str, object]:
    return {"k": "a", "v": v}


def played(*elements: Element) -> list[str]:
    drive = driver("k")
    return [str(e) for e in [drive.feed([element]) for element in elements][-1]]


def test_a_late_reading_ends_the_one_before_it() -> None:
    told = [Insert(a(1), 1, 2), Insert(a(3), 9, 10)]
    assert played(*told) == [str(Retract(a(1), 1, FOREVER, 9)), str(Insert(a(3), 9))]
    assert played(*told, Insert(a(2), 4, 5)) == [str(Retract(a(1), 1, 9, 4)), str(Insert(a(2), 4, 9))]


def test_a_reading_taken_back_gives_its_time_to_the_one_before() -> None:
    told = [Insert(a(1), 1, 2), Insert(a(2), 4, 5), Insert(a(3), 9, 10)]
    gone = played(*told, Retract(a(2), 4, 5, 4))
    assert gone == [str(Retract(a(1), 1, 4, 9)), str(Retract(a(2), 4, 9, 4))]
    assert played(*told, Retract(a(2), 4, 5, 99)) == []


def test_a_reading_is_corrected_in_one_batch() -> None:
    drive = driver("k")
    drive.feed([Insert(a(1), 1, 2), Insert(a(2), 4, 5)])
    drive.feed([Insert(a(7), 1, 2), Retract(a(1), 1, 2, 1)])
    assert_equivalent(drive.history(), [Event(a(7), 1, 4), Event(a(2), 4)])


def test_what_comes_and_goes_beside_a_reading_changes_nothing() -> None:
    drive = driver("k")
    drive.feed([Insert(a(1), 1, 2)])
    assert drive.feed([Insert(a(7), 1, 2), Retract(a(7), 1, 2, 1)]) == []
    assert drive.history() == [Event(a(1), 1)]


def test_two_readings_at_one_time_are_refused() -> None:
    with pytest.raises(StreamError, match="two readings of one group at 4"):
        driver("k").feed([Insert(a(1), 4, 5), Insert(a(2), 4, 5)])
    drive = driver("k")
    drive.feed([Insert(a(1), 4, 5)])
    with pytest.raises(StreamError, match="two readings of one group at 4"):
        drive.feed([Insert(a(1), 4, 9)])
    with pytest.raises(StreamError, match="never been inserted"):
        driver("k").feed([Retract(a(1), 4, 5, 4)])


@pytest.mark.slow
@pytest.mark.parametrize("size", [60, 4_000])
def test_large_streams_of_many_groups(size: int) -> None:
    random = np.random.default_rng(size)
    times = random.permutation(size)
    groups = random.integers(0, 7, size)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    operator, told = Edges(schema, ["k"]), StreamModel()
    for part in np.array_split(np.arange(size), 5):
        columns = [pa.array(groups[part]), pa.array(times[part])]
        payload = pa.RecordBatch.from_arrays(columns, schema=schema)
        for element in operator.on_batch(0, inserts(times[part], times[part] + 1, payload)).to_elements():
            assert told.fault(element) is None
            told.take(element)
    every = [
        Event({"k": int(g), "v": int(t)}, int(t), int(t) + 1) for g, t in zip(groups, times, strict=True)
    ]
    assert_equivalent(told.events(), edges(every, "k"))


def test_two_readings_at_one_time_are_told_in_the_words_of_the_step() -> None:
    trades, quotes = (rc.source(name, {"stock": "string", "n": "int64"}) for name in ("trades", "quotes"))
    twice = [rc.Insert({"stock": "x", "n": n}, 1, 2) for n in (1, 2)]
    for query, place in (
        (quotes.edges(group_by="stock"), "edges(group_by=...)"),
        (trades.as_of(quotes, on="stock"), "as_of(on=...)"),
        (quotes.coalesce("n", "stock", window=rc.range(5, slide=1)), "coalesce(group_by=...)"),
    ):
        with pytest.raises(rc.StreamError, match=re.escape(f"name what tells them apart in {place}")):
            rc.run(
                query, {"trades": [], "quotes": twice} if "trades" in query.explain() else {"quotes": twice}
            )
