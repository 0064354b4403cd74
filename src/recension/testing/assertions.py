"""Assertions on streams whose messages a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.history import History
from recension.core.ticks import FOREVER, instant
from recension.testing.difference import compare_events
from recension.testing.model import Close, Open, OpenClose, StreamModel, Written, reconstitute

_CONTROL = ("_kind", "_vs", "_ve", "_new_ve", "_count", "_batch", "_seq")


class HasHistory(Protocol):
    """A result that has a history."""

    def history(self) -> History: ...


Elements: TypeAlias = EventBatch | pa.Table | Iterable[Element | Event | EventBatch]
StreamLike: TypeAlias = HasHistory | History | Elements


def assert_equivalent(actual: StreamLike, expected: StreamLike, *, tolerance: float = 1e-9) -> None:
    """Fail unless both have the same canonical history, whatever their elements are.

    Nulls equal nulls, NaN equals NaN, floats are equal within a relative ``tolerance``, and two identical
    events are two events.

    >>> from recension.core.events import Insert, Retract
    >>> assert_equivalent(
    ...     [Insert({"p": "A"}, 6, 20), Retract({"p": "A"}, 6, 20, 30), Retract({"p": "A"}, 6, 30, 25)],
    ...     [Insert({"p": "A"}, 6, 25)],
    ... )
    """
    names, wanted = _column_names(actual), _column_names(expected)
    if names is not None and wanted is not None and names != wanted:
        raise AssertionError(f"the columns differ: expected {sorted(wanted)}, got {sorted(names)}")
    if found := compare_events(_read_events(actual), _read_events(expected), tolerance):
        raise AssertionError(str(found))


def assert_valid(
    stream: Elements,
    *,
    stale_ctis: bool = False,
    orphans: bool = True,
) -> None:
    """Fail at the first invalid element, and show the elements before it.

    That is: an element that breaks an earlier CTI, a retraction of an event that is not there, an empty
    insert, a retraction that changes nothing. A CTI that does not advance means nothing in a source and
    must not come out of an operator (ruling B11): ``stale_ctis=True`` lets it pass. ``orphans=False``
    does not ask whether retracted events are there.
    """
    model, elements = StreamModel(orphans=orphans), _read_elements(stream)
    for at, element in enumerate(elements):
        fault = model.fault(element)
        if isinstance(element, Cti) and element.t <= model.cti and not stale_ctis:
            fault = f"does not advance the cti {model.cti}"
        if fault is not None:
            raise AssertionError(f"element {at + 1} of {len(elements)} {fault}\n{_context(elements, at)}")
        model.take(element)


def _context(elements: list[Element], at: int) -> str:
    first = max(0, at - 5)
    lines = [f"      {element}" for element in elements[first:at]]
    return "\n".join([*(["      ..."] if first else []), *lines, f"    > {elements[at]}"])


def _read_events(stream: StreamLike) -> list[Event]:
    """The canonical history, as Python values."""
    if isinstance(stream, History):
        return stream.to_events()
    if isinstance(stream, EventBatch | pa.Table | pa.RecordBatch):
        return reconstitute(_read_elements(stream))
    if hasattr(stream, "history"):
        return _read_events(stream.history())
    return reconstitute(_read_elements(stream))


def _read_elements(stream: Elements) -> list[Element]:
    """The physical elements; an event of a history counts as its insert."""
    if isinstance(stream, EventBatch):
        return stream.to_elements()
    if isinstance(stream, pa.Table | pa.RecordBatch):
        return _elements_of_rows(stream.to_pylist())
    found: list[Element] = []
    for item in stream:
        if isinstance(item, EventBatch):
            found += item.to_elements()
        else:
            found.append(Insert(item.payload, item.vs, item.ve) if isinstance(item, Event) else item)
    return found


def _column_names(stream: StreamLike) -> set[str] | None:
    """The names of the payload columns, where they are known."""
    if isinstance(stream, History | EventBatch):
        return set(stream.schema.names)
    if isinstance(stream, pa.Table | pa.RecordBatch):
        return set(stream.schema.names) - set(_CONTROL)
    return _column_names(stream.history()) if hasattr(stream, "history") else None


def _elements_of_rows(rows: list[Mapping[str, Any]]) -> list[Element]:
    """Rows in the format of stream and history files (design, §2)."""
    if rows and "_seq" in rows[0]:
        rows = sorted(rows, key=lambda row: (row["_batch"], row["_seq"]))
    feed = OpenClose()
    return [feed.translate(_parse_row(row)) for row in rows]


def _parse_row(row: Mapping[str, Any]) -> Written:
    payload = {name: value for name, value in row.items() if name not in _CONTROL}
    vs, ve, new_ve = (_time(row.get(name)) for name in ("_vs", "_ve", "_new_ve"))
    match row.get("_kind", "insert"):
        case "insert":
            return Insert(payload, vs, ve)
        case "retract":
            return Retract(payload, vs, ve, new_ve)
        case "cti":
            return Cti(vs)
        case "external_cti":
            return ExternalCti(vs, ve, row["_count"])
        case "open":
            return Open(payload, vs)
        case "close":
            return Close(payload, ve)
        case other:
            raise ValueError(f"{other!r} is not a kind of element")


def _time(value: Any) -> int:
    return FOREVER if value is None else instant(value)
