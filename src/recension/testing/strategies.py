"""Hypothesis strategies: payloads, histories, physical streams, and streams that are almost right.

Domains are small on purpose: ties, touching end points, duplicates and equality of sync time and CTI are
what breaks streaming algorithms, and they must be frequent (rulings, section I).

>>> from hypothesis import given, strategies as st
>>> from recension.testing import assert_equivalent
>>> @given(st.data())
... def test_my_query(data):
...     events = data.draw(histories())
...     assert_equivalent(data.draw(physical_streams(events)), events)
>>> test_my_query()
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.model import payload_key
from recension.testing.physical import HORIZON, Dice, Shape, build_stream

StreamClass: TypeAlias = Literal["R0", "R1", "R2", "R3", "R4"]

SCHEMA: Final = pa.schema([("k", pa.string()), ("v", pa.int64())])
_NAN: Final = float("nan")  # and its negative: other bits, the same value
_VALUES: Final[dict[pa.DataType, list[Any]]] = {
    pa.string(): ["a", "b", "", None],
    pa.int64(): [0, 1, -1, None],
    pa.float64(): [0.0, 1.5, -0.0, _NAN, -_NAN, None],
    pa.bool_(): [False, True, None],
}
_EXTREMES: Final[dict[pa.DataType, list[Any]]] = {
    pa.string(): ["null", "NaN", "1", ' "quoted", ', "two\nlines", "ünïcødé ∞"],
    pa.int64(): [2**63 - 1, -(2**63), 2**53 + 1],
    pa.float64(): [0.1, 1e308, 5e-324, float("inf"), -float("inf"), 2.0**53],
    pa.bool_(): [],
}

# As integers small ones would come most often, and other draws would be poorer.
_SEEDS: Final = range(2**20)


def rolls(size: int) -> SearchStrategy[bytes]:
    """Bytes for `Dice`: fair ones, from a seed, but for the plainest of all.

    Drawn as bytes they would be poor: Hypothesis makes the few examples of a test mostly of zeros, or of
    parts of earlier ones, and hardly any of them holds what breaks algorithms.
    """
    return st.sampled_from(_SEEDS).map(
        lambda seed: random.Random(seed).randbytes(size) if seed else bytes(size)
    )


_ROLLS: Final = rolls(128)
_COPIES: Final = st.sampled_from([1, 1, 1, 1, 2, 3])
_STARTS: Final = range(HORIZON - 1)
_FINITE: Final = [(vs, ve) for vs in _STARTS for ve in range(vs + 1, HORIZON + 1)]
_LIFETIMES: Final = _FINITE + [(vs, FOREVER) for vs in _STARTS[1:]]


def schemas(max_columns: int = 3) -> SearchStrategy[pa.Schema]:
    """Payload schemas of one to three columns of text, whole numbers, floats and truth values."""
    kinds = st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=max_columns)
    return kinds.map(lambda kinds: pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]))


def payloads(schema: pa.Schema = SCHEMA, *, extremes: bool = False) -> SearchStrategy[dict[str, Any]]:
    """Payloads with few distinct values, nulls among them; ``extremes`` adds what formats get wrong."""
    pools = [_VALUES[f.type] + (_EXTREMES[f.type] if extremes else []) for f in schema]
    rows = st.tuples(*(st.sampled_from(pool) for pool in pools))
    return rows.map(lambda row: dict(zip(schema.names, row, strict=True)))


def lifetimes() -> SearchStrategy[tuple[int, int]]:
    """A start and an end within a short time; 15 % never end."""
    return st.sampled_from(_LIFETIMES)


def events(payload: SearchStrategy[dict[str, Any]]) -> SearchStrategy[Event]:
    """An event with a payload drawn from ``payload``."""
    return st.builds(lambda payload, lifetime: Event(payload, *lifetime), payload, lifetimes())


@st.composite
def histories(
    draw: DrawFn,
    schema: pa.Schema = SCHEMA,
    *,
    min_size: int = 0,
    max_size: int = 6,
    keyed: bool = False,
    strict: bool = False,
    extremes: bool = False,
) -> list[Event]:
    """Histories with duplicates; ``keyed``: (vs, payload) is a key; ``strict``: no two starts are equal."""
    found = draw(_event_lists(schema, min_size, max_size, keyed, strict, extremes))
    if keyed or strict:
        return found
    return [copy for event in found for copy in [event] * draw(_COPIES)]


@cache
def _event_lists(
    schema: pa.Schema, min_size: int, max_size: int, keyed: bool, strict: bool, extremes: bool
) -> SearchStrategy[list[Event]]:
    """Kept: to make a strategy takes as long as to draw from it."""
    unique = (lambda e: e.vs) if strict else (lambda e: (e.vs, payload_key(e.payload))) if keyed else None
    one = events(payloads(schema, extremes=extremes))
    return st.lists(one, min_size=min_size, max_size=max_size, unique_by=unique)


@st.composite
def physical_streams(
    draw: DrawFn,
    history: Sequence[Event],
    *,
    insert_only: bool = False,
    ordered: bool = False,
    shrink_only: bool = False,
    keyed: bool = False,
    closed: bool = True,
    schema: pa.Schema | None = None,
) -> list[Element]:
    """Valid streams whose history is the given one.

    They are disordered, change ends both ways, insert events that vanish again, and end with a CTI at the
    end of time. ``insert_only`` and ``ordered`` together make perfect streams; ``shrink_only`` allows no
    lengthening; ``keyed`` keeps (vs, payload) a key at every moment (the history must be keyed itself).
    Events that vanish look like those that stay; with ``schema`` there are some for an empty history too.
    """
    ghosts = [event.payload for event in history] or _examples(schema)
    shape = Shape(insert_only, ordered, shrink_only, keyed, closed)
    return build_stream(history, Dice(draw(_ROLLS)), shape, ghosts)


def _examples(schema: pa.Schema | None) -> list[dict[str, Any]]:
    """Two payloads that fit a schema, none if it is not known."""
    pools = {f.name: _VALUES.get(f.type, [None, None]) for f in schema or ()}
    return [{name: pool[i] for name, pool in pools.items()} for i in (0, 1)] if schema is not None else []


@st.composite
def class_streams(draw: DrawFn, name: StreamClass) -> list[Element]:
    """Streams of one of LMerge's classes R0 to R4 (technical report, §III-C)."""
    perfect = name in ("R0", "R1", "R2")
    keyed = name in ("R2", "R3")
    history = draw(histories(keyed=keyed, strict=name == "R0"))
    shape = {"insert_only": perfect, "ordered": perfect, "keyed": keyed}
    stream = draw(physical_streams(history, schema=SCHEMA, **shape))
    return sort_inserts(stream) if name == "R1" else stream


def sort_inserts(stream: list[Element]) -> list[Element]:
    """Inserts by (vs, payload, ve), nulls first, in the places where inserts were; CTIs stay."""
    inserts = iter(sorted((e for e in stream if isinstance(e, Insert)), key=_sort_key))
    return [next(inserts) if isinstance(e, Insert) else e for e in stream]


def _sort_key(e: Insert) -> tuple[Any, ...]:
    return e.vs, *((value is not None, value) for value in e.payload.values()), e.ve


@dataclass(frozen=True, slots=True)
class ConsistentStreams:
    """Several physical streams of one history; those that stop early are prefixes without an end."""

    history: list[Event]
    streams: list[list[Element]]


@st.composite
def consistent_streams(
    draw: DrawFn, /, n: int, *, schema: pa.Schema = SCHEMA, stop_early: bool = False, **shape: bool
) -> ConsistentStreams:
    """``n`` mutually consistent streams; with ``stop_early`` all but one may die on the way."""
    history = draw(histories(schema, keyed=shape.get("keyed", False)))
    streams = [draw(physical_streams(history, schema=schema, **shape)) for _ in range(n)]
    survivor = draw(st.integers(0, n - 1))
    for i, stream in enumerate(streams):
        if stop_early and i != survivor and draw(st.booleans()):
            streams[i] = stream[: draw(st.integers(0, len(stream)))]
    return ConsistentStreams(history, streams)


@st.composite
def batchings(draw: DrawFn, elements: Sequence[Element]) -> list[list[Element]]:
    """The elements cut into consecutive batches, some of them empty."""
    most = draw(st.sampled_from([0, 1, 3, len(elements)]))
    cuts = sorted(draw(st.lists(st.integers(0, len(elements)), max_size=most)))
    bounds = zip([0, *cuts], [*cuts, len(elements)], strict=True)
    return [list(elements[start:stop]) for start, stop in bounds]


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
