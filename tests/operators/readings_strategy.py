"""Physical streams of readings: at any moment a group has one reading at most at any time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from recension.core.events import Cti, Element, Insert, Retract
from recension.testing.strategies import histories, physical_streams

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
_KEYS = pa.schema([("k", pa.string())])


@st.composite
def reading_streams(draw: DrawFn, /, values: Any = (1, 2, 3, None), **shape: bool) -> list[Element]:
    """Streams of (k, v) in which (k, vs) is a key at every moment; a reading may be replaced by another."""
    bare = draw(
        physical_streams(draw(histories(_KEYS, keyed=True, max_size=8)), keyed=True, schema=_KEYS, **shape)
    )
    rolls, current = iter(draw(st.lists(st.sampled_from(values), min_size=64, max_size=64)) * 8), {}
    told: list[Element] = []
    for element in bare:
        if isinstance(element, Insert):
            current[element.payload["k"], element.vs] = next(rolls)
            told.append(Insert(_with(element.payload, element.vs, current), element.vs, element.ve))
        elif isinstance(element, Retract):
            payload = _with(element.payload, element.vs, current)
            told.append(Retract(payload, element.vs, element.ve, element.new_ve))
        else:
            assert isinstance(element, Cti)
            told.append(element)
    return told


def _with(payload: Any, vs: int, current: dict[Any, Any]) -> dict[str, Any]:
    return {**payload, "v": current[payload["k"], vs]}
