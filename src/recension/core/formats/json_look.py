"""Which columns a JSON Lines file has, and of which types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats import json_parse
from recension.core.formats.columns import BATCH, COUNT, KIND, NEW_VE, SEQ, TimeColumns
from recension.core.formats.json_parse import Block
from recension.core.formats.json_types import inferred
from recension.core.formats.text import time_type_of, wider_time, with_one_time_type

_LONG_INTEGER: Final = re.compile(rb"\d{17}")
_FIXED: Final = {KIND: pa.string(), COUNT: pa.int64(), BATCH: pa.int64(), SEQ: pa.int64()}


def look(blocks: Iterable[Block], times: TimeColumns, declared: pa.Schema | None) -> pa.Schema:
    """The columns of a file; with a declared payload its first block tells the rest."""
    found: dict[str, pa.DataType] = {}
    for block in blocks:
        for field in _fields(block, times, is_declared=declared is not None):
            found[field.name] = _merged(found.get(field.name, pa.null()), field, block, times)
        if declared is not None:
            found = {**_control(found, times), **{f.name: f.type for f in declared}}
            break
        if not found:
            raise FormatError("an object that names nothing", file=block.file, row=block.first_row)
    return with_one_time_type(found, times)


def _control(found: dict[str, pa.DataType], times: TimeColumns) -> dict[str, pa.DataType]:
    """The control columns of a file of which one block was seen: some may only show up later."""
    later = [times.ve, NEW_VE] if KIND in found else [times.ve] if times.start is None else []
    counted = {COUNT: pa.int64()} if KIND in found else {}
    return dict.fromkeys(later, pa.null()) | found | counted


def _fields(block: Block, times: TimeColumns, *, is_declared: bool) -> list[pa.Field]:
    """The columns of one block: all of them, or those that are not a declared payload's business."""

    def concerns(name: str) -> bool:
        return not is_declared or name.startswith("_") or name in times.all

    batch = json_parse.parse_fast(block, None, times)
    if batch is None or _may_have_rounded(batch, block):
        rows = json_parse.parse_rows(block)
        names = dict.fromkeys(name for row in rows for name in row)
        return [_slow_field(rows, name, block, times) for name in names if concerns(name)]
    return [pa.field(f.name, _kind(batch, f, block, times)) for f in batch.schema if concerns(f.name)]


def _may_have_rounded(batch: pa.RecordBatch, block: Block) -> bool:
    """An integer that does not fit int64 is quietly taken for a float by Arrow's parser."""
    has_float = any(pa.types.is_float64(kind) for kind in batch.schema.types)
    return has_float and _LONG_INTEGER.search(block.text) is not None


def _kind(batch: pa.RecordBatch, field: pa.Field, block: Block, times: TimeColumns) -> pa.DataType:
    if field.name in _FIXED:
        return _FIXED[field.name]
    if field.name not in times.all:
        return inferred(field.type)
    if pa.types.is_timestamp(field.type):
        # Arrow has dropped the zone; the text itself still shows it.
        first = batch.column(field.name).is_valid().index(True).as_py()
        return time_type_of(pa.array([json.loads(block.lines()[first])[field.name]]))
    is_spelled = pa.types.is_string(field.type)
    return time_type_of(batch.column(field.name)) if is_spelled else field.type


def _slow_field(rows: list[json_parse.Row], name: str, block: Block, times: TimeColumns) -> pa.Field:
    if name in times.all:
        return pa.field(name, time_type_of(json_parse.time_texts(rows, name, block)))
    if name in _FIXED:
        return pa.field(name, _FIXED[name])
    return pa.field(name, inferred(json_parse.guess_type(rows, name, block, pa.null())))


def _merged(known: pa.DataType, field: pa.Field, block: Block, times: TimeColumns) -> pa.DataType:
    if field.name in times.all:
        return wider_time(known, field.type)
    try:
        return json_parse.unified(known, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The same again a row at a time, to say which row it is.
        return json_parse.guess_type(json_parse.parse_rows(block), field.name, block, known)
