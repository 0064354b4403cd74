"""Stream classes: `classify` agrees with the papers' definitions written as loops."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import from_elements
from recension.core.classes import classify
from recension.core.events import Cti, Element, Insert, Retract
from recension.testing.model import StreamModel, payload_key
from recension.testing.physical import sync_time
from recension.testing.strategies import SCHEMA, batchings, class_streams, histories, physical_streams


def data_of(stream: list[Element]) -> list[Insert | Retract]:
    return [e for e in stream if isinstance(e, Insert | Retract)]


def is_ordered(stream: list[Element]) -> bool:
    return all(sync_time(a) <= sync_time(b) for a, b in pairwise(data_of(stream)))


def is_perfect(stream: list[Element]) -> bool:
    return is_ordered(stream) and not any(isinstance(e, Retract) for e in stream)


def is_closed(stream: list[Element]) -> bool:
    """Ruling A5: the last element is a CTI at or after every end."""
    walk = StreamModel()
    for element in stream:
        walk.take(element)
    return bool(stream) and isinstance(stream[-1], Cti) and all(e.ve <= walk.cti for e in walk.events())


def has_key(stream: list[Element]) -> bool:
    """(vs, payload) is a key of the history after every element."""
    walk = StreamModel()
    for element in stream:
        walk.take(element)
        keys = Counter((e.vs, payload_key(e.payload)) for e in walk.events())
        if max(keys.values(), default=0) > 1:
            return False
    return True


def rank(e: Insert | Retract) -> tuple[Any, ...]:
    """(vs, payload, ve), nulls first."""
    values = (e.payload.get(name) for name in SCHEMA.names)
    return e.vs, *((v is not None, v) for v in values), e.ve


def classes(stream: list[Element]) -> list[str]:
    perfect, data = is_perfect(stream), data_of(stream)
    holds = {
        "R0": perfect and all(a.vs < b.vs for a, b in pairwise(data)),
        "R1": perfect and all(rank(a) <= rank(b) for a, b in pairwise(data)),
        "R2": perfect and has_key(stream),
        "R3": has_key(stream),
        "R4": True,
    }
    return [name for name, is_so in holds.items() if is_so]


def check(stream: list[Element], batches: list[list[Element]]) -> list[str]:
    report = classify(from_elements(batch, SCHEMA) for batch in batches)
    assert report.classes == classes(stream)
    assert report.is_ordered == is_ordered(stream)
    assert report.is_perfect == is_perfect(stream)
    assert report.is_closed == is_closed(stream)
    assert report.inserts == sum(isinstance(e, Insert) for e in stream)
    assert report.retractions == sum(isinstance(e, Retract) for e in stream)
    assert report.removals == sum(isinstance(e, Retract) and e.new_ve == e.vs for e in stream)
    assert report.ctis == sum(isinstance(e, Cti) for e in stream)
    return report.classes


@pytest.mark.parametrize("name", ["R0", "R1", "R2", "R3", "R4"])
def test_streams_made_for_a_class_are_of_that_class(name: Any) -> None:
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        stream = data.draw(class_streams(name))
        assert name in check(stream, data.draw(batchings(stream)))

    holds()


@given(st.data())
def test_random_streams_are_classified_as_the_definitions_say(data: st.DataObject) -> None:
    ordered, insert_only, closed = (data.draw(st.booleans()) for _ in range(3))
    events = data.draw(histories(max_size=4))
    stream = data.draw(physical_streams(events, ordered=ordered, insert_only=insert_only, closed=closed))
    cut = stream[: data.draw(st.integers(0, len(stream)))] if data.draw(st.booleans()) else stream
    check(cut, data.draw(batchings(cut)))


@given(st.data())
def test_ordered_streams_are_ordered_ctis_included(data: st.DataObject) -> None:
    """Definition 3 speaks of all events; streams made in order keep it in the strict reading too."""
    insert_only, shrink_only = data.draw(st.booleans()), data.draw(st.booleans())
    events = data.draw(histories())
    stream = data.draw(
        physical_streams(events, ordered=True, insert_only=insert_only, shrink_only=shrink_only)
    )
    assert all(sync_time(a) <= sync_time(b) for a, b in pairwise(stream))
