"""Distinct: after every batch exactly the maximal lifetimes of the input so far."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import inserts
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.denote import coalesce, distinct
from recension.operators.distinct import Distinct
from recension.operators.state import block_table, group_counts
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams, schemas

X = {"k": "x", "v": 1}
NO_COLUMNS = pa.schema([])


def driver(schema: pa.Schema = SCHEMA) -> Driver:
    return Driver(lambda: Distinct(schema), schema)


def played(*elements: Element) -> list[str]:
    """What comes out of one element at a time, the last answer only."""
    drive = driver()
    return [str(e) for e in [drive.feed([element]) for element in elements][-1]]


def event_bound(events: Sequence[Event], t: int) -> int:
    """State that may be held after a CTI: end points from t on and one before, and runs that reach t."""
    kept = 0
    for key in {str(e.payload) for e in events}:
        own = [e for e in events if str(e.payload) == key and e.ve >= t]
        points = {x for e in own for x in (e.vs, e.ve) if x >= t}
        runs = [run for run in distinct(own) if run.ve >= t]
        kept += (1 + len(points) if own else 0) + len(runs)
    return kept


def check(data: st.DataObject) -> None:
    """After every batch the output history is the oracle's, whatever was restored in between."""
    schema = data.draw(schemas(2))
    stream = data.draw(physical_streams(data.draw(histories(schema))))
    drive = driver(schema)
    for batch in data.draw(batchings(stream)):
        drive.feed(batch)
        assert_equivalent(drive.history(), distinct(drive.input_history()))
        assert drive.cti == drive.input_cti()
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.operator.state_rows() == 0
    assert drive.operator.state_bytes() == 0


@given(st.data())
def test_after_every_batch_the_history_is_the_oracles(data: st.DataObject) -> None:
    check(data)


@given(st.data())
def test_where_state_is_cut_into_blocks_does_not_matter(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_table, "_BLOCK", 2)
        check(data)


@given(st.data())
def test_keys_that_hold_nothing_are_given_up(data: st.DataObject) -> None:
    """With retiring at every CTI, numbers change all the time and nothing else does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_counts, "_REUSE_AT", 0)
        check(data)


@given(st.data())
def test_with_batches_of_one_state_is_bounded_by_the_ctis(data: st.DataObject) -> None:
    drive = driver()
    for element in data.draw(physical_streams(data.draw(histories()))):
        drive.feed([element])
        assert_equivalent(drive.history(), distinct(drive.input_history()))
        if isinstance(element, Cti):
            assert drive.operator.state_rows() <= event_bound(drive.input_history(), element.t)


@given(st.data())
def test_keys_may_be_some_of_the_columns(data: st.DataObject) -> None:
    """What `coalesce(on=...)` without a window asks for."""
    key_schema = pa.schema([SCHEMA.field("v")])
    drive = Driver(lambda: Distinct(key_schema, lambda payload: payload.select(["v"])), SCHEMA)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), coalesce(drive.input_history(), on="v"))


@given(st.data())
def test_payloads_without_columns_are_all_equal(data: st.DataObject) -> None:
    drive = driver(NO_COLUMNS)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(NO_COLUMNS)))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), distinct(drive.input_history()))
        drive.restore_twin()
    assert drive.operator.state_rows() == 0


def test_a_second_event_lengthens_the_first() -> None:
    assert played(Insert(X, 1, 5), Insert(X, 3, 9)) == [str(Retract(X, 1, 5, 9))]
    assert played(Insert(X, 1, 5), Insert(X, 5, 9)) == [str(Retract(X, 1, 5, 9))]
    assert played(Insert(X, 1, 5), Insert(X, 2, 4)) == []


def test_a_bridge_joins_two_runs_and_its_end_parts_them() -> None:
    bridge = [Insert(X, 1, 3), Insert(X, 6, 9), Insert(X, 3, 6)]
    assert played(*bridge) == [str(Retract(X, 1, 3, 9)), str(Retract(X, 6, 9, 6))]
    assert played(*bridge, Retract(X, 3, 6, 4)) == [str(Retract(X, 1, 9, 4)), str(Insert(X, 6, 9))]


def test_an_earlier_start_takes_the_run_back() -> None:
    assert played(Insert(X, 3, 9), Insert(X, 2, 9)) == [str(Insert(X, 2, 9)), str(Retract(X, 3, 9, 3))]


def test_an_event_at_the_cti_still_lengthens_a_run_that_ends_there() -> None:
    assert played(Insert(X, 1, 5), Cti(5), Insert(X, 5, 7)) == [str(Retract(X, 1, 5, 7))]
    assert played(Insert(X, 1, 5), Cti(5), Retract(X, 1, 5, 8)) == [str(Retract(X, 1, 5, 8))]
    assert played(Insert(X, 1, 5), Cti(6), Insert(X, 6, 7)) == [str(Insert(X, 6, 7))]


def test_an_event_that_comes_and_goes_within_a_batch_leaves_no_trace() -> None:
    drive = driver()
    assert drive.feed([Insert(X, 1, 5), Retract(X, 1, 5, 1)]) == []
    assert drive.operator.state_rows() == 0


def test_a_retraction_of_what_was_never_there_is_refused() -> None:
    with pytest.raises(StreamError, match="never been inserted"):
        driver().feed([Retract(X, 1, 5, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("size", [50, 5_000])
def test_large_streams_of_many_keys(size: int) -> None:
    """Many blocks of state, against the oracle at the end of each step."""
    random = np.random.default_rng(size)
    schema = pa.schema([("k", pa.int64())])
    keys = random.integers(0, size // 25, size)
    vs = random.integers(0, 500, size)
    ve = vs + random.integers(1, 40, size)
    operator, told = Distinct(schema), StreamModel()
    for first, last in pairwise(np.linspace(0, size, 6).astype(int).tolist()):
        payload = pa.RecordBatch.from_arrays([pa.array(keys[first:last])], schema=schema)
        out = operator.on_batch(0, inserts(vs[first:last], ve[first:last], payload))
        for element in out.to_elements():
            assert told.fault(element) is None
            told.take(element)
        so_far = zip(keys[:last].tolist(), vs[:last].tolist(), ve[:last].tolist(), strict=True)
        assert_equivalent(told.events(), distinct([Event({"k": k}, a, b) for k, a, b in so_far]))
    operator.on_cti(0, 1_000)
    assert operator.state_rows() == 0
    assert operator.on_cti(0, FOREVER).cti == FOREVER
