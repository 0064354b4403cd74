"""Reconstitution: every way to tell a history gives that history back, and no other."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import from_elements
from recension.core.difference import difference, equivalent
from recension.core.events import Element, Event, Insert, Payload, Retract
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder, reconstitute
from recension.core.ticks import FOREVER
from recension.testing import assert_equivalent, assert_valid
from recension.testing.model import StreamModel
from recension.testing.strategies import (
    SCHEMA,
    batchings,
    changed_histories,
    consistent_streams,
    histories,
    physical_streams,
    schemas,
)


def history_of(elements: list[Element], schema: pa.Schema = SCHEMA) -> History:
    return reconstitute([from_elements(elements, schema)], schema)


@given(st.data())
def test_any_stream_of_a_history_has_that_history(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    events = data.draw(histories(schema))
    stream = data.draw(physical_streams(events, schema=schema))
    assert_valid(stream)
    assert equivalent(history_of(stream, schema), History.from_events(events, schema))


@given(st.data())
def test_equal_values_of_other_bits_are_equal(data: st.DataObject) -> None:
    """0.0 and -0.0, NaN and NaN with its sign set: a retraction finds its event all the same."""
    schema = pa.schema([("x", pa.float64())])
    events = data.draw(histories(schema))
    stream = data.draw(physical_streams(events, schema=schema))
    for at in data.draw(st.sets(st.integers(0, 20))):
        if at < len(stream) and isinstance(e := stream[at], Insert | Retract):
            stream[at] = replace(e, payload=flipped(e.payload))
    assert equivalent(history_of(stream, schema), History.from_events(events, schema))


def flipped(payload: Payload) -> dict[str, float | None]:
    x = payload.get("x")
    return {"x": -x if x is not None and (x != x or x == 0) else x}


@given(consistent_streams(2))
def test_two_streams_of_one_history_are_equal(drawn: object) -> None:
    first, second = drawn.streams  # type: ignore[attr-defined]
    assert not difference(history_of(first), history_of(second))
    assert_equivalent(first, second)


@given(st.data())
def test_a_changed_history_is_never_equal(data: st.DataObject) -> None:
    events = data.draw(histories())
    changed = data.draw(changed_histories(events))
    one, other = (history_of(data.draw(physical_streams(h, schema=SCHEMA))) for h in (events, changed))
    found = difference(other, one)
    assert found
    assert not equivalent(one, other)
    assert len(found.unexpected) - len(found.missing) == len(changed) - len(events)


@given(st.data())
def test_every_prefix_agrees_with_the_plain_walk_under_any_batching(data: st.DataObject) -> None:
    events = data.draw(histories(max_size=4))
    builder, walk = HistoryBuilder(SCHEMA), StreamModel()
    for batch in data.draw(batchings(data.draw(physical_streams(events, schema=SCHEMA)))):
        builder.add(from_elements(batch, SCHEMA))
        for element in batch:
            walk.take(element)
        assert_equivalent(builder.build(), walk.events())


@given(st.data())
def test_before_cuts_every_lifetime(data: st.DataObject) -> None:
    events = data.draw(histories())
    t = data.draw(st.one_of(st.integers(-1, 10), st.just(FOREVER)))
    cut = [Event(e.payload, e.vs, min(e.ve, t)) for e in events if e.vs < t]
    assert_equivalent(History.from_events(events, SCHEMA).before(t), cut)


@given(st.data())
def test_after_a_cti_the_history_before_it_is_final(data: st.DataObject) -> None:
    """What CTIs promise: no extension of a prefix changes anything before its last CTI."""
    stream = data.draw(physical_streams(data.draw(histories(max_size=4)), schema=SCHEMA))
    cut = data.draw(st.integers(0, len(stream)))
    walk = StreamModel()
    for element in stream[:cut]:
        walk.take(element)
    early = History.from_events(walk.events(), SCHEMA).before(walk.cti)
    assert not difference(early, history_of(stream).before(walk.cti))


@given(histories(), st.data())
def test_events_survive_the_round_trip(events: list[Event], data: st.DataObject) -> None:
    history = History.from_events(events, SCHEMA)
    assert_equivalent(history.to_events(), events)
    assert equivalent(History.from_arrow(history.to_arrow()), history)


@given(st.data())
def test_shrink_only_streams_never_lengthen(data: st.DataObject) -> None:
    events = data.draw(histories())
    stream = data.draw(physical_streams(events, shrink_only=True))
    assert all(e.new_ve < e.ve for e in stream if isinstance(e, Retract))
    assert_valid(stream)
    assert_equivalent(stream, events)
