"""CSV: a header, cells as text, nothing for null and ``""`` for the empty text.

Every cell is read as text first: that keeps null and empty apart, lets a time be a number or a
timestamp, and gives errors a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pcsv

from recension.core.errors import FormatError
from recension.core.formats.columns import BATCH, COUNT, KIND, SEQ, TimeColumns, refuse_twins
from recension.core.formats.place import converted, reading
from recension.core.formats.text import (
    from_text,
    guess_type,
    is_scalar,
    time_type_of,
    wider_time,
    wider_type,
    with_one_time_type,
)

_BLOCK: Final = 4 << 20
_ROW: Final = re.compile(r"^(?:In CSV column #\d+: )?Row #(\d+): (?:CSV conversion error to string: )?(.*)")
_FIXED: Final = {KIND: pa.string(), COUNT: pa.int64(), BATCH: pa.int64(), SEQ: pa.int64()}


class CsvRows:
    """The rows of one CSV file.

    Without a declared payload the whole file is looked through for types first: the last row may be the
    one that shows a column to be a float.
    """

    is_typed = False
    may_lack_columns = False

    def __init__(self, path: Path, times: TimeColumns, declared: pa.Schema | None) -> None:
        self._path, self._file, self._times = path, str(path), times
        for field in declared or ():
            if not is_scalar(field.type):
                raise FormatError(
                    f"column {field.name}: {field.type} cannot be read from CSV", file=self._file
                )
        with reading(self._file):
            self._names = _header(path)
        refuse_twins(self._names, self._file)
        self.schema = self._look(declared)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""
        first_row = 1
        for cells in self._cells():
            columns = [self._typed(cells.column(field.name), field, first_row) for field in wanted]
            batch = pa.record_batch(columns, names=wanted.names)
            for start in range(0, len(batch), size):
                yield batch.slice(start, size)
            first_row += len(cells)

    def _typed(self, cells: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
        if field.name in self._times.all:
            return cells
        return converted(
            cells,
            lambda part: from_text(part, field.type),
            name=field.name,
            file=self._file,
            first_row=first_row,
        )

    def _look(self, declared: pa.Schema | None) -> pa.Schema:
        """The types of the columns; with a declared payload the first block tells the rest."""
        types: dict[str, pa.DataType] = {name: _FIXED.get(name, pa.null()) for name in self._names}
        types |= {f.name: f.type for f in declared or () if f.name in types}
        open_names = [n for n in types if n not in _FIXED and (declared is None or n not in declared.names)]
        for cells in self._cells():
            for name in open_names:
                if name in self._times.all:
                    types[name] = wider_time(types[name], time_type_of(cells.column(name)))
                elif types[name] != pa.string():  # nothing is wider than text
                    types[name] = wider_type(types[name], guess_type(cells.column(name)))
            if declared is not None:
                break
        return with_one_time_type(types, self._times)

    def _cells(self) -> Iterator[pa.RecordBatch]:
        ragged: list[Any] = []
        rows, last = 0, None
        try:
            with reading(self._file), self._reader(ragged) as reader:
                for last in reader:
                    rows += len(last)
                    yield last
        except FormatError as why:
            raise self._placed(why, ragged) from None
        if last is not None and len(last) and self._is_cut_off(last):
            raise FormatError("a quoted cell is not closed", file=self._file, row=rows)

    def _is_cut_off(self, last: pa.RecordBatch) -> bool:
        """Does the file end inside quotes? Arrow takes all that is left for one cell."""
        cells = (column[-1].as_py() for column in last.columns)
        if not any(cell is not None and "\n" in cell for cell in cells):
            return False
        with reading(self._file), self._path.open("rb") as file:
            return sum(chunk.count(b'"') for chunk in iter(lambda: file.read(_BLOCK), b"")) % 2 == 1

    def _reader(self, ragged: list[Any]) -> Any:
        """Arrow's streaming parser; rows of a wrong length are put into ``ragged`` as they stop it."""

        def refuse(row: Any) -> str:
            ragged.append(row)
            return "error"

        return pcsv.open_csv(
            str(self._path),
            pcsv.ReadOptions(use_threads=False, block_size=_BLOCK),
            pcsv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            pcsv.ConvertOptions(
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
                column_types={name: pa.string() for name in self._names},
            ),
        )

    def _placed(self, why: FormatError, ragged: list[Any]) -> FormatError:
        """The same error with its row; Arrow counts the header as row 1."""
        if ragged:
            reason = f"{ragged[0].actual_columns} columns where the header has {ragged[0].expected_columns}"
            return FormatError(reason, file=self._file, row=ragged[0].number - 1)
        if found := _ROW.match(why.reason):
            return FormatError(found[2], file=self._file, row=int(found[1]) - 1)
        return why


def _header(path: Path) -> list[str]:
    # The header alone must be sound here; the file is read on in chunks that hold more than that.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        names = next(csv.reader(file), [])
    if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
        raise FormatError("the header is not UTF-8", file=str(path))
    return names
