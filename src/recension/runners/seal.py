"""A snapshot's seal: one more table, which says of every other how many rows it has and what is in them.

A snapshot may go through any file format that keeps Arrow types. What comes back damaged, incomplete or
mixed up is refused in one sentence before anything of it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from recension.core.checksum import checksum
from recension.core.errors import RecensionError
from recension.runners.portable_tables import from_portable, to_portable

SEAL: Final = "seal"
FORMAT: Final = 1
_COLUMNS: Final = pa.schema(
    [("format", pa.int64()), ("chunk", pa.string()), ("rows", pa.int64()), ("checksum", pa.uint64())]
)


def sealed(chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a snapshot with their seal."""
    stored = to_portable(chunks)
    return {**stored, SEAL: _seal(stored)}


def opened(chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a snapshot, if they are as they were when it was taken."""
    found = _tables(chunks)
    if SEAL not in found:
        raise RecensionError(
            "the snapshot has no seal: it is damaged, or of an earlier version; run the query again from its "
            "inputs"
        )
    seal = found.pop(SEAL)
    _require_format(seal)
    own = _seal(found)
    _require_same(_rows(seal), _rows(own))
    if _checksum(SEAL, seal) != _checksum(SEAL, own):
        raise _damaged("its seal is not what it was")
    return from_portable(found)


def _tables(chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    if not isinstance(chunks, Mapping):
        raise RecensionError(
            f"a snapshot is a mapping of names to Arrow tables, not a {type(chunks).__name__}"
        )
    for name, table in chunks.items():
        if not isinstance(name, str) or not isinstance(table, pa.Table):
            raise _damaged(f"{name!r} is a {type(table).__name__}, not an Arrow table")
        try:
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
            raise _damaged(f"the table {name!r} is not valid: {str(why).splitlines()[0]}") from None
    return dict(chunks)


def _seal(chunks: Mapping[str, pa.Table]) -> pa.Table:
    names = sorted(chunks)
    rows = [chunks[name].num_rows for name in names]
    sums = [_checksum(name, chunks[name]) for name in names]
    table = pa.table([[FORMAT] * len(names), names, rows, sums], schema=_COLUMNS)
    # The last row is the seal's own: without it a table and its line could be lost together.
    own = pa.table([[FORMAT], [SEAL], [table.num_rows], [checksum(table)]], schema=_COLUMNS)
    return pa.concat_tables([table, own]).combine_chunks()


def _checksum(name: str, table: pa.Table) -> int:
    try:
        return checksum(table)
    except (RecensionError, pa.ArrowException) as why:
        raise _damaged(f"the table {name!r} cannot be read: {str(why).splitlines()[0]}") from None


def _require_format(seal: pa.Table) -> None:
    if seal.column_names != _COLUMNS.names:
        raise _damaged("its seal has other columns")
    formats = set(seal["format"].to_pylist())
    if len(formats) == 1 and formats != {FORMAT}:
        raise RecensionError(
            f"the snapshot has format {formats.pop()}, this version reads {FORMAT}: run the query again from "
            "its inputs, or let the old version and this one run side by side and cut over with a merge"
        )


def _rows(seal: pa.Table) -> dict[Any, tuple[Any, ...]]:
    columns = [seal[name].to_pylist() for name in ("chunk", "format", "rows", "checksum")]
    lines = list(zip(*columns, strict=True))
    if len({line[0] for line in lines}) < len(lines):
        raise _damaged("its seal names a table twice")
    return {line[0]: line[1:] for line in lines}


def _require_same(said: dict[Any, tuple[Any, ...]], found: dict[Any, tuple[Any, ...]]) -> None:
    if missing := [name for name in said if name not in found]:
        raise _damaged(f"the table {missing[0]!r} is missing")
    if extra := [name for name in found if name not in said]:
        raise _damaged(f"the table {extra[0]!r} does not belong to it")
    for name in found:
        if said[name] != found[name]:
            raise _damaged(f"the table {name!r} is not what it was")


def _damaged(what: str) -> RecensionError:
    return RecensionError(f"the snapshot is damaged: {what}; restore an earlier one")
