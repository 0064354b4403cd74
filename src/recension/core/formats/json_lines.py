"""JSON Lines: one object a row, read in blocks of whole lines and written a column at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EXTERNAL_CTI, KIND_NAMES
from recension.core.errors import FormatError, before_fault
from recension.core.formats.columns import CONTROL, KIND, TimeColumns, describe_missing_column, is_text
from recension.core.formats.files import convert_column, format_errors, open_bytes
from recension.core.formats.json_blocks import (
    Block,
    Row,
    column_from_rows,
    find_absent,
    parse_with_arrow,
    parse_with_python,
    time_texts,
)
from recension.core.formats.json_schema import (
    carrier,
    fields_of,
    from_carrier,
    has_json_form,
    infer_schema,
    is_list,
    items_of,
    regroup_items,
)
from recension.core.formats.text import TextSink, is_integer_text, ticks_to_text, to_text

_BLOCK: Final = 4 << 20
_LONGEST: Final = 64 << 20
_NULL: Final = "null"
_WITHOUT_PAYLOAD: Final = (KIND_NAMES[CTI], KIND_NAMES[EXTERNAL_CTI])
_TO_ESCAPE: Final = r'[\x00-\x1f"\\]'
# Not in the JSON standard, but what Python, Spark and DuckDB read and write.
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonRows:
    """The rows of one JSON Lines file. A name that an object lacks is null there.

    A declared column that no row names is refused if there are others in its place: it may be misspelt.
    Without a declared payload the whole file is looked through for names and types first: the last line
    may be the one that shows a column to be a float.
    """

    is_typed = False
    may_lack_columns = True

    def __init__(
        self, path: Path | str, times: TimeColumns, declared: pa.Schema | None, text: bytes | None = None
    ) -> None:
        """``text`` is what stands there, if it is at hand: messages, of which ``path`` is the name."""
        self._path, self._file, self._times, self._text = Path(path), str(path), times, text
        for field in declared or ():
            if not has_json_form(field.type):
                raise FormatError(
                    f"column {field.name}: {field.type} cannot be read from JSON", file=self._file
                )
        self.schema = infer_schema(self._blocks(), times, declared)
        # Of messages that come later, some may lack what others have: only files are looked through.
        if text is None and declared is not None:
            self.refuse_absent(declared)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time; a fault after the rows before it."""
        for block in self._blocks():
            for part in block.parts(len(wanted)):
                convert = partial(self._parse_rows, part, wanted)
                batch, fault = before_fault(part.size, part.first_row, convert)
                for start in range(0, len(batch), size):
                    yield batch.slice(start, size)
                if fault is not None:
                    raise fault

    def _parse_rows(self, block: Block, wanted: pa.Schema, size: int) -> pa.RecordBatch:
        return self._parse(block if size == block.size else block.head(size), wanted)

    def refuse_absent(self, declared: pa.Schema) -> None:
        """Refuse columns that no row names, if a row with a payload has one that was not declared.

        Without such a name nothing can be misspelt: some writers leave out every null.
        """
        absent = find_absent(declared.names, self._blocks())
        if not absent:
            return
        control = {*CONTROL, *self._times.all}
        expected = pa.schema([pa.field(f.name, self._carrier(f)) for f in self.schema])
        for part in (part for block in self._blocks() for part in block.parts(len(expected))):
            if parse_with_arrow(part, expected, self._times, "error") is not None:
                continue
            rows = [row for row in parse_with_python(part) if row.get(KIND) not in _WITHOUT_PAYLOAD]
            there = [name for name in dict.fromkeys(chain.from_iterable(rows)) if name not in control]
            if not set(there) <= set(self.schema.names):
                name = next(name for name in self.schema.names if name in absent)
                raise FormatError(describe_missing_column(name, there), file=self._file)

    def _blocks(self) -> Iterator[Block]:
        first_row = 1
        with format_errors(self._file):
            for text in whole_lines(self._path) if self._text is None else [self._text]:
                if not text or text.isspace():
                    continue
                block = Block.parse(text, self._file, first_row)
                yield block
                first_row += block.size

    def _parse(self, block: Block, wanted: pa.Schema) -> pa.RecordBatch:
        explicit = pa.schema([pa.field(f.name, self._carrier(f)) for f in wanted])
        if KIND not in self.schema.names:
            explicit = explicit.append(pa.field(KIND, pa.string()))
        batch = parse_with_arrow(block, explicit, self._times)
        if batch is None:
            rows = parse_with_python(block)
            columns = [self._column_from_rows(rows, field, block) for field in explicit]
            batch = pa.record_batch(columns, names=explicit.names)
        if KIND not in self.schema.names and batch.column(KIND).null_count < len(batch):
            raise FormatError(f"{KIND} is missing here, but not further on", file=self._file, row=1)
        columns = [self._convert(batch.column(f.name), f, block) for f in wanted]
        return pa.record_batch(columns, names=wanted.names)

    def _carrier(self, field: pa.Field) -> pa.DataType:
        if field.name in self._times.all:
            return pa.int64() if pa.types.is_integer(field.type) else pa.string()
        # In the types of this file: integers that other files have among floats must be exact as such.
        at = self.schema.get_field_index(field.name)
        own = self.schema.field(at).type if at >= 0 else pa.null()
        return carrier(field.type if pa.types.is_null(own) else own)

    def _column_from_rows(self, rows: list[Row], field: pa.Field, block: Block) -> pa.Array:
        if field.name in self._times.all:
            return time_texts(rows, field.name, block)
        return column_from_rows(rows, field, block)

    def _convert(self, column: pa.Array, field: pa.Field, block: Block) -> pa.Array:
        if field.name in self._times.all:
            return column
        return convert_column(
            column,
            lambda cells: from_carrier(cells, field.type),
            name=field.name,
            file=self._file,
            first_row=block.first_row,
        )


def whole_lines(path: Path) -> Iterator[bytes]:
    """The text of a file in pieces that end where lines do."""
    rest: list[bytes] = []
    with open_bytes(path) as file:
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


class JsonSink(TextSink):
    """Writes one object a line. A stream of no elements is one empty line: an empty file is an accident."""

    def close(self) -> None:
        """Finish the file."""
        if self._row == 1:
            self._file.write(b"\n")
        super().close()

    def encode_times(self, column: pa.Array) -> pa.Array:
        """Times as numbers, or as quoted timestamps; a timestamp too far off for that as a number."""
        text = ticks_to_text(column)
        return pc.if_else(is_integer_text(text), text, _wrap('"', text, '"')).fill_null(_NULL)

    def encode_values(self, column: pa.Array) -> pa.Array:
        """Each value as JSON text; null is the text ``null``."""
        return _encode(column)

    def join_columns(self, columns: list[pa.Array]) -> pa.Array:
        """One object a row."""
        return _join_objects(self._names, columns)


def _encode(column: pa.Array) -> pa.Array:
    return _encode_valid(column).cast(pa.string()).fill_null(_NULL)


def _encode_valid(column: pa.Array) -> pa.Array:
    kind = column.type
    if is_list(kind):
        return _wrap("[", pc.binary_join(regroup_items(column, _encode(items_of(column))), ","), "]")
    if pa.types.is_struct(kind):
        objects = _join_objects([f.name for f in kind], [_encode(part) for part in fields_of(column, kind)])
        return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))
    if is_text(kind):
        return _quote(column.cast(pa.string()))
    text = to_text(column)
    if pa.types.is_floating(kind):
        return _name_infinities(text)
    is_bare = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind)
    return text if is_bare else _wrap('"', text, '"')


def _wrap(before: str, text: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, text, after, "")


def _quote(text: pa.Array) -> pa.Array:
    """JSON strings; only those with something to escape go through Python."""
    special = pc.match_substring_regex(text, _TO_ESCAPE).fill_null(False)
    plain = _wrap('"', text, '"')
    if not bool(pc.any(special).as_py()):
        return plain
    escaped = [json.dumps(value, ensure_ascii=False) for value in text.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, pa.string()))


def _name_infinities(text: pa.Array) -> pa.Array:
    for ours, theirs in _NOT_FINITE.items():
        text = pc.if_else(pc.equal(text, ours), theirs, text)
    return text


def _join_objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One JSON object a row from encoded columns (at least one)."""
    parts: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += ["," * bool(i) + json.dumps(name, ensure_ascii=False) + ":", column]
    return pc.binary_join_element_wise("{", *parts, "}", "")
