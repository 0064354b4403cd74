"""The snapshots of many groups as few tables: chunks of one name lie one below the other.

A list says which chunks each group has and how many rows of each are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from recension.operators.base import Chunks

_LIST = "chunks"


def stacked(groups: Iterable[Chunks]) -> dict[str, pa.Table]:
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
    return tables | {_LIST: _listed(rows)}


def _listed(rows: list[tuple[int, str, str, int]]) -> pa.Table:
    types = (pa.int64(), pa.string(), pa.string(), pa.int64())
    columns = zip(*rows, strict=True) if rows else ([] for _ in types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["group", "name", "stack", "rows"])


def unstacked(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
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
