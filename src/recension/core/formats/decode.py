"""Rows of a file into stream elements, and the rows that no element can be made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import (
    CTI,
    EXTERNAL_CTI,
    KIND_NAMES,
    RETRACT,
    EventBatch,
    Kinds,
    Mask,
    all_forever,
    all_insert,
    all_zero,
    take_rows,
)
from recension.core.errors import FormatError, before_fault
from recension.core.formats.columns import COUNT, KIND, NEW_VE, Layout, is_text
from recension.core.formats.files import Convert, convert_column
from recension.core.formats.text import from_text, ticks_from_text
from recension.core.placement import Placement
from recension.core.rows import Origin, Rows
from recension.core.ticks import BEGINNING, FOREVER, Ticks, ticks_from_column
from recension.core.validity import Policy
from recension.core.values import cast_exactly

FindPlaces: TypeAlias = Callable[[pa.RecordBatch], Placement]

UNKNOWN_KIND: Final = "unknown kind"
NO_START: Final = "no start"
OPEN_WITH_END: Final = "an open row with an end"
NO_COUNT: Final = "an external_cti without a count"
_UNKNOWN: Final = 255
# They follow the kinds of a batch; the gate makes inserts and retractions of them (gate/open_close.py).
OPEN: Final = 4
CLOSE: Final = 5
_KINDS: Final = (*KIND_NAMES, "open", "close")
_CODES: Final = {name: code for code, name in enumerate(_KINDS)}


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Elements, which of the rows they were made of, and the rows dropped, by reason."""

    batch: EventBatch
    kept: Mask
    dropped: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)
    arrived: Ticks | None = None
    """When each of the rows arrived, if a column says it."""


class Decoder:
    """Decodes the rows of files that agree on a payload.

    Rows that make no element are an error, or with another policy than ``raise`` are dropped, counted
    by reason and kept in ``dropped``: there is nothing in them that could be adjusted.
    """

    def __init__(self, payload: pa.Schema, policy: Policy) -> None:
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, pa.RecordBatch]] = []
        self._payload, self._policy = payload, policy

    def decode(self, rows: pa.RecordBatch, layout: Layout, file: str, first_row: int) -> DecodedRows:
        """The elements of a run of rows whose first is number ``first_row`` of ``file``."""
        decoded = self.judge(rows, layout, file, first_row)
        self.note(decoded.dropped)
        return decoded

    def note(self, dropped: Sequence[tuple[str, pa.RecordBatch]]) -> None:
        """Count and keep what was dropped."""
        for reason, rows in dropped:
            self.counts[reason] += len(rows)
            self.dropped.append((reason, rows))

    def read(
        self, rows: pa.RecordBatch, layout: Layout, file: str, first_row: int, place: FindPlaces | None = None
    ) -> Rows:
        """The elements before the first row that cannot be read, with their origins, and what is wrong there.

        ``place`` finds where rows stand. Nothing is counted yet.
        """

        def decode(size: int) -> tuple[DecodedRows, Placement | None]:
            part = rows.slice(0, size)
            decoded = self.judge(part, layout, file, first_row)
            return decoded, None if place is None else place(part).take(decoded.kept)

        (decoded, placement), fault = before_fault(len(rows), first_row, decode)
        origin = Origin((file,), first_row, arrived=decoded.arrived)
        origin = origin if bool(decoded.kept.all()) else origin.take(decoded.kept)
        known = (decoded.batch, origin, len(decoded.kept), layout, layout.kind, placement)
        return Rows(*known, dropped=decoded.dropped, fault=fault)

    def judge(self, rows: pa.RecordBatch, layout: Layout, file: str, first_row: int) -> DecodedRows:
        """What `decode` gives, without counting anything yet."""
        read = _RowColumns(rows, layout, file, first_row)
        kind, vs, ve = read.kinds(), read.starts(), read.ends()
        count, has_count = read.counts()
        faults: list[tuple[str, Mask]] = []
        if bool((kind > CTI).any()):
            faults.append((UNKNOWN_KIND, kind == _UNKNOWN))
            faults.append((OPEN_WITH_END, (kind == OPEN) & (ve != FOREVER)))
            faults.append((NO_COUNT, (kind == EXTERNAL_CTI) & ~has_count))
        if (no_start := read.missing_starts()) is not None:
            faults.append((NO_START, no_start & (kind != CTI) & (kind != CLOSE)))
        kept, dropped = self._drop_faulty(faults, read)
        batch = EventBatch(kind, vs, ve, read.times(NEW_VE), count, read.payload(self._payload))
        return DecodedRows(_normalize(batch).filter(kept), kept, dropped, read.arrivals())

    def _drop_faulty(
        self, faults: list[tuple[str, Mask]], read: _RowColumns
    ) -> tuple[Mask, list[tuple[str, pa.RecordBatch]]]:
        kept, dropped = np.ones(len(read), np.bool_), list[tuple[str, pa.RecordBatch]]()
        found = [(reason, bad) for reason, bad in faults if bool(bad.any())]
        if found and self._policy == "raise":
            reason, bad = min(found, key=lambda fault: int(np.argmax(fault[1])))
            at = int(np.argmax(bad))
            raise FormatError(_describe_fault(reason, at, read), file=read.file, row=read.first_row + at)
        for reason, bad in found:
            dropped.append((reason, read.rows.filter(pa.array(bad & kept))))
            kept &= ~bad
        return kept, dropped


def _describe_fault(reason: str, at: int, read: _RowColumns) -> str:
    if reason == UNKNOWN_KIND:
        kind = read.kind_text(at)
        return "_kind is null" if kind is None else f"{reason} {kind!r}"
    return f"{read.layout.times.vs} is null" if reason == NO_START else reason


def _normalize(batch: EventBatch) -> EventBatch:
    """What an element's kind does not use takes its fixed value, whatever the file says there."""
    if batch.has_only_inserts():
        return replace(batch, new_ve=all_forever(len(batch)), count=all_zero(len(batch)))
    is_cti, is_external = batch.kind == CTI, batch.kind == EXTERNAL_CTI
    return EventBatch(
        batch.kind,
        batch.vs,
        np.where(is_cti, FOREVER, batch.ve),
        np.where(batch.kind == RETRACT, batch.new_ve, FOREVER),
        np.where(is_external, batch.count, 0),
        _clear_payload(batch.payload, is_cti | is_external),
    )


def _clear_payload(payload: pa.RecordBatch, rows: Mask) -> pa.RecordBatch:
    """The payload with nulls in the given rows; the payload itself if they are null already."""
    at = np.flatnonzero(rows)
    if not len(at) or all(c.null_count == len(at) for c in take_rows(payload, at).columns):
        return payload
    mask = pa.array(rows)
    columns = [pc.if_else(mask, pa.scalar(None, c.type), c) for c in payload.columns]
    return pa.RecordBatch.from_arrays(columns, schema=payload.schema)


@dataclass(frozen=True, slots=True)
class _RowColumns:
    """A run of rows whose first is number ``first_row`` of ``file``."""

    rows: pa.RecordBatch
    layout: Layout
    file: str
    first_row: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def kinds(self) -> Kinds:
        """The kind of each row, `_UNKNOWN` where it has none we know."""
        if self.layout.is_table:
            return all_insert(len(self))
        column = self._column(KIND)
        if not pa.types.is_dictionary(column.type):
            return _kind_codes(column)
        # A handful of names; the last code is for null.
        names = [*column.dictionary.to_pylist(), None]
        codes = np.array([_CODES.get(name, _UNKNOWN) for name in names], np.uint8)
        nothing = pa.scalar(len(codes) - 1, column.indices.type)
        indices = column.indices.fill_null(nothing) if column.null_count else column.indices
        kinds: Kinds = codes[indices.to_numpy(zero_copy_only=False)]
        return kinds

    def kind_text(self, at: int) -> str | None:
        """What the file says a row is."""
        text: str | None = self._column(KIND)[at].as_py()
        return text

    def missing_starts(self) -> Mask | None:
        """Which rows have no start, if any."""
        if self.layout.times.is_timeless:
            return None
        column = self._column(self.layout.times.vs)
        if not column.null_count:
            return None
        missing: Mask = column.is_null().to_numpy(zero_copy_only=False)
        return missing

    def starts(self) -> Ticks:
        """Where each lifetime begins."""
        if self.layout.times.is_timeless:
            return np.full(len(self), BEGINNING)
        return self.times(self.layout.times.vs)

    def ends(self) -> Ticks:
        """Where each lifetime ends; a row of points ends a tick after its start."""
        if self.layout.is_points:
            starts = self.times(self.layout.times.vs)
            if int(starts.max(initial=BEGINNING)) < FOREVER:
                return starts + 1
            return np.where(starts == FOREVER, starts, starts + (starts != FOREVER))
        return self.times(self.layout.times.ve)

    def arrivals(self) -> Ticks | None:
        """When each row arrived; BEGINNING where its column is null."""
        name = self.layout.times.arrival
        if name is None or (column := self._find_column(name)) is None:
            return None
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        unit = self.layout.times.unit
        ticks = self._convert(column, lambda c: ticks_from_column(c, name, unit), name)
        known: Ticks = ticks.fill_null(BEGINNING).to_numpy()
        return known

    def counts(self) -> tuple[Ticks, Mask]:
        """The counts of external CTIs, and which rows have one."""
        column = self._find_column(COUNT)
        if column is None or column.null_count == len(column):
            return all_zero(len(self)), np.zeros(len(self), np.bool_)
        counts: Ticks = self._convert(column, lambda c: c.cast(pa.int64()), COUNT).fill_null(-1).to_numpy()
        return counts, counts >= 0

    def payload(self, schema: pa.Schema) -> pa.RecordBatch:
        """The payload in its agreed types."""
        columns = [self._payload_column(field) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _payload_column(self, field: pa.Field) -> pa.Array:
        if self.rows.schema.get_field_index(field.name) < 0:
            return pa.nulls(len(self), field.type)
        column = self.rows.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type == field.type:
            return column
        if field.name in self.layout.times.shown and is_text(column.type):
            # Text files give times as they stand there.
            return self._convert(column, lambda c: from_text(c, field.type), field.name)
        return self._convert(column, lambda c: cast_exactly(c, field.type), field.name)

    def _column(self, name: str) -> pa.Array:
        column = self._find_column(name)
        return pa.nulls(len(self), pa.int64()) if column is None else column

    def _find_column(self, name: str) -> pa.Array | None:
        return self.rows.column(name) if name in self.rows.schema.names else None

    def times(self, name: str) -> Ticks:
        """A column of times; FOREVER where the file says nothing."""
        column = self._find_column(name)
        if column is None or column.null_count == len(column):
            return all_forever(len(self))
        times = self.layout.times
        if is_text(column.type):
            column = self._convert(column, lambda c: ticks_from_text(c, self.layout.kind, times), name)
        elif times.unit is not None or not pa.types.is_int64(column.type):
            column = self._convert(column, lambda c: ticks_from_column(c, name, times.unit), name)
        ticks: Ticks = (column.fill_null(FOREVER) if column.null_count else column).to_numpy()
        return ticks

    def _convert(self, column: pa.Array, convert: Convert, name: str) -> pa.Array:
        return convert_column(column, convert, name=name, file=self.file, first_row=self.first_row)


def _kind_codes(names: pa.Array) -> Kinds:
    codes = pc.index_in(names.cast(pa.string()), value_set=pa.array(_KINDS)).fill_null(_UNKNOWN)
    kinds: Kinds = codes.to_numpy(zero_copy_only=False).astype(np.uint8)
    return kinds
