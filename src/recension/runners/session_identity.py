"""Of which session a snapshot is: its queries and sources, with their columns. The plan is compared apart."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.lowering import PhysicalPlan
from recension.operators.base import Chunks
from recension.plan.schemas import describe_columns

CHUNK: Final = "session"
_COLUMNS: Final = pa.schema([("kind", pa.string()), ("name", pa.string()), ("columns", pa.string())])


def identity_of(plan: PhysicalPlan) -> pa.Table:
    """A row for every query and source."""
    queries = [("query", name, describe_columns(node.schema)) for name, node in plan.queries.items()]
    sources = [("source", name, describe_columns(node.schema)) for name, node in plan.sources.items()]
    rows = [dict(zip(_COLUMNS.names, row, strict=True)) for row in sorted([*queries, *sources])]
    return pa.Table.from_pylist(rows, _COLUMNS)


def require_same_session(chunks: Chunks, plan: PhysicalPlan) -> None:
    """Refuse a snapshot of a session with other queries or sources."""
    if CHUNK not in chunks:
        raise RecensionError("the snapshot is not one of a session")
    theirs, ours = chunks[CHUNK].to_pylist(), identity_of(plan).to_pylist()
    for one, other in zip_longest(theirs, ours):
        if one != other:
            raise RecensionError(
                f"the snapshot is of another query: it has {_words(one)}, this session {_words(other)}"
            )


def _words(row: dict[str, Any] | None) -> str:
    return "nothing more" if row is None else f"the {row['kind']} {row['name']!r} with {row['columns']}"
