"""Span: filter and map, row by row."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import Mask
from recension.core.events import Element, Insert, Retract
from recension.denote import select, where
from recension.denote.order import History
from recension.operators.span import Span, Transform
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

NO_COLUMNS = pa.schema([])
TWICE = pa.schema([("twice", pa.int64()), ("k", pa.string())])


def is_positive(payload: pa.RecordBatch) -> Mask:
    found: Mask = pc.fill_null(pc.greater_equal(payload["v"], 0), False).to_numpy(zero_copy_only=False)
    return found


def positive(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
    keep = is_positive(payload)
    return keep, payload.filter(pa.array(keep))


def twice(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
    columns = [pc.multiply(payload["v"], 2), payload["k"]]
    return None, pa.RecordBatch.from_arrays(columns, schema=TWICE)


def nothing_left(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
    return is_positive(payload), pa.RecordBatch.from_arrays([], schema=NO_COLUMNS)


def check(
    data: st.DataObject,
    output: pa.Schema,
    transform: Transform,
    oracle: Callable[[History], History],
    given_: pa.Schema = SCHEMA,
) -> None:
    drive = Driver(lambda: Span(output, transform), given_)
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories(given_)))))):
        drive.feed(batch)
        assert_equivalent(drive.history(), oracle(drive.input_history()))
        assert drive.cti == drive.input_cti()
        drive.restore_twin()
    assert drive.operator.state_rows() == 0


def where_positive(history: History) -> History:
    return where(history, lambda p: p["v"] is not None and p["v"] >= 0)


@given(st.data())
def test_a_filter(data: st.DataObject) -> None:
    check(data, SCHEMA, positive, where_positive)


@given(st.data())
def test_a_projection(data: st.DataObject) -> None:
    def oracle(history: History) -> History:
        chosen = select(history, "k", twice=lambda p: None if p["v"] is None else 2 * p["v"])
        return select(chosen, "twice", "k")

    check(data, TWICE, twice, oracle)


@given(st.data())
def test_all_columns_may_go_and_events_stay(data: st.DataObject) -> None:
    check(data, NO_COLUMNS, nothing_left, lambda history: select(where_positive(history)))


@given(st.data())
def test_a_payload_without_columns_still_has_its_length(data: st.DataObject) -> None:
    one = pa.schema([("one", pa.int64())])

    def ones(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
        assert payload.num_columns == 0
        return None, pa.RecordBatch.from_arrays([pa.array(np.ones(payload.num_rows, np.int64))], schema=one)

    check(data, one, ones, lambda history: select(history, one=lambda p: 1), NO_COLUMNS)


def test_elements_keep_their_order() -> None:
    drive = Driver(lambda: Span(SCHEMA, positive), SCHEMA)
    kept, dropped = {"k": "a", "v": 1}, {"k": "a", "v": -1}
    fed: list[Element] = [
        Insert(kept, 5, 9),
        Insert(dropped, 1, 2),
        Retract(kept, 5, 9, 7),
        Insert(kept, 2, 3),
    ]
    assert drive.feed(fed) == [fed[0], fed[2], fed[3]]


def test_a_batch_of_which_nothing_is_left() -> None:
    drive = Driver(lambda: Span(SCHEMA, positive), SCHEMA)
    assert drive.feed([Insert({"k": "a", "v": -1}, 1, 2)]) == []
    assert drive.feed([]) == []
