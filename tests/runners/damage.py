"""Snapshots damaged in every way that a table can be: cells, rows, columns, types, names, whole tables."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Snapshot: TypeAlias = dict[str, Any]


def damaged(chunks: Snapshot, dice: random.Random) -> Snapshot:
    """A copy with one thing changed."""
    while True:
        found = dice.choice(DAMAGES)(dict(chunks), dice)
        if found is not None and not _same(found, chunks):
            return found


def _same(one: Snapshot, other: Snapshot) -> bool:
    """Is nothing changed? What cannot even be written out is."""
    try:
        return one.keys() == other.keys() and all(_text(one[n]) == _text(other[n]) for n in one)
    except (ValueError, OverflowError):
        return False


def _text(table: Any) -> str:
    return (
        f"{table.schema.remove_metadata()} {table.to_pylist()!r}"
        if isinstance(table, pa.Table)
        else repr(table)
    )


def _some(chunks: Snapshot, dice: random.Random) -> str:
    return dice.choice(sorted(chunks))


def _lose_table(chunks: Snapshot, dice: random.Random) -> Snapshot:
    del chunks[_some(chunks, dice)]
    return chunks


def _lose_all(chunks: Snapshot, dice: random.Random) -> Snapshot:
    return {}


def _rename(chunks: Snapshot, dice: random.Random) -> Snapshot:
    name = _some(chunks, dice)
    other = dice.choice([name + "x", name.upper(), f"operators/99/{name}", "operators/x/y", "", name[1:]])
    chunks[other] = chunks.pop(name)
    return chunks


def _swap(chunks: Snapshot, dice: random.Random) -> Snapshot:
    one, other = _some(chunks, dice), _some(chunks, dice)
    chunks[one], chunks[other] = chunks[other], chunks[one]
    return chunks


def _add(chunks: Snapshot, dice: random.Random) -> Snapshot:
    chunks[dice.choice(["extra", "operators/7/rows", "sources/t/live"])] = chunks[_some(chunks, dice)]
    return chunks


def _no_table(chunks: Snapshot, dice: random.Random) -> Snapshot:
    name = _some(chunks, dice)
    chunks[name] = dice.choice([None, 3, "x", [], chunks[name].to_pydict()])
    return chunks


def _lose_rows(chunks: Snapshot, dice: random.Random) -> Snapshot:
    name = _some(chunks, dice)
    size = chunks[name].num_rows
    chunks[name] = chunks[name].take(
        pa.array(sorted(dice.sample(range(size), dice.randint(0, size))), pa.int64())
    )
    return chunks


def _repeat_row(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    if not (size := chunks[name].num_rows):
        return None
    chunks[name] = pa.concat_tables([chunks[name], chunks[name].slice(dice.randrange(size), 1)])
    return chunks


def _shuffle_rows(chunks: Snapshot, dice: random.Random) -> Snapshot:
    name = _some(chunks, dice)
    order = list(range(chunks[name].num_rows))
    dice.shuffle(order)
    chunks[name] = chunks[name].take(pa.array(order, pa.int64()))
    return chunks


def _change_cell(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    table = chunks[name]
    if not table.num_rows or not table.num_columns:
        return None
    at, column = dice.randrange(table.num_rows), dice.randrange(table.num_columns)
    field, values = table.schema.field(column), table.column(column).to_pylist()
    values[at] = _another(values[at], field.type, dice)
    try:
        chunks[name] = table.set_column(column, field, pa.array(values, field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return chunks


def _another(value: Any, kind: pa.DataType, dice: random.Random) -> Any:
    if value is not None and dice.random() < 0.2:
        return None
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_integer(kind):
        return dice.choice([(value or 0) ^ (1 << dice.randrange(62)), 0, 1, 2**63 - 1, 7])
    if pa.types.is_floating(kind):
        return dice.choice([-(value or 0.0), float("nan"), 1.5, (value or 0.0) + 1e-9])
    if pa.types.is_string(kind):
        return dice.choice([(value or "") + "x", "", "é"])
    return None


def _change_type(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    table = chunks[name]
    if not table.num_columns:
        return None
    column = dice.randrange(table.num_columns)
    kinds = [
        pa.int32(),
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.uint64(),
        pa.large_string(),
        pa.timestamp("us"),
    ]
    field = pa.field(table.schema.field(column).name, dice.choice(kinds))
    try:
        chunks[name] = table.set_column(column, field, table.column(column).cast(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return chunks


def _lose_column(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    if not chunks[name].num_columns:
        return None
    chunks[name] = chunks[name].remove_column(dice.randrange(chunks[name].num_columns))
    return chunks


def _rename_column(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    names = list(chunks[name].column_names)
    if not names:
        return None
    names[dice.randrange(len(names))] = dice.choice(["x", "frontier", names[0]])
    chunks[name] = chunks[name].rename_columns(names)
    return chunks


def _swap_columns(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    name = _some(chunks, dice)
    names = list(chunks[name].column_names)
    if len(set(names)) < 2:
        return None
    dice.shuffle(names)
    chunks[name] = chunks[name].select(names)
    return chunks


def _flip_bit(chunks: Snapshot, dice: random.Random) -> Snapshot | None:
    """One bit of a buffer, as on a bad disk: offsets and texts may no longer be valid."""
    name = _some(chunks, dice)
    table = chunks[name].combine_chunks()
    arrays = [(at, column.chunk(0)) for at, column in enumerate(table.columns) if column.num_chunks]
    if not arrays:
        return None
    column, array = dice.choice(arrays)
    if pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type) or array.offset or not len(array):
        return None
    buffers = array.buffers()
    if not (there := [i for i, buffer in enumerate(buffers) if buffer is not None and buffer.size]):
        return None
    # The padding of a buffer holds nothing: its first byte always does.
    which = dice.choice(there)
    content = np.frombuffer(buffers[which], np.uint8).copy()
    content[0] ^= 1
    buffers[which] = pa.py_buffer(content.tobytes())
    broken = pa.Array.from_buffers(array.type, len(array), buffers)
    chunks[name] = table.set_column(column, table.schema.field(column), broken)
    return chunks


DAMAGES: list[Callable[[Snapshot, random.Random], Snapshot | None]] = [
    _lose_table,
    _lose_all,
    _rename,
    _swap,
    _add,
    _no_table,
    _lose_rows,
    _repeat_row,
    _shuffle_rows,
    *[_change_cell] * 4,
    _change_type,
    _lose_column,
    _rename_column,
    _swap_columns,
    _flip_bit,
]
