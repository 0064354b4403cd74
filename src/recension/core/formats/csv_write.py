"""Columns as CSV, written a column at a time and joined: no Python value per row."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.formats.columns import TIMES, is_text
from recension.core.formats.compressed import created
from recension.core.formats.place import converted
from recension.core.formats.text import is_scalar, ticks_to_text, to_text

# The empty text is quoted, so that nothing at all can stand for null.
# What makes a spreadsheet take a text for a formula (OWASP, "CSV injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_TO_QUOTE: Final = r'^$|[",\r\n]|^\s|\s$'


class CsvSink:
    """Writes a header and one line a row."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        file: io.BufferedIOBase | None = None,
        *,
        escape_formulas: bool = False,
    ) -> None:
        self._file = file or created(path)
        self._path, self._names, self._row = path, schema.names, 1
        self._cells = _escaped if escape_formulas else _cells
        names = [("'" * (escape_formulas and name[:1] in _FORMULA)) + name for name in schema.names]
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(names)
        self._file.write(header.getvalue().encode())

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not len(batch):
            return
        cells = [
            converted(
                column,
                ticks_to_text if name in TIMES else self._cells,
                name=name,
                file=str(self._path),
                first_row=self._row,
            )
            for name, column in zip(self._names, batch.columns, strict=True)
        ]
        self._row += len(batch)
        lines = pc.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="")
        self._file.write("\n".join(lines.to_pylist()).encode() + b"\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def why_unwritable(schema: pa.Schema) -> str | None:
    """The reason why a payload cannot be written as CSV, if there is one."""
    for field in schema:
        if not is_scalar(field.type):
            return f"column {field.name}: {field.type} cannot be written as CSV; use Parquet or Arrow"
    return None


def _cells(column: pa.Array) -> pa.Array:
    text = to_text(column)
    if not is_text(column.type):
        return text
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(text, _TO_QUOTE), quoted, text)


def _escaped(column: pa.Array) -> pa.Array:
    """The same, with a mark before what a spreadsheet would compute. Numbers are left as they are."""
    if is_text(column.type):
        column = pc.replace_substring_regex(to_text(column), pattern=r"^[=+\-@\t\r]", replacement=r"'\0")
    return _cells(column)
