"""One order of values, payloads and events, and the equality that comes with it (the guide, ties).

A null comes before every value, NaN after every number; otherwise values compare as Python compares
them, lists item by item, structs field by field. A payload compares column by column in the order its
columns are written, which is the schema's and so the same for every event of one history. An event
compares by (vs, ve, payload). Values of equal order are equal: null equals null, NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from recension.core.events import Event, Payload

History: TypeAlias = list[Event]
Key: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = str | Sequence[str]


def value_order(value: Any) -> Key:
    """A hashable key that sorts one value.

    >>> sorted([2.0, float("nan"), None, -1.0], key=value_order)
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(value, Mapping):
        return (1, tuple(value_order(field) for field in value.values()))
    if isinstance(value, list | tuple):
        return (1, tuple(value_order(item) for item in value))
    return (2,) if value != value else (1, value)


def payload_order(payload: Payload) -> Key:
    """A key that sorts payloads column by column."""
    return tuple(value_order(value) for value in payload.values())


def event_order(event: Event) -> Key:
    """A key that sorts events by start, then end, then payload: the order in which ties go."""
    return (event.vs, event.ve, payload_order(event.payload))


def names(columns: Columns) -> Sequence[str]:
    """Column names given as one text or as several."""
    return (columns,) if isinstance(columns, str) else columns


def key_of(payload: Payload, columns: Columns) -> Key:
    """A hashable key, equal for payloads that agree in these columns."""
    return tuple(value_order(payload[column]) for column in names(columns))


def canonical(history: Iterable[Event]) -> History:
    """The history as a sorted list, so that equal bags are equal lists.

    >>> [str(e) for e in canonical([Event({"n": 2}, 3, 4), Event({"n": 1}, 3)])]
    ["[3, 4) {'n': 2}", "[3, ∞) {'n': 1}"]
    """
    return sorted(history, key=event_order)
