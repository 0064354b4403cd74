"""The bitemporal table: at every time of belief its rows are the history as of then."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension import denote
from recension.core.batch import from_elements
from recension.core.bitemporal import believed_events
from recension.core.errors import SchemaError, StreamError
from recension.core.events import Element, Insert, Retract
from recension.core.reconstitution import reconstitute
from recension.core.values import rows_of
from recension.denote.order import event_order, value_order
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

K = pa.schema([("k", pa.string())])


@given(st.data())
def test_as_the_oracle_says(data: st.DataObject) -> None:
    stream: list[Element] = data.draw(histories(SCHEMA).flatmap(physical_streams))
    given_batches: list[list[Element]] = data.draw(batchings(stream))
    versions = [(n * 10 + 10, from_elements(part, SCHEMA)) for n, part in enumerate(given_batches)]
    series = [
        (at, reconstitute([batch for _, batch in versions[: n + 1]], SCHEMA).to_events())
        for n, (at, _) in enumerate(versions)
    ]
    expected = sorted(
        ((*event_order(event), since, value_order(until)) for event, since, until in denote.beliefs(series))
    )
    found = believed_events(versions, SCHEMA)
    times = found.payload.select(["believed_from", "believed_to"]).cast(
        pa.schema([("believed_from", pa.int64()), ("believed_to", pa.int64())])
    )
    events = found.payload.drop_columns(["believed_from", "believed_to"])
    rows = zip(found.vs.tolist(), found.ve.tolist(), rows_of(events), times.to_pylist(), strict=True)
    assert expected == sorted(
        (
            vs,
            ve,
            tuple(map(value_order, payload.values())),
            time["believed_from"],
            value_order(time["believed_to"]),
        )
        for vs, ve, payload, time in rows
    )


def test_within_a_version_only_the_whole_counts() -> None:
    a = {"k": "a"}
    first: list[Element] = [Insert(a, 0, 9), Retract(a, 0, 9, 5), Retract(a, 0, 5, 7)]
    second: list[Element] = [Retract(a, 0, 7, 0), Insert(a, 0, 7)]
    found = believed_events([(1, from_elements(first, K)), (2, from_elements(second, K))], K)
    assert [str(e) for e in found.payload["believed_from"].cast(pa.int64()).to_pylist()] == ["1"]
    assert (found.vs.tolist(), found.ve.tolist()) == ([0], [7])
    assert found.payload["believed_to"].null_count == 1


def test_refusals() -> None:
    orphan = from_elements([Retract({"k": "a"}, 0, 9, 5)], K)
    with pytest.raises(StreamError, match="not there"):
        believed_events([(1, orphan)], K)
    taken = pa.schema([("believed_to", pa.string())])
    with pytest.raises(SchemaError, match="rename the column"):
        believed_events([], taken)
