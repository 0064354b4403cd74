"""Hypothesis: histories that are not quite the same, and streams that are not quite valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.physical import HORIZON
from recension.testing.strategies import SCHEMA, events, histories, payloads, physical_streams
from recension.testing.walk import payload_key


@st.composite
def changed_histories(draw: DrawFn, history: Sequence[Event], schema: pa.Schema = SCHEMA) -> list[Event]:
    """The history with one event more or less, moved, longer, shorter or of another payload."""
    changed = list(history)
    other = draw(events(payloads(schema)))
    if changed:
        at = draw(st.integers(0, len(changed) - 1))
        event = changed[at]
        variants = [
            [],
            [event, event],
            [replace(event, payload=other.payload)],
            [replace(event, vs=other.vs, ve=max(event.ve, other.vs + 1))],
            [replace(event, ve=max(other.ve, event.vs + 1))],
        ]
        changed[at : at + 1] = draw(st.sampled_from(variants))
    else:
        changed.append(other)
    assume(_bag(changed) != _bag(history))
    return changed


def _bag(history: Sequence[Event]) -> Counter[object]:
    return Counter((e.vs, e.ve, payload_key(e.payload)) for e in history)


def any_element(schema: pa.Schema = SCHEMA) -> SearchStrategy[Element]:
    """An element that may or may not fit anywhere; empty and backward lifetimes included."""
    time, row = st.integers(0, HORIZON), payloads(schema)
    end = st.one_of(time, st.just(FOREVER))
    return st.one_of(
        st.builds(Insert, row, time, end),
        st.builds(Retract, row, time, end, end),
        st.builds(Cti, time),
        st.builds(ExternalCti, time, end, st.integers(0, 3)),
    )


@st.composite
def unruly_streams(draw: DrawFn, schema: pa.Schema = SCHEMA) -> list[Element]:
    """A valid stream into which something was put that may not be there: lost, doubled, swapped, wrong."""
    history, closed = draw(histories(schema, max_size=4)), draw(st.booleans())
    stream = draw(physical_streams(history, schema=schema, closed=closed))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(stream)))
        here, after = stream[at : at + 1], stream[at + 1 : at + 2]
        wrong = [*_mistakes(here), draw(any_element(schema))]
        variants = [after, [*here, *here, *after], [*after, *here], *([*here, w, *after] for w in wrong)]
        stream[at : at + 2] = draw(st.sampled_from(variants))
    if draw(st.booleans()):
        _lose_an_insert(stream, draw(st.integers(0, 20)))
    return stream


def _mistakes(here: Sequence[Element]) -> list[Element]:
    """What may never follow the announcement of an event: empty, unchanged, backward, unknown."""
    match here:
        case [Insert(payload, vs, ve)] | [Retract(payload, vs, _, ve)]:
            return [
                Insert(payload, vs, vs),
                Retract(payload, vs, ve, ve),
                Retract(payload, vs, ve, vs - 1),
                Retract(payload, vs, max(vs, ve - 1), vs),
            ]
        case _:
            return []


def _lose_an_insert(stream: list[Element], which: int) -> None:
    """Every retraction of its chain is then an orphan, one because of the other."""
    inserts = [at for at, element in enumerate(stream) if isinstance(element, Insert)]
    if inserts:
        del stream[inserts[which % len(inserts)]]
