"""Chunks: named Arrow tables, the form in which state is stored.

A long table is cut into chunks that can be stored one by one. Parts of an operator keep their chunks under
a prefix. The chunks of many groups are stacked into a few tables, with a list of what belongs to whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from recension.operators.base import Chunks

_BYTES: Final = 2**21
_LIST: Final = "chunks"


def add_prefix(prefix: str, chunks: Chunks) -> dict[str, pa.Table]:
    """Chunks under the name of the part that they belong to."""
    return {f"{prefix}/{name}": table for name, table in chunks.items()}


def take_prefix(prefix: str, chunks: Chunks) -> dict[str, pa.Table]:
    """The chunks of a part, under the names that it gave them."""
    start = f"{prefix}/"
    return {name.removeprefix(start): table for name, table in chunks.items() if name.startswith(start)}


def cut_table(name: str, table: pa.Table) -> dict[str, pa.Table]:
    """The table as chunks ``name.0``, ``name.1``, ... of about 2 MB."""
    if not table.num_columns:  # files do not keep rows of nothing
        return {f"{name}.0": table.schema.empty_table()}
    rows = max(1, table.num_rows * _BYTES // max(1, table.nbytes))
    starts = range(0, max(1, table.num_rows), rows)
    return {f"{name}.{i}": table.slice(start, rows) for i, start in enumerate(starts)}


def unite_table(name: str, chunks: Mapping[str, pa.Table]) -> pa.Table:
    """The table that was cut into these chunks."""
    parts: list[pa.Table] = []
    while (part := f"{name}.{len(parts)}") in chunks:
        parts.append(chunks[part])
    return pa.concat_tables(parts)


def stack_groups(groups: Iterable[Chunks]) -> dict[str, pa.Table]:
    """One table for each name and type of chunk, and the list."""
    stacks: dict[str, list[pa.Table]] = {}
    stack_of: dict[tuple[str, pa.Schema], str] = {}
    rows: list[tuple[int, str, str, int]] = []
    for number, chunks in enumerate(groups):
        for name, table in chunks.items():
            stack = stack_of.setdefault((name, table.schema), f"{len(stack_of)}")
            stacks.setdefault(stack, []).append(table)
            rows.append((number, name, stack, table.num_rows))
    tables = {stack: pa.concat_tables(parts).combine_chunks() for stack, parts in stacks.items()}
    return tables | {_LIST: _list_stacks(rows)}


def _list_stacks(rows: list[tuple[int, str, str, int]]) -> pa.Table:
    types = (pa.int64(), pa.string(), pa.string(), pa.int64())
    columns = zip(*rows, strict=True) if rows else ([] for _ in types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["group", "name", "stack", "rows"])


def unstack_groups(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """The chunks of each group, in their order."""
    listed = tables[_LIST]
    used = dict.fromkeys(tables, 0)
    own: dict[str, pa.Table] = {}
    last = -1
    for group, name, stack, rows in zip(*(column.to_pylist() for column in listed.columns), strict=True):
        if group != last and own:
            yield own
            own = {}
        own[name] = tables[stack].slice(used[stack], rows)
        used[stack] += rows
        last = group
    if own:
        yield own
