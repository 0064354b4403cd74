"""A run of stream elements as columns: NumPy control arrays beside an Arrow payload.

Fields that an element's kind does not use hold fixed values, so that equal batches have equal arrays:
``new_ve`` is FOREVER unless the row is a retraction, ``ve`` is FOREVER on a CTI, ``count`` is 0 unless
the row is an external CTI. The payload of a CTI is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.records import record
from recension.core.ticks import FOREVER, Ticks
from recension.core.time_kind import TimeKind, of_kind
from recension.core.values import exact_array, rows_of

Kinds: TypeAlias = npt.NDArray[np.uint8]
Index: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

INSERT: Final = 0
RETRACT: Final = 1
CTI: Final = 2
EXTERNAL_CTI: Final = 3
# Columns of one value are shared up to so many rows.
_SHARED: Final = 1 << 17
KIND_NAMES: Final = ("insert", "retract", "cti", "external_cti")


def sync_times(kind: Kinds, vs: Ticks, ve: Ticks, new_ve: Ticks) -> Ticks:
    """The earliest time each element changes: ``vs``, or ``min(ve, new_ve)`` of a retraction."""
    return np.where(kind == RETRACT, np.minimum(ve, new_ve), vs)


@record
class EventBatch:
    """Stream elements in arrival order."""

    kind: Kinds
    vs: Ticks
    ve: Ticks
    new_ve: Ticks
    count: Ticks
    payload: pa.RecordBatch
    _last_kind: int | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def last_kind(self) -> int:
        """The greatest kind of all rows, INSERT if there are none; found once, since many ask for it."""
        found = self._last_kind
        if found is None:
            found = int(self.kind.max(initial=INSERT))
            object.__setattr__(self, "_last_kind", found)
        return found

    @property
    def schema(self) -> pa.Schema:
        """The payload's columns."""
        return self.payload.schema

    def sync(self) -> Ticks:
        """The earliest time each element changes."""
        return sync_times(self.kind, self.vs, self.ve, self.new_ve)

    def is_data(self) -> Mask:
        """Which rows change the history: inserts and retractions."""
        return self.kind <= RETRACT

    def has_only_inserts(self) -> bool:
        """Is every element an insert? Then there is nothing to correct, and no CTI."""
        return self.last_kind == INSERT

    def has_retractions(self) -> bool:
        """Does an element take something back?"""
        return self.last_kind != INSERT and bool((self.kind == RETRACT).any())

    def count_retractions(self) -> int:
        """How many elements do."""
        return 0 if self.last_kind == INSERT else int(np.count_nonzero(self.kind == RETRACT))

    def take(self, rows: Index) -> EventBatch:
        """The given rows, in the given order."""
        return EventBatch(
            self.kind[rows],
            self.vs[rows],
            self.ve[rows],
            self.new_ve[rows],
            self.count[rows],
            take_rows(self.payload, rows),
        )

    def filter(self, keep: Mask) -> EventBatch:
        """The rows where ``keep`` is true; a slice, not a copy, if they are most rows and lie together."""
        if bool(keep.all()):
            return self
        rows = np.flatnonzero(keep)
        # A slice keeps the whole batch in memory: not worth it for a small part.
        is_most = 2 * len(rows) > len(self)
        if is_most and rows[-1] - rows[0] == len(rows) - 1:
            return self.slice(int(rows[0]), int(rows[-1]) + 1)
        return self.take(rows)

    def slice(self, start: int, stop: int) -> EventBatch:
        """Rows ``start`` to ``stop``, without copying."""
        return EventBatch(
            self.kind[start:stop],
            self.vs[start:stop],
            self.ve[start:stop],
            self.new_ve[start:stop],
            self.count[start:stop],
            self.payload.slice(start, stop - start),
        )

    def to_elements(self, kind: TimeKind = None) -> list[Element]:
        """The same elements as Python values, for people and tests; their times of the given kind."""
        payloads = rows_of(self.payload) if self.payload.num_columns else [{} for _ in range(len(self))]
        control = (self.kind, self.vs, self.ve, self.new_ve, self.count)
        rows = zip(*(column.tolist() for column in control), payloads, strict=True)
        return [_element(kind, *row) for row in rows]


def _element(
    of: TimeKind, kind: int, vs: int, ve: int, new_ve: int, count: int, payload: Mapping[str, Any]
) -> Element:
    vs, ve, new_ve = of_kind(vs, of), of_kind(ve, of), of_kind(new_ve, of)
    if kind == INSERT:
        return Insert(payload, vs, ve)
    if kind == RETRACT:
        return Retract(payload, vs, ve, new_ve)
    return Cti(vs) if kind == CTI else ExternalCti(vs, ve, count)


def all_insert(size: int) -> Kinds:
    """The kinds of so many inserts; not to be written to, like the next two: batches share their memory."""
    return _ALL_INSERT[:size] if size <= _SHARED else np.zeros(size, np.uint8)


def all_forever(size: int) -> Ticks:
    """FOREVER, so many times."""
    return _ALL_FOREVER[:size] if size <= _SHARED else np.full(size, FOREVER)


def all_zero(size: int) -> Ticks:
    """0, so many times."""
    return _ALL_ZERO[:size] if size <= _SHARED else np.zeros(size, np.int64)


def _read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    column.flags.writeable = False
    return column


_ALL_INSERT: Final = _read_only(np.zeros(_SHARED, np.uint8))
_ALL_FOREVER: Final = _read_only(np.full(_SHARED, FOREVER))
_ALL_ZERO: Final = _read_only(np.zeros(_SHARED, np.int64))


def inserts(vs: Ticks, ve: Ticks, payload: pa.RecordBatch) -> EventBatch:
    """A batch of inserts."""
    size = len(vs)
    return EventBatch(all_insert(size), vs, ve, all_forever(size), all_zero(size), payload)


def from_elements(elements: Iterable[Element], schema: pa.Schema) -> EventBatch:
    """A batch of elements written as Python values."""
    rows = [_fields(element) for element in elements]
    fields = list(zip(*rows, strict=True)) or [()] * 6
    kind, vs, ve, new_ve, count = (np.array(column, np.int64) for column in fields[:5])
    return EventBatch(kind.astype(np.uint8), vs, ve, new_ve, count, payload_of(fields[5], schema))


def _fields(element: Element) -> tuple[int, int, int, int, int, Mapping[str, Any] | None]:
    match element:
        case Insert(payload, vs, ve):
            return INSERT, vs, ve, FOREVER, 0, payload
        case Retract(payload, vs, ve, new_ve):
            return RETRACT, vs, ve, new_ve, 0, payload
        case Cti(t):
            return CTI, t, FOREVER, FOREVER, 0, None
        case ExternalCti(vs, ve, count):
            return EXTERNAL_CTI, vs, ve, FOREVER, count, None


def payload_of(rows: Sequence[Mapping[str, Any] | None], schema: pa.Schema) -> pa.RecordBatch:
    """Payload columns from Python mappings; ``None`` is a row of nulls."""
    columns = [_column([row.get(f.name) if row else None for row in rows], f) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return exact_array(values, field.type)
    except SchemaError as why:
        raise SchemaError(f"column {field.name!r} is {field.type}: {why}") from None


def old_end(batch: EventBatch) -> Ticks:
    """The end an event had before each insert or retraction: its own start for an insert."""
    return batch.vs if batch.has_only_inserts() else np.where(batch.kind == INSERT, batch.vs, batch.ve)


def new_end(batch: EventBatch) -> Ticks:
    """The end an event has after each insert or retraction: its own start for a removal."""
    return batch.ve if batch.has_only_inserts() else np.where(batch.kind == INSERT, batch.ve, batch.new_ve)


def null_payload(size: int, schema: pa.Schema) -> pa.RecordBatch:
    """``size`` rows of nulls."""
    return pa.RecordBatch.from_arrays([pa.nulls(size, f.type) for f in schema], schema=schema)


def take_rows(payload: pa.RecordBatch, rows: Index) -> pa.RecordBatch:
    """Payload rows by position (a payload without columns stays as it is: it has no length)."""
    return payload.take(pa.array(rows)) if payload.num_columns else payload


# Numbers of types whose values NumPy has and compares as Arrow does.
_PLAIN: Final = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
)


def is_plain(column: pa.Array) -> bool:
    """Is it of plain numbers, without nulls?"""
    return column.type.id in _PLAIN and not column.null_count


def take_values(column: pa.Array, rows: Index) -> pa.Array:
    """Values of a column by position."""
    return pa.array(column.to_numpy()[rows]) if is_plain(column) else column.take(pa.array(rows))


def can_repeat(schema: pa.Schema) -> bool:
    """Can `repeat_row` repeat rows of it?"""
    checks = (pa.types.is_primitive, pa.types.is_string, pa.types.is_large_string)
    return all(any(check(kind) for check in checks) for kind in schema.types)


def repeat_row(row: pa.RecordBatch, times: int) -> pa.RecordBatch:
    """A single row so many times, which takes far less time than to take rows."""
    columns = [pa.repeat(column[0], times) for column in row.columns]
    return pa.RecordBatch.from_arrays(columns, schema=row.schema)


def concat(batches: Sequence[EventBatch]) -> EventBatch:
    """One batch from several of the same schema."""
    if len(batches) == 1:
        return batches[0]
    return EventBatch(
        np.concatenate([b.kind for b in batches]),
        np.concatenate([b.vs for b in batches]),
        np.concatenate([b.ve for b in batches]),
        np.concatenate([b.new_ve for b in batches]),
        np.concatenate([b.count for b in batches]),
        pa.concat_batches([b.payload for b in batches]),
    )


def empty(schema: pa.Schema) -> EventBatch:
    """A batch of no elements."""
    none = np.zeros(0, np.int64)
    return EventBatch(np.zeros(0, np.uint8), none, none, none, none, null_payload(0, schema))


def cti(t: int, schema: pa.Schema) -> EventBatch:
    """A batch that holds one CTI."""
    end = np.array([FOREVER])
    return EventBatch(
        np.array([CTI], np.uint8), np.array([t]), end, end, np.zeros(1, np.int64), null_payload(1, schema)
    )
