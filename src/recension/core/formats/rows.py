"""Raw rows of a file, seen as the columns of stream elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import INSERT, KIND_NAMES, Kinds, Mask
from recension.core.formats.columns import COUNT, KIND, NEW_VE, Layout, is_text
from recension.core.formats.place import Convert, converted
from recension.core.formats.text import ticks_from_text
from recension.core.ticks import FOREVER, Ticks, from_arrow

UNKNOWN: Final = 255
# `open` and `close` follow the kinds of a batch; see openclose.py.
_KINDS: Final = (*KIND_NAMES, "open", "close")
_CODES: Final = {name: code for code, name in enumerate(_KINDS)}


class Rows(Protocol):
    """A file of any format."""

    schema: pa.Schema
    is_typed: bool
    may_lack_columns: bool

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """A run of rows whose first is number ``first_row`` of ``file``."""

    rows: pa.RecordBatch
    layout: Layout
    file: str
    first_row: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def kinds(self) -> Kinds:
        """The kind of each row, `UNKNOWN` where it has none we know."""
        if self.layout.is_table:
            return np.full(len(self), INSERT, np.uint8)
        column = self._column(KIND)
        if not pa.types.is_dictionary(column.type):
            return _kind_codes(column)
        # A handful of names; the last code is for null.
        names = [*column.dictionary.to_pylist(), None]
        codes = np.array([_CODES.get(name, UNKNOWN) for name in names], np.uint8)
        nothing = pa.scalar(len(codes) - 1, column.indices.type)
        indices = column.indices.fill_null(nothing) if column.null_count else column.indices
        kinds: Kinds = codes[indices.to_numpy(zero_copy_only=False)]
        return kinds

    def kind_text(self, at: int) -> str | None:
        """What the file says a row is."""
        text: str | None = self._column(KIND)[at].as_py()
        return text

    def starts(self) -> Ticks:
        """Where each lifetime starts; FOREVER where the file says nothing."""
        return self._filled(self.layout.times.vs)

    def unstarted(self) -> Mask | None:
        """Which rows have no start, if any."""
        column = self._column(self.layout.times.vs)
        if not column.null_count:
            return None
        missing: Mask = column.is_null().to_numpy(zero_copy_only=False)
        return missing

    def ends(self) -> Ticks:
        """Where each lifetime ends; a row of points ends a tick after its start."""
        if self.layout.is_points:
            starts = self.starts()
            return np.where(starts == FOREVER, starts, starts + (starts != FOREVER))
        return self._filled(self.layout.times.ve)

    def new_ends(self) -> Ticks:
        """The end a retraction leaves."""
        return self._filled(NEW_VE)

    def counts(self) -> tuple[Ticks, Mask]:
        """The counts of external CTIs, and which rows have one."""
        column = self._column(COUNT)
        if column.null_count == len(column):
            return np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
        counts: Ticks = self._converted(column, lambda c: c.cast(pa.int64()), COUNT).fill_null(-1).to_numpy()
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
        return self._converted(column, lambda c: c.cast(field.type), field.name)

    def _column(self, name: str) -> pa.Array:
        if name in self.rows.schema.names:
            return self.rows.column(name)
        return pa.nulls(len(self), pa.int64())

    def _filled(self, name: str) -> Ticks:
        column = self._column(name)
        if column.null_count == len(column):
            return np.full(len(column), FOREVER)
        if not pa.types.is_int64(column.type):
            read = self._from_text if is_text(column.type) else lambda c: from_arrow(c, name)
            column = self._converted(column, read, name)
        ticks: Ticks = (column.fill_null(FOREVER) if column.null_count else column).to_numpy()
        return ticks

    def _from_text(self, column: pa.Array) -> pa.Array:
        return ticks_from_text(column, self.layout.kind)

    def _converted(self, column: pa.Array, convert: Convert, name: str) -> pa.Array:
        return converted(column, convert, name=name, file=self.file, first_row=self.first_row)


def _kind_codes(names: pa.Array) -> Kinds:
    codes = pc.index_in(names.cast(pa.string()), value_set=pa.array(_KINDS)).fill_null(UNKNOWN)
    kinds: Kinds = codes.to_numpy(zero_copy_only=False).astype(np.uint8)
    return kinds
