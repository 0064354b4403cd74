"""Span operators: each event on its own, lifetimes untouched; and the union of two bags of events.

Source: [TR] Definition 3 (selection); the guide (span); rulings, C: "bag union".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from recension.core.errors import SchemaError
from recension.core.events import Event, Payload
from recension.denote.order import History

Expression: TypeAlias = Callable[[Payload], Any]


def map_payload(history: History, fn: Callable[[Payload], Payload]) -> History:
    """Replace every payload by a function of it; payloads that become equal stay separate events."""
    return [Event(fn(event.payload), event.vs, event.ve) for event in history]


def select(history: History, /, *columns: str, **expressions: Expression) -> History:
    """The named columns, then the computed ones.

    >>> h = [Event({"x": 1, "y": 2}, 0, 5)]
    >>> print(*select(h, "y", twice=lambda p: 2 * p["x"]))
    [0, 5) {'y': 2, 'twice': 2}
    """
    return map_payload(
        history,
        lambda p: {name: p[name] for name in columns} | {name: fn(p) for name, fn in expressions.items()},
    )


def with_columns(history: History, /, **expressions: Expression) -> History:
    """All columns; a computed one replaces the column of its name or follows the others."""
    return map_payload(history, lambda p: dict(p) | {name: fn(p) for name, fn in expressions.items()})


def rename(history: History, names: Mapping[str, str]) -> History:
    """All columns in their places, some under new names, which may be exchanged but not shared."""

    def rename_payload(payload: Payload) -> Payload:
        result = {names.get(name, name): value for name, value in payload.items()}
        if len(result) < len(payload):
            raise SchemaError(f"rename {dict(names)} gives two columns of {list(payload)} the same name")
        return result

    return map_payload(history, rename_payload)


def drop(history: History, *columns: str) -> History:
    """All columns but these."""
    return map_payload(history, lambda p: {name: value for name, value in p.items() if name not in columns})


def where(history: History, predicate: Callable[[Payload], Any]) -> History:
    """Keep an event if the predicate is true; false and null both drop it, as in SQL.

    >>> from recension.core.events import Event
    >>> h = [Event({"x": 1}, 0, 5), Event({"x": None}, 0, 5)]
    >>> [str(e) for e in where(h, lambda p: None if p["x"] is None else p["x"] > 0)]
    ["[0, 5) {'x': 1}"]
    """
    return [event for event in history if predicate(event.payload)]


def with_event_columns(history: History, /, **expressions: Callable[[Event], Any]) -> History:
    """As `with_columns`, of the whole event: its payload and its times.

    >>> print(*with_event_columns([Event({"x": 1}, 3, 8)], lasted=lambda e: e.ve - e.vs))
    [3, 8) {'x': 1, 'lasted': 5}
    """
    return [
        Event(dict(event.payload) | {name: fn(event) for name, fn in expressions.items()}, event.vs, event.ve)
        for event in history
    ]


def where_event(history: History, predicate: Callable[[Event], Any]) -> History:
    """As `where`, of the whole event."""
    return [event for event in history if predicate(event)]


def union(left: History, right: History) -> History:
    """The events of both, with the columns in the order of the left.

    >>> print(*union([Event({"a": 1, "b": 2}, 0, 1)], [Event({"b": 3, "a": 4}, 5, 6)]), sep="; ")
    [0, 1) {'a': 1, 'b': 2}; [5, 6) {'a': 4, 'b': 3}
    """
    if not left or not right:
        return left + right
    columns = list(left[0].payload)
    for event in right:
        if set(event.payload) != set(columns):
            raise SchemaError(f"union of columns {columns} with columns {list(event.payload)}")
    return left + [Event({name: e.payload[name] for name in columns}, e.vs, e.ve) for e in right]
