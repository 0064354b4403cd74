"""Coalescing by an equivalence against the oracle, for any streams and batching."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.equivalences import EQUIVALENCES
from tests.operators.readings_strategy import reading_streams

from recension.core.batch import inserts
from recension.core.errors import RecensionError, StreamError
from recension.core.events import Element, Event, Insert, Payload, Retract
from recension.core.ticks import FOREVER
from recension.denote import coalesce, edges
from recension.operators.coalesce import Coalesce
from recension.operators.edges import Edges
from recension.operators.state import block_table, group_counts, leaf_table
from recension.plan.equivalences import Custom, Equivalence, Trend, Within
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings

Oracle = Callable[[Payload, Payload], bool]


def driver(equivalence: Equivalence) -> Driver:
    return Driver(lambda: Coalesce(SCHEMA, ["k"], ["v"], equivalence), SCHEMA)


def check(data: st.DataObject, equivalence: Equivalence, oracle: Oracle) -> None:
    drive = driver(equivalence)
    for batch in data.draw(batchings(data.draw(reading_streams()))):
        drive.feed(batch)
        assert_equivalent(drive.history(), coalesce(drive.input_history(), "v", "k", oracle))
        assert drive.cti == drive.input_cti()
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.operator.state_rows() == drive.operator.state_bytes() == 0


@given(st.data(), st.sampled_from(EQUIVALENCES))
def test_after_every_batch_the_history_is_the_oracles(
    data: st.DataObject, pair: tuple[Equivalence, Oracle]
) -> None:
    check(data, *pair)


@given(st.data(), st.sampled_from(EQUIVALENCES[:3]))
def test_blocks_numbers_and_rows_do_not_matter(data: st.DataObject, pair: tuple[Equivalence, Oracle]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 1)
        patch.setattr(group_counts, "_REUSE_AT", 0)
        check(data, *pair)


INCREASING = EQUIVALENCES[0][1]


def test_an_insertion_parts_a_run_where_it_is() -> None:
    """Ruling 23: run 1, 2, 3 "increasing"; 0 arrives after the 2: 1, 2 | 0, 3."""
    steps = Edges(SCHEMA, ["k"]), Coalesce(SCHEMA, ["k"], ["v"], Trend("increasing"))
    drive = Driver(lambda: steps[1], SCHEMA)
    first = Driver(lambda: steps[0], SCHEMA)
    for at, v in [(1, 1), (2, 2), (4, 3)]:
        drive.feed(first.feed([Insert({"k": "a", "v": v}, at, at + 1)]))
    assert drive.history() == [Event({"k": "a", "v": 1}, 1)]
    out = drive.feed(first.feed([Insert({"k": "a", "v": 0}, 3, 4)]))
    assert [str(e) for e in out] == [
        str(Retract({"k": "a", "v": 1}, 1, FOREVER, 3)),
        str(Insert({"k": "a", "v": 0}, 3)),
    ]


def test_a_retraction_of_what_was_never_there_is_refused() -> None:
    with pytest.raises(StreamError, match="never been inserted"):
        driver(Trend("increasing")).feed([Retract({"k": "a", "v": 1}, 1, 5, 1)])


def test_two_that_start_together_are_refused() -> None:
    """Which comes first would depend on the ends, which may move after a CTI has passed the starts."""
    drive = driver(Trend("increasing"))
    drive.feed([Insert({"k": "a", "v": 1}, 4, 5), Insert({"k": "b", "v": 1}, 4, 5)])
    with pytest.raises(StreamError, match="two events of one group start at 4"):
        drive.feed([Insert({"k": "a", "v": 2}, 4, 9)])


def test_a_function_that_fails_is_named() -> None:
    def odd(before: pa.RecordBatch, after: pa.RecordBatch) -> list[bool]:
        return [True, False, True]

    readings: list[Element] = [Insert({"k": "a", "v": v}, v, v + 1) for v in (1, 2, 3)]
    with pytest.raises(RecensionError, match="equivalence odd: 2 pairs went in, 3 came out"):
        driver(Custom(odd)).feed(readings)


@pytest.mark.parametrize("values", [[1, 2**63 - 1], [-(2**63), 2**63 - 1]])
def test_distances_do_not_overflow(values: list[int]) -> None:
    batches = [pa.record_batch([pa.array([v])], names=["v"]) for v in values]
    far = values[1] - values[0]
    assert Within(far)(*batches).tolist() == [True]
    assert Within(far - 2**12)(*batches).tolist() == [False]


def test_nan_goes_on_with_nothing() -> None:
    before, after = (pa.record_batch([pa.array(v)], names=["v"]) for v in ([float("nan"), 1.0], [1.0, 1.0]))
    expected: list[tuple[Equivalence, list[bool]]] = [
        (Within(9), [False, True]),
        (Trend("increasing"), [False, False]),
    ]
    for equivalence, holds in expected:
        assert equivalence(before, after).tolist() == holds


@pytest.mark.parametrize("size", [80, 3_000])
def test_large_streams_of_edges(size: int) -> None:
    """Long runs that late readings part and join, over many blocks of state."""
    random = np.random.default_rng(size)
    late = np.argsort(np.arange(size) + random.integers(0, size // 4, size))
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    values, groups = np.where(random.random(size) < 0.02, 50, 0), random.integers(0, 3, size)
    steps, told = (Edges(schema, ["k"]), Coalesce(schema, ["k"], ["v"], Within(1))), StreamModel()
    for part in np.array_split(late, 6):
        payload = pa.RecordBatch.from_arrays([pa.array(groups[part]), pa.array(values[part])], schema=schema)
        out = steps[1].on_batch(0, steps[0].on_batch(0, inserts(part, part + 1, payload)))
        for element in out.to_elements():
            assert told.fault(element) is None
            told.take(element)
    every = [
        Event({"k": k, "v": v}, t, t + 1)
        for t, (k, v) in enumerate(zip(groups.tolist(), values.tolist(), strict=True))
    ]
    oracle = EQUIVALENCES[2][1]
    if size < 100:
        assert_equivalent(told.events(), coalesce(edges(every, "k"), "v", "k", oracle))
    else:
        assert_equivalent(told.events(), coalesce(edges(every, "k"), ["k", "v"]))


@given(st.data())
def test_edges_coalesced(data: st.DataObject) -> None:
    drive, first = driver(Trend("increasing")), Driver(lambda: Edges(SCHEMA, ["k"]), SCHEMA)
    for batch in data.draw(batchings(data.draw(reading_streams()))):
        drive.feed(first.feed(batch))
        assert_equivalent(drive.history(), coalesce(edges(first.input_history(), "k"), "v", "k", INCREASING))
    assert drive.operator.state_rows() == 0


def test_a_longer_reach_is_seen_beyond_what_was_read() -> None:
    """In a long group the first of a chain stays, and its second grows: up to one that is far behind."""
    reading: Payload = {"k": "a", "v": 0}
    short = [Insert(reading, vs, vs + 2) for vs in range(2, 14)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 1)
        patch.setattr(leaf_table, "_LONG", 4)
        drive = driver(Within(9))
        drive.feed([Insert(reading, 0, 2), Insert(reading, 1, 50), *short, Insert(reading, 70, 80)])
    assert drive.history() == [Event(reading, 0, 50), Event(reading, 70, 80)]
    drive.feed([Retract(reading, 1, 50, 70)])
    assert drive.history() == [Event(reading, 0, 80)]
