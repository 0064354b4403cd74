"""Hypothesis strategies: payloads, histories, and the physical streams that stand for them.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from recension.core.events import Element, Event, Insert
from recension.core.ticks import FOREVER
from recension.testing.physical import HORIZON, Dice, Shape, tell
from recension.testing.walk import payload_key

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
# One size for all: Hypothesis takes zeros where the size of a draw depends on what it varied before it.
_ROLLS: Final = st.binary(min_size=128, max_size=128)
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
    unique = (lambda e: e.vs) if strict else (lambda e: (e.vs, payload_key(e.payload))) if keyed else None
    one = events(payloads(schema, extremes=extremes))
    found = draw(st.lists(one, min_size=min_size, max_size=max_size, unique_by=unique))
    if unique is not None:
        return found
    return [copy for event in found for copy in [event] * draw(st.sampled_from([1, 1, 1, 1, 2, 3]))]


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
    disguises = [event.payload for event in history] or _examples(schema)
    shape = Shape(insert_only, ordered, shrink_only, keyed, closed)
    return tell(history, Dice(draw(_ROLLS)), shape, disguises)


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
    return _in_one_order(stream) if name == "R1" else stream


def _in_one_order(stream: list[Element]) -> list[Element]:
    """Inserts by (vs, payload, ve), nulls first, in the places where inserts were; CTIs stay."""
    inserts = iter(sorted((e for e in stream if isinstance(e, Insert)), key=_deterministic))
    return [next(inserts) if isinstance(e, Insert) else e for e in stream]


def _deterministic(e: Insert) -> tuple[Any, ...]:
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
