"""Assertions on streams whose messages a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat, null_payload
from recension.core.comparable import compare_tables
from recension.core.errors import SchemaError, StreamError, TimeError
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.formats.columns import neutral_type, parts_of
from recension.core.history import History
from recension.core.netting import number_rows
from recension.core.ticks import FOREVER, from_arrow, instant
from recension.core.time_kind import TICKS, kind_of_column, merge_kinds
from recension.testing.compared import BatchHistory, Compared, PlainEvents
from recension.testing.difference import compare
from recension.testing.model import Close, Open, OpenClose, StreamModel, Written, reconstitute

_TIMES = ("_vs", "_ve", "_new_ve")
_CONTROL = ("_kind", *_TIMES, "_count", "_batch", "_seq")
_ROW = "row"  # in the place of a payload: the number of the row that has it


class HasHistory(Protocol):
    """A result that has a history."""

    def history(self) -> History: ...


Elements: TypeAlias = EventBatch | pa.Table | Iterable[Element | Event | EventBatch]
StreamLike: TypeAlias = HasHistory | History | Elements


def assert_equivalent(actual: StreamLike, expected: StreamLike, *, tolerance: float = 1e-9) -> None:
    """Fail unless both have the same canonical history, whatever their elements are.

    Nulls equal nulls, NaN equals NaN, floats are equal within a relative ``tolerance``, and two identical
    events are two events. All other values must be exactly equal: they are compared as `recension diff` does.
    Ticks, timestamps without a zone and timestamps in one are not the same times.

    >>> from recension.core.events import Insert, Retract
    >>> assert_equivalent(
    ...     [Insert({"p": "A"}, 6, 20), Retract({"p": "A"}, 6, 20, 30), Retract({"p": "A"}, 6, 30, 25)],
    ...     [Insert({"p": "A"}, 6, 25)],
    ... )
    """
    names, wanted = _column_names(actual), _column_names(expected)
    if names is not None and wanted is not None and names != wanted:
        raise AssertionError(f"the columns differ: expected {sorted(wanted)}, got {sorted(names)}")
    try:
        found = compare(_read_history(actual), _read_history(expected), tolerance)
    except (SchemaError, TimeError) as why:
        raise AssertionError(f"the histories differ: {why}") from None
    if found:
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


def _read_history(stream: StreamLike) -> Compared:
    """The canonical history: in columns where there are columns, else as Python values."""
    if isinstance(stream, History):
        return stream
    if hasattr(stream, "history"):
        return _read_history(stream.history())
    if isinstance(stream, EventBatch):
        return _read_batch(stream)
    if isinstance(stream, pa.Table | pa.RecordBatch):
        return _read_table(stream if isinstance(stream, pa.Table) else pa.Table.from_batches([stream]))
    items = list(stream)
    is_batch = [isinstance(item, EventBatch) for item in items]
    if any(is_batch) and all(is_batch):
        return _read_batch(concat(items))
    return PlainEvents(reconstitute(_read_elements(items)), has_kind=not any(is_batch))


def _read_batch(batch: EventBatch) -> Compared:
    payload = pa.Table.from_batches([batch.payload])
    numbers = _number_payloads(payload, len(batch))
    elements: list[Element] = [
        replace(element, payload={_ROW: number}) if isinstance(element, Insert | Retract) else element
        for element, number in zip(_without_payload(batch).to_elements(), numbers, strict=True)
    ]
    try:
        return BatchHistory(_history_of_rows(reconstitute(elements), payload))
    except StreamError:
        return PlainEvents(reconstitute(batch.to_elements()))  # raises it with the payload's values


def _without_payload(batch: EventBatch) -> EventBatch:
    control = (batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count)
    return EventBatch(*control, null_payload(len(batch), pa.schema([])))


def _read_table(table: pa.Table) -> History:
    """Rows in the format of stream and history files (design, §2)."""
    names = table.schema.names
    payload = _without_views(table.drop_columns([name for name in names if name in _CONTROL]))
    numbers = _number_payloads(payload, len(table))
    control = table.select([name for name in names if name in _CONTROL])
    for name in control.schema.names:
        if name in _TIMES:  # exactly, or an error
            ticks = from_arrow(control[name].combine_chunks(), name)
            control = control.set_column(control.schema.get_field_index(name), name, ticks)
    rows: list[Mapping[str, Any]] = [
        {**row, _ROW: number} for row, number in zip(control.to_pylist(), numbers, strict=True)
    ]
    try:
        events = reconstitute(_elements_of_rows(rows))
    except StreamError:
        events = reconstitute(_elements_of_rows(table.to_pylist()))  # raises it with the payload's values
    kinds = (kind_of_column(table.schema.field(name).type) for name in _TIMES if name in names)
    return replace(_history_of_rows(events, payload), time_type=reduce(merge_kinds, kinds, None) or TICKS)


def _without_views(payload: pa.Table) -> pa.Table:
    """Arrow cannot take rows of views of texts."""
    views = (pa.types.is_string_view, pa.types.is_binary_view)
    for at, field in enumerate(payload.schema):
        if any(is_view(part) for part in parts_of(field.type) for is_view in views):
            column = payload[at].cast(neutral_type(field.type))
            payload = payload.set_column(at, field.name, column)
    return payload


def _number_payloads(payload: pa.Table, size: int) -> list[int]:
    """For each payload the number of the first row that has it. Arrow tells apart what Python does not."""
    if not payload.num_columns:
        return [0] * size
    numbers = number_rows(compare_tables(payload, payload.slice(0, 0)).exact_words())
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    found: list[int] = first[inverse].tolist()
    return found


def _history_of_rows(events: list[Event], payload: pa.Table) -> History:
    """Events whose payload is the number of a row."""
    rows = np.array([event.payload[_ROW] for event in events], np.int64)
    vs, ve = (np.array([getattr(event, end) for event in events], np.int64) for end in ("vs", "ve"))
    return History(vs, ve, payload.take(pa.array(rows)) if payload.num_columns else payload)


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
