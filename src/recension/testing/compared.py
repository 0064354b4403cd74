"""What tests compare, as histories in columns: values written in Python beside columns that have types.

A column written in Python has the type that its values show. Where they show none, as the entries of a map,
they are taken for values of the other side's type, if they are ones. A column that some events lack is
null there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.events import Event, kind_of_element
from recension.core.history import History
from recension.core.time_kind import TICKS, TimeKind, merge_kinds
from recension.core.values import MISFITS, exact_array


@dataclass(frozen=True, slots=True)
class PlainEvents:
    """Events written in Python: they have values, and no types."""

    events: Sequence[Event]
    has_kind: bool = True
    """Do the times show of what kind they are? In batches all are ticks."""

    def __len__(self) -> int:
        return len(self.events)

    @property
    def names(self) -> list[str]:
        """All columns that an event has."""
        return list(dict.fromkeys(name for event in self.events for name in event.payload))

    def values(self, name: str) -> list[Any]:
        """A column."""
        return [event.payload.get(name) for event in self.events]


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """The history of batches. They do not say of what kind their times are."""

    history: History

    def __len__(self) -> int:
        return len(self.history)


Compared: TypeAlias = PlainEvents | History | BatchHistory


def unify(actual: Compared, expected: Compared) -> tuple[History, History]:
    """Both as histories of the same columns."""
    sides = [actual, expected]
    names = list(dict.fromkeys(name for side in sides for name in _names(side)))
    columns: list[dict[str, pa.ChunkedArray]] = [{}, {}]
    for name in names:
        for at, column in enumerate(_unify_column(actual, expected, name)):
            columns[at][name] = column
    kinds = [_kind(side) for side in sides]
    found = [
        _history(side, columns[at], kinds[at] or kinds[1 - at] or TICKS) for at, side in enumerate(sides)
    ]
    return found[0], found[1]


def _kind(side: Compared) -> TimeKind:
    if isinstance(side, History):
        return side.time_type
    if isinstance(side, PlainEvents) and side.has_kind:
        return reduce(merge_kinds, map(kind_of_element, side.events), None)
    return None


def _names(side: Compared) -> list[str]:
    return side.names if isinstance(side, PlainEvents) else list(_columns(side).schema.names)


def _columns(side: History | BatchHistory) -> pa.Table:
    return (side.history if isinstance(side, BatchHistory) else side).payload


def _unify_column(actual: Compared, expected: Compared, name: str) -> list[pa.ChunkedArray]:
    """The column of both sides, in types that can be compared if there are such."""
    sides = [_column(side, name) for side in (actual, expected)]
    if not any(isinstance(side, list) for side in sides):
        return sides
    shown = [_shown(side) for side in sides]
    for at in (0, 1):
        other = shown[1 - at]
        if isinstance(sides[at], list) and shown[at] is None and other is not None:
            try:
                found = [*shown]
                found[at] = _typed(sides[at], other.type)
            except MISFITS:
                continue
            return found
    return shown if None not in shown else [_as_texts(side) for side in sides]


def _column(side: Compared, name: str) -> Any:
    """A column with a type, or a list of values."""
    if isinstance(side, PlainEvents):
        return side.values(name)
    payload = _columns(side)
    return payload[name] if name in payload.schema.names else pa.chunked_array([pa.nulls(len(side))])


def _shown(side: Any) -> pa.ChunkedArray | None:
    """The column in the type that its values show, if they show one."""
    if not isinstance(side, list):
        return side
    try:
        return pa.chunked_array([pa.array(side)])
    except (*MISFITS, pa.ArrowException):
        return None


def _typed(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """Values as those of a type."""
    return pa.chunked_array([exact_array(values, kind, may_lack_fields=True)])


def _as_texts(side: Any) -> pa.ChunkedArray:
    """Values of several kinds in one column: equal if they are of one type and written in the same way."""
    values = side if isinstance(side, list) else side.to_pylist()
    texts = [None if value is None else f"{type(value).__name__} {value!r}" for value in values]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _history(side: Compared, columns: dict[str, pa.ChunkedArray], kind: pa.DataType) -> History:
    if isinstance(side, PlainEvents):
        times = [np.array([getattr(e, end) for e in side.events], np.int64) for end in ("vs", "ve")]
    else:
        own = side.history if isinstance(side, BatchHistory) else side
        times = [own.vs, own.ve]
    return History(times[0], times[1], pa.table(columns), kind)
