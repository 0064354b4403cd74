"""Which columns a JSON Lines file has, and how Arrow's types are expressed in JSON.

JSON knows only texts, numbers, truths, lists and objects. A column is read as its *carrier*, the type JSON
can express, and then converted to the type wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import FormatError
from recension.core.formats.columns import (
    COUNT,
    FIXED_TYPES,
    KIND,
    MOST_COLUMNS,
    NEW_VE,
    TimeColumns,
    check_names,
    is_text,
    parts_of,
    unify_types,
)
from recension.core.formats.json_blocks import (
    MOST_CELLS,
    Block,
    Row,
    guess_column_type,
    is_json_decimal,
    parse_with_arrow,
    parse_with_python,
    time_texts,
)
from recension.core.formats.text import (
    from_text,
    has_timestamp,
    is_scalar,
    long_integer,
    time_type_of,
    unify_time_columns,
    wider_time,
)

FieldPath: TypeAlias = tuple[str, ...]

# A number, not a part of one or of a text, that may be more than a float can tell apart: 2**53 and above.
_LONG_INTEGER: Final = re.compile(rb"[:\[,\s]-?(?:9[0-9]{15}|[0-9]{17,})\s*[,\]}]")

# A row that names 20 of 9,000 columns still has a letter of text for every 30 of its cells.
_CELLS_PER_LETTER: Final = 32
_FEW_CELLS: Final = 1 << 22
_HEAD: Final = 1 << 16


def infer_schema(blocks: Iterable[Block], times: TimeColumns, declared: pa.Schema | None) -> pa.Schema:
    """The columns of a file; with a declared payload its first block tells the rest."""
    found: dict[str, pa.DataType] = {}
    long = _LongIntegers()
    rows, letters = 0, 0
    block: Block | None = None
    for block, batch in _parse_blocks(blocks if declared is None else islice(blocks, 1), times):
        for field in _block_fields(block, batch, times, long, is_declared=declared is not None):
            found[field.name] = _merge_types(found.get(field.name, pa.null()), field, block, times)
        check_names(list(found), block.file)
        rows, letters = rows + block.size, letters + len(block.text)
        _check_cells(found, rows, letters, block.file)
    if declared is not None and block is not None:
        found = {**_add_control_columns(found, times), **{f.name: f.type for f in declared}}
    if block is not None and not found:
        raise FormatError("an object that names nothing", file=block.file, row=1)
    if block is not None:
        long.refuse_among_floats(found, block.file)
    return unify_time_columns(found, times)


def _check_cells(found: dict[str, pa.DataType], rows: int, letters: int, file: str) -> None:
    """Refuse too many columns, or columns so sparse that the cells are far more than the text.

    Names inside of objects are columns too: every row has a cell for each.
    """
    total = sum(map(_columns_in, found.values()))
    if total > MOST_COLUMNS:
        raise FormatError(
            f"{total:,} columns, those inside of objects counted; at most {MOST_COLUMNS:,} can be read",
            file=file,
        )
    if total * rows > max(_FEW_CELLS, _CELLS_PER_LETTER * letters):
        reason = f"{total:,} different column names in the first {rows:,} rows, and few in each"
        raise FormatError(reason, file=file)


def _columns_in(kind: pa.DataType) -> int:
    return max(1, sum(_columns_in(kind.field(i).type) for i in range(kind.num_fields)))


def _parse_blocks(
    blocks: Iterable[Block], times: TimeColumns
) -> Iterator[tuple[Block, pa.RecordBatch | None]]:
    """The blocks, parsed where Arrow can.

    A block that has the columns of those before it is parsed as a whole. Another may have any number of
    names, each of which makes a cell in every row: it is parsed in parts.
    """
    known: pa.Schema | None = None
    for block in _with_short_head(blocks):
        is_narrow = known is not None and len(known) * block.size <= MOST_CELLS
        whole = parse_with_arrow(block, known, times, "error") if is_narrow else None
        if whole is not None:
            yield block, whole
            continue
        for part in block.parts():
            batch = parse_with_arrow(part, None, times)
            known = None if batch is None else _extend_schema(known, batch.schema)
            yield part, batch


def _with_short_head(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks, but the first lines by themselves: they most often have all columns of the others."""
    for number, block in enumerate(blocks):
        yield from block.cut_after(_HEAD) if number == 0 else [block]


def _extend_schema(known: pa.Schema | None, found: pa.Schema) -> pa.Schema:
    """The columns of the last part, and of those before it what that part has not: names, and any values."""
    types = {field.name: field.type for field in known or ()}
    types |= {f.name: f.type for f in found if f.name not in types or not pa.types.is_null(f.type)}
    return pa.schema(list(types.items()))


def _add_control_columns(found: dict[str, pa.DataType], times: TimeColumns) -> dict[str, pa.DataType]:
    """The control columns of a file of which one block was seen: some may only show up later."""
    if times.is_timeless:
        return found
    later = [times.ve, NEW_VE] if KIND in found else [times.ve] if times.start is None else []
    counted = {COUNT: pa.int64()} if KIND in found else {}
    return dict.fromkeys(later, pa.null()) | found | counted


def _block_fields(
    block: Block,
    batch: pa.RecordBatch | None,
    times: TimeColumns,
    long: _LongIntegers,
    *,
    is_declared: bool,
) -> list[pa.Field]:
    """The columns of one block: all of them, or the control columns if the payload is declared."""

    def is_asked(name: str) -> bool:
        return not is_declared or name.startswith("_") or name in times.all

    if batch is None or _may_have_rounded(batch, block):
        rows = parse_with_python(block)
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if is_asked(name)]
        return [_field_from_rows(rows, name, block, times, long) for name in names[: MOST_COLUMNS + 1]]
    return [
        pa.field(f.name, _column_type(batch, f, block, times, long)) for f in batch.schema if is_asked(f.name)
    ]


def _may_have_rounded(batch: pa.RecordBatch, block: Block) -> bool:
    """Integers among floats, and those that do not fit int64, are quietly rounded by Arrow's parser."""
    types = [part for kind in batch.schema.types for part in parts_of(kind)]
    return any(map(pa.types.is_floating, types)) and _LONG_INTEGER.search(block.text) is not None


def _column_type(
    batch: pa.RecordBatch, field: pa.Field, block: Block, times: TimeColumns, long: _LongIntegers
) -> pa.DataType:
    if field.name in FIXED_TYPES:
        return FIXED_TYPES[field.name]
    if field.name not in times.all:
        long.note(field.name, batch.column(field.name))
        return parsed_type(field.type)
    if batch.column(field.name).null_count == len(batch):
        return pa.null()
    if pa.types.is_timestamp(field.type):
        # Arrow has dropped the zone; the text itself still shows it.
        first = batch.column(field.name).is_valid().index(True).as_py()
        return time_type_of(pa.array([json.loads(block.lines()[first])[field.name]]))
    if pa.types.is_string(field.type):
        return time_type_of(batch.column(field.name))
    has_moment = pc.any(has_timestamp(batch.column(field.name))).as_py()
    return field.type if has_moment else pa.null()


def _field_from_rows(
    rows: list[Row], name: str, block: Block, times: TimeColumns, long: _LongIntegers
) -> pa.Field:
    if name in times.all:
        return pa.field(name, time_type_of(time_texts(rows, name, block)))
    if name in FIXED_TYPES:
        return pa.field(name, FIXED_TYPES[name])
    kind = guess_column_type(rows, name, block, pa.null())
    long.note(name, pa.array([row.get(name) for row in rows], kind))
    return pa.field(name, parsed_type(kind))


def _merge_types(known: pa.DataType, field: pa.Field, block: Block, times: TimeColumns) -> pa.DataType:
    if field.name in times.all:
        return wider_time(known, field.type)
    try:
        return unify_types(known, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The same again a row at a time, to say which row it is.
        return guess_column_type(parse_with_python(block), field.name, block, known)


class _LongIntegers:
    """Integers that a float would round, in columns whose later blocks may turn out to be floats.

    Remembers in which column they were seen, and where inside of it.
    """

    def __init__(self) -> None:
        self._seen: dict[FieldPath, int] = {}

    def note(self, name: str, column: pa.Array) -> None:
        """Look at a column of integers, or of what has some inside."""
        for path, integers in _integers(column, (name,)):
            number = long_integer(integers)
            if number is not None:
                self._seen.setdefault(path, number)

    def refuse_among_floats(self, types: Mapping[str, pa.DataType], file: str) -> None:
        """Refuse those for which the whole file has a float in the end."""
        for path, number in self._seen.items():
            if pa.types.is_floating(_type_at(types[path[0]], path[1:])):
                raise FormatError(
                    f"column {path[0]}: {number} among numbers with fractions would be rounded; "
                    "declare the column's type",
                    file=file,
                )


def _integers(column: pa.Array, path: FieldPath) -> Iterator[tuple[FieldPath, pa.Array]]:
    if pa.types.is_integer(column.type):
        yield path, column
    elif is_list(column.type):
        yield from _integers(items_of(column), (*path, ""))
    elif pa.types.is_struct(column.type):
        parts = fields_of(column, column.type)
        for field, part in zip(column.type, parts, strict=True):
            yield from _integers(part, (*path, field.name))


def _type_at(kind: pa.DataType, path: FieldPath) -> pa.DataType:
    for name in path:
        kind = kind.value_type if is_list(kind) else kind.field(name).type
    return kind


def has_json_form(kind: pa.DataType) -> bool:
    """Can values of the type be written as JSON and read back?"""
    if is_list(kind):
        return has_json_form(kind.value_type)
    if pa.types.is_struct(kind):
        return all(has_json_form(f.type) for f in kind)
    return is_scalar(kind)


def carrier(kind: pa.DataType) -> pa.DataType:
    """The type that JSON values of this type have when they are parsed."""
    return _map_leaves(kind, _leaf_carrier)


def _leaf_carrier(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if is_json_decimal(kind):
        return kind  # read from texts, and digit by digit from numbers
    is_spelled = pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or is_text(kind)
    return pa.string() if is_spelled else kind


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """A type that Arrow guessed, without timestamps: a text that looks like one is still a text."""
    return _map_leaves(kind, lambda leaf: pa.string() if pa.types.is_timestamp(leaf) else leaf)


def _map_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with another one for each that is neither a list nor a struct."""
    if is_list(kind):
        return pa.list_(_map_leaves(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _map_leaves(f.type, change)) for f in kind])
    return change(kind)


def from_carrier(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type wanted."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if is_list(kind):
        return regroup_items(column, from_carrier(items_of(column), kind.value_type)).cast(kind)
    if pa.types.is_struct(kind):
        parts = [from_carrier(p, f.type) for p, f in zip(fields_of(column, kind), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if is_text(column.type):
        return from_text(column, kind)
    return column.cast(kind)


def is_list(kind: pa.DataType) -> bool:
    """Any of Arrow's lists, except maps."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def regroup_items(lists: pa.Array, items: pa.Array) -> pa.Array:
    """A list column with the lengths and nulls of ``lists`` over new ``items``, one for each old one."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    # A null offset stands for a null list; the last offset closes the last list.
    nulls = np.append(lists.is_null().to_numpy(zero_copy_only=False), False)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=nulls), items)


def items_of(lists: pa.Array) -> pa.Array:
    """The items of all lists that are not null, one after another."""
    return pc.list_flatten(lists)


def fields_of(structs: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """The fields that ``kind`` names, in its order; those of a null struct, and absent ones, are null."""
    parts = dict(zip((f.name for f in structs.type), structs.flatten(), strict=True))
    return [parts.get(field.name, pa.nulls(len(structs))) for field in kind]
