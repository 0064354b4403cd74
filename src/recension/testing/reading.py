"""Whatever a test holds — batches, elements, events, a history, a table, a result — as plain events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.history import History
from recension.core.ticks import FOREVER, instant
from recension.testing.openclose import Close, Open, OpenClose, Written
from recension.testing.walk import reconstitute

CONTROL = ("_kind", "_vs", "_ve", "_new_ve", "_count", "_batch", "_seq")


class HasHistory(Protocol):
    """A result that can tell its history."""

    def history(self) -> History: ...


Witness: TypeAlias = HasHistory | History | EventBatch | pa.Table | Iterable[Element | Event | EventBatch]


def events_of(witness: Witness) -> list[Event]:
    """The canonical history, as Python values."""
    if isinstance(witness, History):
        return witness.to_events()
    if isinstance(witness, EventBatch | pa.Table | pa.RecordBatch):
        return reconstitute(elements_of(witness))
    if hasattr(witness, "history"):
        return events_of(witness.history())
    return reconstitute(elements_of(witness))


def elements_of(witness: EventBatch | pa.Table | Iterable[Element | Event | EventBatch]) -> list[Element]:
    """The physical elements; an event of a history counts as its insert."""
    if isinstance(witness, EventBatch):
        return witness.to_elements()
    if isinstance(witness, pa.Table | pa.RecordBatch):
        return _elements_of_rows(witness.to_pylist())
    found: list[Element] = []
    for item in witness:
        if isinstance(item, EventBatch):
            found += item.to_elements()
        else:
            found.append(Insert(item.payload, item.vs, item.ve) if isinstance(item, Event) else item)
    return found


def columns_of(witness: Witness) -> set[str] | None:
    """The names of the payload columns, where the witness states them."""
    if isinstance(witness, History | EventBatch):
        return set(witness.schema.names)
    if isinstance(witness, pa.Table | pa.RecordBatch):
        return set(witness.schema.names) - set(CONTROL)
    return columns_of(witness.history()) if hasattr(witness, "history") else None


def _elements_of_rows(rows: list[Mapping[str, Any]]) -> list[Element]:
    """Rows in the format of stream and history files (design, §2)."""
    if rows and "_seq" in rows[0]:
        rows = sorted(rows, key=lambda row: (row["_batch"], row["_seq"]))
    feed = OpenClose()
    return [feed.translate(_written(row)) for row in rows]


def _written(row: Mapping[str, Any]) -> Written:
    payload = {name: value for name, value in row.items() if name not in CONTROL}
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
