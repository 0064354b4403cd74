"""Which columns a JSON Lines file has, and of which types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import FormatError
from recension.core.formats import json_parse
from recension.core.formats.columns import (
    BATCH,
    COUNT,
    KIND,
    MOST_COLUMNS,
    NEW_VE,
    SEQ,
    TimeColumns,
    check_names,
)
from recension.core.formats.json_blocks import MOST_CELLS, Block
from recension.core.formats.json_types import inferred
from recension.core.formats.long_integers import LongIntegers, has_float
from recension.core.formats.text import has_timestamp, time_type_of, wider_time, with_one_time_type

# A number, not a part of one or of a text, that may be more than a float can tell apart: 2**53 and above.
_LONG_INTEGER: Final = re.compile(rb"[:\[,\s]-?(?:9[0-9]{15}|[0-9]{17,})\s*[,\]}]")
_FIXED: Final = {KIND: pa.string(), COUNT: pa.int64(), BATCH: pa.int64(), SEQ: pa.int64()}


def look(blocks: Iterable[Block], times: TimeColumns, declared: pa.Schema | None) -> pa.Schema:
    """The columns of a file; with a declared payload its first block tells the rest."""
    found: dict[str, pa.DataType] = {}
    long = LongIntegers()
    block: Block | None = None
    for block, batch in _parsed(blocks if declared is None else islice(blocks, 1), times):
        for field in _fields(block, batch, times, long, is_declared=declared is not None):
            found[field.name] = _merged(found.get(field.name, pa.null()), field, block, times)
        check_names(list(found), block.file)
        _check_inner_names(found, block.file)
    if declared is not None and block is not None:
        found = {**_control(found, times), **{f.name: f.type for f in declared}}
    if block is not None and not found:
        raise FormatError("an object that names nothing", file=block.file, row=1)
    if block is not None:
        long.refuse_among_floats(found, block.file)
    return with_one_time_type(found, times)


def _check_inner_names(found: dict[str, pa.DataType], file: str) -> None:
    """Names inside of objects are columns too: every row has a cell for each."""
    total = sum(map(_columns_in, found.values()))
    if total > MOST_COLUMNS:
        raise FormatError(
            f"{total:,} columns, those inside of objects counted; at most {MOST_COLUMNS:,} can be read",
            file=file,
        )


def _columns_in(kind: pa.DataType) -> int:
    return max(1, sum(_columns_in(kind.field(i).type) for i in range(kind.num_fields)))


def _parsed(blocks: Iterable[Block], times: TimeColumns) -> Iterator[tuple[Block, pa.RecordBatch | None]]:
    """The blocks, parsed where Arrow can.

    A block that has the columns of those before it is parsed as a whole. Another may have any number of
    names, each of which makes a cell in every row: it is parsed in parts.
    """
    known: pa.Schema | None = None
    for block in blocks:
        is_narrow = known is not None and len(known) * block.size <= MOST_CELLS
        whole = json_parse.parse_fast(block, known, times, "error") if is_narrow else None
        if whole is not None:
            yield block, whole
            continue
        for part in block.parts():
            batch = json_parse.parse_fast(part, None, times)
            known = None if batch is None else batch.schema
            yield part, batch


def _control(found: dict[str, pa.DataType], times: TimeColumns) -> dict[str, pa.DataType]:
    """The control columns of a file of which one block was seen: some may only show up later."""
    later = [times.ve, NEW_VE] if KIND in found else [times.ve] if times.start is None else []
    counted = {COUNT: pa.int64()} if KIND in found else {}
    return dict.fromkeys(later, pa.null()) | found | counted


def _fields(
    block: Block,
    batch: pa.RecordBatch | None,
    times: TimeColumns,
    long: LongIntegers,
    *,
    is_declared: bool,
) -> list[pa.Field]:
    """The columns of one block: all of them, or those that are not a declared payload's business."""

    def concerns(name: str) -> bool:
        return not is_declared or name.startswith("_") or name in times.all

    if batch is None or _may_have_rounded(batch, block):
        rows = json_parse.parse_rows(block)
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if concerns(name)]
        return [_slow_field(rows, name, block, times, long) for name in names[: MOST_COLUMNS + 1]]
    return [pa.field(f.name, _kind(batch, f, block, times, long)) for f in batch.schema if concerns(f.name)]


def _may_have_rounded(batch: pa.RecordBatch, block: Block) -> bool:
    """Integers among floats, and those that do not fit int64, are quietly rounded by Arrow's parser."""
    return any(map(has_float, batch.schema.types)) and _LONG_INTEGER.search(block.text) is not None


def _kind(
    batch: pa.RecordBatch, field: pa.Field, block: Block, times: TimeColumns, long: LongIntegers
) -> pa.DataType:
    if field.name in _FIXED:
        return _FIXED[field.name]
    if field.name not in times.all:
        long.note(field.name, batch.column(field.name))
        return inferred(field.type)
    if batch.column(field.name).null_count == len(batch):
        return pa.null()
    if pa.types.is_timestamp(field.type):
        # Arrow has dropped the zone; the text itself still shows it.
        first = batch.column(field.name).is_valid().index(True).as_py()
        return time_type_of(pa.array([json.loads(block.lines()[first])[field.name]]))
    if pa.types.is_string(field.type):
        return time_type_of(batch.column(field.name))
    is_kind_shown = pc.any(has_timestamp(batch.column(field.name))).as_py()
    return field.type if is_kind_shown else pa.null()


def _slow_field(
    rows: list[json_parse.Row], name: str, block: Block, times: TimeColumns, long: LongIntegers
) -> pa.Field:
    if name in times.all:
        return pa.field(name, time_type_of(json_parse.time_texts(rows, name, block)))
    if name in _FIXED:
        return pa.field(name, _FIXED[name])
    kind = json_parse.guess_type(rows, name, block, pa.null())
    long.note(name, pa.array([row.get(name) for row in rows], kind))
    return pa.field(name, inferred(kind))


def _merged(known: pa.DataType, field: pa.Field, block: Block, times: TimeColumns) -> pa.DataType:
    if field.name in times.all:
        return wider_time(known, field.type)
    try:
        return json_parse.unified(known, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The same again a row at a time, to say which row it is.
        return json_parse.guess_type(json_parse.parse_rows(block), field.name, block, known)
