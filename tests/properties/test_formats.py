"""Files: what is written is what is read, in every format, as a stream and as a history."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import EventBatch, concat, empty, from_elements
from recension.core.difference import equivalent
from recension.core.events import Cti, Element, ExternalCti
from recension.core.formats import write_history, write_stream
from recension.core.history import History
from recension.core.rowhash import rows_equal
from recension.core.ticks import FOREVER
from recension.gate.files import open_stream, read_history
from recension.testing.strategies import batchings, histories, physical_streams, schemas

FORMATS = ["parquet", "jsonl", "csv", "arrow", "arrows"]
TIMES = [pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")]


def assert_identical(found: EventBatch, written: EventBatch) -> None:
    assert found.schema == written.schema
    for name in ("kind", "vs", "ve", "new_ve", "count"):
        assert getattr(found, name).tolist() == getattr(written, name).tolist(), name
    assert rows_equal(found.payload, written.payload, len(written)).all()


@st.composite
def streams(draw: st.DrawFn, schema: pa.Schema) -> list[Element]:
    stream = draw(physical_streams(draw(histories(schema, max_size=4, extremes=True)), schema=schema))
    at = draw(st.integers(0, len(stream)))
    return [*stream[:at], ExternalCti(0, 8, 4), *stream[at:]] if draw(st.booleans()) else stream


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_stream_is_read_as_it_was_written(suffix: str) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        schema = data.draw(schemas())
        stream = data.draw(streams(schema))
        batches = [from_elements(batch, schema) for batch in data.draw(batchings(stream))]
        time_type = data.draw(st.sampled_from(TIMES))
        size = data.draw(st.integers(1, 5))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"stream.{suffix}")
            assert write_stream(path, batches, schema, time_type) == len(stream)
            reader = open_stream(path, schema=schema, batch_size=size)
            found = list(reader)
            # In text, a stream that is only closed shows no time whose type could be told.
            assert reader.time_type == time_type or stream == [Cti(FOREVER)]
        assert all(0 < len(batch) <= size for batch in found)
        assert_identical(concat([*found, empty(schema)]), concat([*batches, empty(schema)]))

    holds()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_history_is_read_as_it_was_written(suffix: str) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        schema = data.draw(schemas())
        history = History.from_events(data.draw(histories(schema, extremes=True)), schema)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"history.{suffix}")
            write_history(path, history, data.draw(st.sampled_from(TIMES)))
            found = read_history(path, schema=schema)
        assert found.schema == schema
        assert equivalent(replace(found, time_type=history.time_type), history)

    holds()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_typed_formats_need_no_schema(suffix: str) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        schema = data.draw(schemas())
        written = from_elements(data.draw(streams(schema)), schema)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"stream.{suffix}")
            write_stream(path, [written], schema)
            found = list(open_stream(path))
        assert_identical(concat([*found, empty(schema)]), written)

    holds()
