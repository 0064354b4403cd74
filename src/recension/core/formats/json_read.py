"""JSON Lines: one object a row, read in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats import json_parse
from recension.core.formats.columns import KIND, TimeColumns
from recension.core.formats.json_look import look
from recension.core.formats.json_parse import Block
from recension.core.formats.json_types import can_travel, carrier, from_carrier
from recension.core.formats.place import converted, reading

_BLOCK: Final = 4 << 20


class JsonRows:
    """The rows of one JSON Lines file. A name that an object lacks is null there.

    Without a declared payload the whole file is looked through for names and types first: the last line
    may be the one that shows a column to be a float.
    """

    is_typed = False
    may_lack_columns = True

    def __init__(self, path: Path, times: TimeColumns, declared: pa.Schema | None) -> None:
        self._path, self._file, self._times = path, str(path), times
        for field in declared or ():
            if not can_travel(field.type):
                raise FormatError(
                    f"column {field.name}: {field.type} cannot be read from JSON", file=self._file
                )
        self.schema = look(self._blocks(), times, declared)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""
        for block in self._blocks():
            batch = self._parse(block, wanted)
            for start in range(0, len(batch), size):
                yield batch.slice(start, size)

    def _blocks(self) -> Iterator[Block]:
        first_row, rest = 1, b""
        with reading(self._file), self._path.open("rb") as file:
            while chunk := file.read(_BLOCK):
                cut = chunk.rfind(b"\n") + 1
                rest, text = (chunk[cut:], rest + chunk[:cut]) if cut else (rest + chunk, b"")
                block = Block.of(text, self._file, first_row)
                if block.size:
                    yield block
                    first_row += block.size
            if rest.strip():
                yield Block.of(rest, self._file, first_row)

    def _parse(self, block: Block, wanted: pa.Schema) -> pa.RecordBatch:
        explicit = pa.schema([pa.field(f.name, self._carrier(f)) for f in wanted])
        batch = json_parse.parse_fast(block, explicit, self._times)
        names = batch.schema.names if batch is not None else []
        if batch is None:
            rows = json_parse.parse_rows(block)
            names = [name for row in rows for name in row]
            columns = [self._slow_column(rows, field, block) for field in explicit]
            batch = pa.record_batch(columns, names=explicit.names)
        if KIND in names and KIND not in self.schema.names:
            raise FormatError(f"{KIND} is missing here, but not further on", file=self._file, row=1)
        columns = [self._typed(batch.column(f.name), f, block) for f in wanted]
        return pa.record_batch(columns, names=wanted.names)

    def _carrier(self, field: pa.Field) -> pa.DataType:
        if field.name in self._times.all:
            return pa.int64() if pa.types.is_integer(field.type) else pa.string()
        return carrier(field.type)

    def _slow_column(self, rows: list[json_parse.Row], field: pa.Field, block: Block) -> pa.Array:
        if field.name in self._times.all:
            return json_parse.time_texts(rows, field.name, block)
        return json_parse.column_of(rows, field, block)

    def _typed(self, column: pa.Array, field: pa.Field, block: Block) -> pa.Array:
        if field.name in self._times.all:
            return column
        return converted(
            column,
            lambda cells: from_carrier(cells, field.type),
            name=field.name,
            file=self._file,
            first_row=block.first_row,
        )
