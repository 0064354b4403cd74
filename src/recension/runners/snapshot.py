"""The tables of a snapshot: of which queries they are, and that they come back as they were.

A snapshot is taken back only by the same queries over the same sources: names and columns are compared, and
every step by its structure.

It may go through any file format that keeps Arrow types. A seal, which is one more table, says of every other
how many rows it has and their checksum. A snapshot that comes back damaged, incomplete or mixed up is refused
before anything of it is used. Types that Parquet reads back as others (seconds, date64) are stored as the
whole numbers they are, and one more table says what they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from recension.core.errors import RecensionError, first_line
from recension.core.rowhash import checksum
from recension.lowering import PhysicalPlan, Vertex
from recension.operators.base import Chunks
from recension.plan.schemas import describe_columns
from recension.plan.structure import describe_structure_difference

# Counted up whenever an operator keeps its state in another way: such snapshots are refused, not misread.
STATE_FORMAT: Final = 3
SEAL_FORMAT: Final = 1
PLAN: Final = "plan"
WORKERS: Final = "workers"
SESSION: Final = "session"
NOTES: Final = "notes"
SEAL: Final = "seal"
TYPES: Final = "types"
_SESSION_COLUMNS: Final = pa.schema([("kind", pa.string()), ("name", pa.string()), ("columns", pa.string())])
_SEAL_COLUMNS: Final = pa.schema(
    [("format", pa.int64()), ("chunk", pa.string()), ("rows", pa.int64()), ("checksum", pa.uint64())]
)


def session_table(plan: PhysicalPlan) -> pa.Table:
    """The identity of a session: a row for every query and source."""
    queries = [("query", name, describe_columns(node.schema)) for name, node in plan.queries.items()]
    sources = [("source", name, describe_columns(node.schema)) for name, node in plan.sources.items()]
    rows = [dict(zip(_SESSION_COLUMNS.names, row, strict=True)) for row in sorted([*queries, *sources])]
    return pa.Table.from_pylist(rows, _SESSION_COLUMNS)


def require_same_session(chunks: Chunks, plan: PhysicalPlan) -> None:
    """Refuse a snapshot of a session with other queries or sources."""
    if SESSION not in chunks:
        raise RecensionError("the snapshot is not one of a session")
    for theirs, ours in zip_longest(chunks[SESSION].to_pylist(), session_table(plan).to_pylist()):
        if theirs != ours:
            raise RecensionError(
                f"the snapshot is of another query: it has {_describe_line(theirs)}, this session "
                f"{_describe_line(ours)}"
            )


def _describe_line(row: dict[str, Any] | None) -> str:
    return "nothing more" if row is None else f"the {row['kind']} {row['name']!r} with {row['columns']}"


def plan_table(vertices: Sequence[Vertex], order: Sequence[int]) -> pa.Table:
    """The identity of a plan: every step that runs, and which steps it reads; names for people."""
    places = {number: place for place, number in enumerate(order)} | {-1: -1}
    running = [vertices[number] for number in order]
    columns = {
        "operator": pa.array([vertex.name for vertex in running], pa.string()),
        "structure": pa.array([vertex.structure for vertex in running], pa.string()),
        "inputs": pa.array([[places[i] for i in v.inputs] for v in running], pa.list_(pa.int64())),
        "format": pa.array([STATE_FORMAT] * len(running), pa.int64()),
    }
    return pa.table(columns)


def require_same_plan(chunks: Chunks, ours: pa.Table) -> None:
    """Refuse a snapshot of other steps; the first that differs is named."""
    if PLAN not in chunks:
        raise RecensionError("the snapshot does not say of which query it is")
    theirs = chunks[PLAN]
    _require_format(theirs["format"][0].as_py() if "format" in theirs.column_names else 0, STATE_FORMAT)
    for a, b in zip_longest(theirs.to_pylist(), ours.to_pylist()):
        if a is None or b is None or a["structure"] != b["structure"]:
            raise RecensionError(f"the snapshot is of another query, {_describe_difference(a, b)}")
        if a["inputs"] != b["inputs"]:
            raise RecensionError(
                f"the snapshot is of another query, in which {a['operator']!r} reads other steps"
            )


def require_workers(chunks: Chunks, workers: int) -> None:
    """Refuse the state of another number of workers: each has its own keys."""
    made = chunks[WORKERS][WORKERS][0].as_py() if WORKERS in chunks else 1
    if made != workers:
        raise RecensionError(
            f"the state in the snapshot is split among {made} workers, and here among {workers}: restore it "
            f"with workers={made}"
        )


def _describe_difference(theirs: dict[str, Any] | None, ours: dict[str, Any] | None) -> str:
    if theirs is None or ours is None:
        which = "which has" if ours is None else "which does not have"
        return f"{which} {(theirs or ours or {})['operator']!r}"
    if theirs["operator"] != ours["operator"]:
        return f"which has {theirs['operator']!r} where this one has {ours['operator']!r}"
    parts = (json.loads(plan["structure"]) for plan in (theirs, ours))
    return f"whose {ours['operator']!r} is another one: {describe_structure_difference(*parts)}"


def _require_format(found: int, known: int) -> None:
    if found != known:
        raise RecensionError(
            f"the snapshot has format {found}, this version reads {known}: run the query again from "
            "its inputs, or let the old version and this one run side by side and cut over with a merge"
        )


def seal_snapshot(chunks: Chunks) -> dict[str, pa.Table]:
    """The tables of a snapshot, ready to be stored, with their seal."""
    stored = _to_portable(chunks)
    return {**stored, SEAL: _seal(stored)}


def open_snapshot(chunks: Chunks) -> dict[str, pa.Table]:
    """The tables of a snapshot, if they are as they were when it was taken."""
    found = _require_tables(chunks)
    if SEAL not in found:
        raise RecensionError(
            "the snapshot has no seal: it is damaged, or of an earlier version; run the query again from its "
            "inputs"
        )
    seal = found.pop(SEAL)
    if seal.column_names != _SEAL_COLUMNS.names:
        raise _damage_error("its seal has other columns")
    if len(formats := set(seal["format"].to_pylist())) == 1:
        _require_format(formats.pop(), SEAL_FORMAT)
    own = _seal(found)
    _require_same_lines(_seal_lines(seal), _seal_lines(own))
    if _checksum(SEAL, seal) != _checksum(SEAL, own):
        raise _damage_error("its seal was changed after it was written")
    return _from_portable(found)


def _require_tables(chunks: Chunks) -> dict[str, pa.Table]:
    if not isinstance(chunks, Mapping):
        raise RecensionError(
            f"a snapshot is a mapping of names to Arrow tables, not a {type(chunks).__name__}"
        )
    for name, table in chunks.items():
        if not isinstance(name, str) or not isinstance(table, pa.Table):
            raise _damage_error(f"{name!r} is a {type(table).__name__}, not an Arrow table")
        try:
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
            raise _damage_error(f"the table {name!r} is not valid: {first_line(why)}") from None
    return dict(chunks)


def _seal(chunks: Chunks) -> pa.Table:
    names = sorted(chunks)
    rows = [chunks[name].num_rows for name in names]
    sums = [_checksum(name, chunks[name]) for name in names]
    table = pa.table([[SEAL_FORMAT] * len(names), names, rows, sums], schema=_SEAL_COLUMNS)
    # The last row is the seal's own: without it a table and its line could be lost together.
    own = pa.table([[SEAL_FORMAT], [SEAL], [table.num_rows], [checksum(table)]], schema=_SEAL_COLUMNS)
    return pa.concat_tables([table, own]).combine_chunks()


def _checksum(name: str, table: pa.Table) -> int:
    try:
        return checksum(table)
    except (RecensionError, pa.ArrowException) as why:
        raise _damage_error(f"the table {name!r} cannot be read: {first_line(why)}") from None


def _seal_lines(seal: pa.Table) -> dict[Any, tuple[Any, ...]]:
    columns = [seal[name].to_pylist() for name in ("chunk", "format", "rows", "checksum")]
    lines = list(zip(*columns, strict=True))
    if len({line[0] for line in lines}) < len(lines):
        raise _damage_error("its seal names a table twice")
    return {line[0]: line[1:] for line in lines}


def _require_same_lines(sealed: dict[Any, tuple[Any, ...]], found: dict[Any, tuple[Any, ...]]) -> None:
    if missing := [name for name in sealed if name not in found]:
        raise _damage_error(f"the table {missing[0]!r} is missing")
    if extra := [name for name in found if name not in sealed]:
        raise _damage_error(f"the table {extra[0]!r} does not belong to it")
    for name in found:
        if sealed[name] != found[name]:
            raise _damage_error(f"the table {name!r} was changed after it was written")


def _damage_error(what: str) -> RecensionError:
    return RecensionError(f"the snapshot is damaged: {what}; restore an earlier one")


def _to_portable(chunks: Chunks) -> dict[str, pa.Table]:
    """The tables in types that every file format keeps, and one with the schemas of those that changed."""
    schemas = {
        name: pa.schema([f.with_type(_portable_type(f.type)) for f in table.schema], table.schema.metadata)
        for name, table in chunks.items()
    }
    changed = [name for name, table in chunks.items() if schemas[name] != table.schema]
    found = {**chunks, **{name: chunks[name].cast(schemas[name]) for name in changed}}
    if changed:
        written = [chunks[name].schema.serialize().to_pybytes() for name in changed]
        found[TYPES] = pa.table({"chunk": changed, "schema": pa.array(written, pa.binary())})
    return found


def _from_portable(chunks: Chunks) -> dict[str, pa.Table]:
    found = dict(chunks)
    for line in found.pop(TYPES).to_pylist() if TYPES in found else []:
        schema = pa.ipc.read_schema(pa.py_buffer(line["schema"]))
        found[line["chunk"]] = found[line["chunk"]].cast(schema)
    return found


def _portable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "s"):
        return pa.int64()
    if pa.types.is_time32(kind) and kind.unit == "s":
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_portable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_portable_type(kind.key_type), _portable_type(kind.item_type), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_portable_item(kind), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_portable_item(kind))
    return pa.list_(_portable_item(kind)) if pa.types.is_list(kind) else kind


def _portable_item(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_portable_type(kind.value_type))
