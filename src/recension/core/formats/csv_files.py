"""CSV: a header, cells as text, nothing for null and ``""`` for the empty text.

Every cell is read as text first: that keeps null and empty apart, lets a time be a number or a
timestamp, and gives errors a row. It is written a column at a time and joined: no Python value per row.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from recension.core.errors import FormatError, before_fault
from recension.core.formats.columns import FIXED_TYPES, TimeColumns, check_names, is_text
from recension.core.formats.files import (
    convert_column,
    describe_file_error,
    format_errors,
    is_packed,
    open_bytes,
)
from recension.core.formats.text import (
    TextSink,
    from_text,
    guess_type,
    has_long_integers,
    is_scalar,
    ticks_to_text,
    time_type_of,
    to_text,
    unify_time_columns,
    wider_type,
)

_BLOCK: Final = 4 << 20
_ROW: Final = re.compile(r"^(?:In CSV column #\d+: )?Row #(\d+): (?:CSV conversion error to string: )?(.*)")
_RAGGED: Final = re.compile(r"^CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")
# Text, quotes inside of cells that do not begin with one, and cells in quotes.
_CLOSED: Final = re.compile(rb'(?:[^"]++|(?<![,\r\n])"|"(?:[^"]++|"")*+")*+')
# What makes a spreadsheet take a text for a formula (OWASP, "CSV injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
# The empty text is quoted, so that nothing at all can stand for null.
_TO_QUOTE: Final = r'^$|[",\r\n]|^\s|\s$'


class CsvRows:
    """The rows of one CSV file.

    Without a declared payload the whole file is looked through for types first: the last row may be the
    one that shows a column to be a float.
    """

    is_typed = False
    may_lack_columns = False

    def __init__(self, path: Path, times: TimeColumns, declared: pa.Schema | None) -> None:
        self._path, self._file, self._times = path, str(path), times
        self._is_known_closed = False
        for field in declared or ():
            if not is_scalar(field.type):
                raise FormatError(
                    f"column {field.name}: {field.type} cannot be read from CSV", file=self._file
                )
        with format_errors(self._file):
            self._names, self._header_only = _read_header(path)
        check_names(self._names, self._file)
        self.schema = self._infer_schema(declared)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time; a fault after the rows before it."""
        first_row = 1
        for cells in self._read_cells():
            convert = partial(self._convert_rows, cells, wanted, first_row)
            batch, fault = before_fault(len(cells), first_row, convert)
            for start in range(0, len(batch), size):
                yield batch.slice(start, size)
            if fault is not None:
                raise fault
            first_row += len(cells)

    def _convert_rows(
        self, cells: pa.RecordBatch, wanted: pa.Schema, first_row: int, size: int
    ) -> pa.RecordBatch:
        part = cells.slice(0, size)
        columns = [self._convert(part.column(field.name), field, first_row) for field in wanted]
        return pa.record_batch(columns, names=wanted.names)

    def _convert(self, cells: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        if field.name in self._times.all:
            return cells
        return convert_column(
            cells,
            lambda part: from_text(part, self._exact_type(field)).cast(field.type),
            name=field.name,
            file=self._file,
            first_row=first_row,
        )

    def _exact_type(self, field: pa.Field) -> pa.DataType:
        """Integers that other files of the stream have among floats must be exact as such."""
        at = self.schema.get_field_index(field.name)
        is_integer = at >= 0 and pa.types.is_integer(self.schema.field(at).type)
        return pa.int64() if is_integer and pa.types.is_floating(field.type) else field.type

    def _infer_schema(self, declared: pa.Schema | None) -> pa.Schema:
        """The types of the columns; with a declared payload the first block tells the rest."""
        types: dict[str, pa.DataType] = {name: FIXED_TYPES.get(name, pa.null()) for name in self._names}
        types |= {f.name: f.type for f in declared or () if f.name in types}
        open_names = [
            n for n in types if n not in FIXED_TYPES and (declared is None or n not in declared.names)
        ]
        long_integers: set[str] = set()
        for cells in self._read_cells():
            for name in open_names:
                if name in self._times.all:
                    if pa.types.is_null(types[name]):  # the first that shows it says it
                        types[name] = time_type_of(cells.column(name))
                elif types[name] != pa.string():  # nothing is wider than text
                    guess = guess_type(cells.column(name))
                    types[name] = wider_type(types[name], guess)
                    if pa.types.is_integer(guess) and has_long_integers(cells.column(name)):
                        long_integers.add(name)
            if declared is not None:
                break
        # Blocks of integers and of floats in one column: text, where a float would round.
        types |= {name: pa.string() for name in long_integers if pa.types.is_floating(types[name])}
        return unify_time_columns(types, self._times)

    def _read_cells(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            with format_errors(self._file), self._open_reader() as reader:
                if reader.schema.names != self._names:
                    raise FormatError("the header has a quote where none can be", file=self._file)
                for cells in reader:
                    rows += len(cells)
                    yield cells
        except FormatError as why:
            raise _with_row(why, self._file) from None
        if not self._is_known_closed and self._is_cut_off():
            raise FormatError("a quoted cell is not closed", file=self._file, row=rows)
        self._is_known_closed = True

    def _is_cut_off(self) -> bool:
        """Does the file end inside quotes? Arrow takes all that is left for one cell, of the last row."""
        before = b"\n"
        with format_errors(self._file), open_bytes(self._path) as file:
            chunk = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
            while chunk:
                while chunk.endswith(b'"') and (more := file.read(1)):
                    chunk += more  # two quotes stand for one letter: they are not parted
                before = _open_quote(before + chunk)
                chunk = file.read(_BLOCK)
        return len(before) > 1

    def _open_reader(self) -> Any:
        """Arrow's streaming parser."""
        source = open_bytes(self._path) if is_packed(self._path) else str(self._path)
        return pcsv.open_csv(
            # Arrow does not see a header that no line end follows.
            source if self._header_only is None else io.BytesIO(self._header_only + b"\n"),
            pcsv.ReadOptions(use_threads=False, block_size=_BLOCK),
            pcsv.ParseOptions(newlines_in_values=True),
            pcsv.ConvertOptions(
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
                column_types={name: pa.string() for name in self._names},
            ),
        )


def _open_quote(text: bytes) -> bytes:
    """The last letter of a text that starts outside of quotes, or all from before the quote left open."""
    if b'"' not in text:
        return text[-1:]
    found = _CLOSED.match(text)
    return text[found.end() - 1 :] if found else text


def _with_row(why: FormatError, file: str) -> FormatError:
    """The same error with its row; Arrow counts the header as row 1."""
    if why.reason.startswith("straddling object"):
        return FormatError(f"a row of more than {_BLOCK >> 20} MiB", file=file)
    if found := _RAGGED.match(why.reason):
        reason = f"{found[3]} columns where the header has {found[2]}"
        return FormatError(reason, file=file, row=int(found[1]) - 1)
    if found := _ROW.match(why.reason):
        return FormatError(found[2], file=file, row=int(found[1]) - 1)
    return why


def _read_header(path: Path) -> tuple[list[str], bytes | None]:
    """The names of the columns; and all of the file, if that is a header that no line end follows."""
    # Arrow wants a row to fit into a block, the header too; what follows it there need not be sound here.
    with open_bytes(path) as file:
        block = file.read(_BLOCK)
    lines = io.StringIO(block.decode("utf-8-sig", errors="surrogateescape"), newline="")
    try:
        names = next(filter(None, csv.reader(lines)), [])
    except csv.Error as why:
        raise FormatError(f"the header: {describe_file_error(why)}", file=str(path)) from None
    if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
        raise FormatError("the header is not UTF-8", file=str(path))
    is_all = names and len(block) < _BLOCK and not lines.read(1) and not block.endswith((b"\n", b"\r"))
    return names, block if is_all else None


class CsvSink(TextSink):
    """Writes a header and one line a row."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        file: io.BufferedIOBase | None = None,
        *,
        escape_formulas: bool = False,
    ) -> None:
        super().__init__(path, schema, file)
        self._escapes = escape_formulas
        names = [("'" * (escape_formulas and name[:1] in _FORMULA)) + name for name in schema.names]
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(names)
        self._file.write(header.getvalue().encode())

    def encode_times(self, column: pa.Array) -> pa.Array:
        """Times as numbers or timestamps."""
        return ticks_to_text(column)

    def encode_values(self, column: pa.Array) -> pa.Array:
        """Cells, quoted where they must be; with a mark before what a spreadsheet would compute, if asked."""
        text = to_text(column)
        if not is_text(column.type):
            return text
        if self._escapes:
            text = pc.replace_substring_regex(text, pattern=r"^[=+\-@\t\r]", replacement=r"'\0")
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
        return pc.if_else(pc.match_substring_regex(text, _TO_QUOTE), quoted, text)

    def join_columns(self, columns: list[pa.Array]) -> pa.Array:
        """The cells of each row with commas between them, nothing for null."""
        return pc.binary_join_element_wise(*columns, ",", null_handling="replace", null_replacement="")
