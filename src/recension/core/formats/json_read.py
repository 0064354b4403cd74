"""JSON Lines: one object a row, read in blocks of whole lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats import json_parse
from recension.core.formats.columns import KIND, TimeColumns
from recension.core.formats.compressed import opened
from recension.core.formats.json_blocks import Block
from recension.core.formats.json_look import look
from recension.core.formats.json_types import can_travel, carrier, from_carrier
from recension.core.formats.place import converted, reading

_BLOCK: Final = 4 << 20
_LONGEST: Final = 64 << 20


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
            for part in block.parts(len(wanted)):
                batch = self._parse(part, wanted)
                for start in range(0, len(batch), size):
                    yield batch.slice(start, size)

    def _blocks(self) -> Iterator[Block]:
        first_row = 1
        with reading(self._file):
            for text in _whole_lines(self._path):
                if not text or text.isspace():
                    continue
                block = Block.of(text, self._file, first_row)
                yield block
                first_row += block.size

    def _parse(self, block: Block, wanted: pa.Schema) -> pa.RecordBatch:
        explicit = pa.schema([pa.field(f.name, self._carrier(f)) for f in wanted])
        if KIND not in self.schema.names:
            explicit = explicit.append(pa.field(KIND, pa.string()))
        batch = json_parse.parse_fast(block, explicit, self._times)
        if batch is None:
            rows = json_parse.parse_rows(block)
            columns = [self._slow_column(rows, field, block) for field in explicit]
            batch = pa.record_batch(columns, names=explicit.names)
        if KIND not in self.schema.names and batch.column(KIND).null_count < len(batch):
            raise FormatError(f"{KIND} is missing here, but not further on", file=self._file, row=1)
        columns = [self._typed(batch.column(f.name), f, block) for f in wanted]
        return pa.record_batch(columns, names=wanted.names)

    def _carrier(self, field: pa.Field) -> pa.DataType:
        if field.name in self._times.all:
            return pa.int64() if pa.types.is_integer(field.type) else pa.string()
        # In the types of this file: integers that other files have among floats must be exact as such.
        at = self.schema.get_field_index(field.name)
        own = self.schema.field(at).type if at >= 0 else pa.null()
        return carrier(field.type if pa.types.is_null(own) else own)

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


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The text of a file in pieces that end where lines do."""
    rest: list[bytes] = []
    with opened(path) as file:
        chunk = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
        while chunk:
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield b"".join([*rest, chunk[:cut]])
                rest = []
            rest.append(chunk[cut:])
            if sum(map(len, rest)) > _LONGEST:
                raise FormatError(f"a line of more than {_LONGEST >> 20} MiB", file=str(path))
            chunk = file.read(_BLOCK)
    yield b"".join(rest)
