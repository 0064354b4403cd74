"""Columns as JSON Lines, written a column at a time and joined: no Python value per row."""

from __future__ import annotations

import json
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.formats.columns import TIMES, is_text
from recension.core.formats.compressed import created
from recension.core.formats.json_types import can_travel
from recension.core.formats.nested import fields_of, is_list, items_of, regrouped
from recension.core.formats.place import converted
from recension.core.formats.text import is_integer_text, ticks_to_text, to_text

_NULL: Final = "null"
_TO_ESCAPE: Final = r'[\x00-\x1f"\\]'
# Not in the JSON standard, but what Python, Spark and DuckDB read and write.
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonSink:
    """Writes one object a line. A stream of no elements is one empty line: an empty file is an accident."""

    def __init__(self, path: Path, schema: pa.Schema, file: BufferedIOBase | None = None) -> None:
        self._file = file or created(path)
        self._path, self._names, self._row = path, schema.names, 1

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not len(batch):
            return
        columns = [
            converted(
                column,
                _ticks if name in TIMES else encoded,
                name=name,
                file=str(self._path),
                first_row=self._row,
            )
            for name, column in zip(self._names, batch.columns, strict=True)
        ]
        self._file.write("\n".join(_objects(self._names, columns).to_pylist()).encode() + b"\n")
        self._row += len(batch)

    def close(self) -> None:
        """Finish the file."""
        if self._row == 1:
            self._file.write(b"\n")
        self._file.close()


def why_unwritable(schema: pa.Schema) -> str | None:
    """The reason why a payload cannot be written as JSON, if there is one."""
    for field in schema:
        if not can_travel(field.type):
            return f"column {field.name}: {field.type} cannot be written as JSON; use Parquet or Arrow"
    return None


def encoded(column: pa.Array) -> pa.Array:
    """Each value as JSON text; null is the text ``null``."""
    return _values(column).cast(pa.string()).fill_null(_NULL)


def _ticks(column: pa.Array) -> pa.Array:
    """Times as numbers, or as quoted timestamps; a timestamp too far off for that as a number."""
    text = ticks_to_text(column)
    return pc.if_else(is_integer_text(text), text, _wrapped('"', text, '"')).fill_null(_NULL)


def _values(column: pa.Array) -> pa.Array:
    kind = column.type
    if is_list(kind):
        return _wrapped("[", pc.binary_join(regrouped(column, encoded(items_of(column))), ","), "]")
    if pa.types.is_struct(kind):
        objects = _objects([f.name for f in kind], [encoded(part) for part in fields_of(column, kind)])
        return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))
    if is_text(kind):
        return _quoted(column.cast(pa.string()))
    text = to_text(column)
    if pa.types.is_floating(kind):
        return _finite(text)
    is_bare = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind)
    return text if is_bare else _wrapped('"', text, '"')


def _wrapped(before: str, text: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, text, after, "")


def _quoted(text: pa.Array) -> pa.Array:
    """JSON strings; only those with something to escape go through Python."""
    special = pc.match_substring_regex(text, _TO_ESCAPE).fill_null(False)
    plain = _wrapped('"', text, '"')
    if not bool(pc.any(special).as_py()):
        return plain
    escaped = [json.dumps(value, ensure_ascii=False) for value in text.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, pa.string()))


def _finite(text: pa.Array) -> pa.Array:
    for ours, theirs in _NOT_FINITE.items():
        text = pc.if_else(pc.equal(text, ours), theirs, text)
    return text


def _objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One JSON object a row from encoded columns (at least one)."""
    parts: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += ["," * bool(i) + json.dumps(name, ensure_ascii=False) + ":", column]
    return pc.binary_join_element_wise("{", *parts, "}", "")
