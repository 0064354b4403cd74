"""Events with their payloads in the order of their starts, changed and taken out a few at a time.

A `BlockTable` sorted by (start, identity) and a `RowStore` for the payloads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.netting import surviving
from recension.core.ticks import FOREVER, Ticks
from recension.operators.state.block_table import BlockTable, Columns, Extract
from recension.operators.state.net_changes import NetChanges, identity
from recension.operators.state.row_store import RowStore

_SLACK = 1024


class EventsByStart:
    """A bag of events; in a table's rows ``group`` is the start and ``time`` the identity."""

    def __init__(self, schema: pa.Schema) -> None:
        self._table = BlockTable({"end": np.int64, "row": np.int64})
        self._store = RowStore(schema)

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._table.nbytes() + self._store.nbytes()

    def apply(self, change: NetChanges, payload: pa.RecordBatch) -> None:
        """Take over the net changes of a batch; ``payload`` has the rows of the batch that they name."""
        gone, come = np.flatnonzero(change.old != change.vs), np.flatnonzero(change.new > change.vs)
        removed, added = _named(change, gone, change.old), _named(change, come, change.new)
        added["row"] = self._store.append(take_rows(payload, change.row[come]), len(come))
        named = _sorted({name: np.concatenate([removed[name], added[name]]) for name in ("group", "time")})
        extract = self._table.extract(named["group"], named["time"], named["time"])
        held = {name: column[~extract.follower] for name, column in extract.columns.items()}
        stays, _, _ = surviving(held["time"].view(np.uint64), removed["time"].view(np.uint64))
        merged = {name: np.concatenate([column[stays], added[name]]) for name, column in held.items()}
        self._table.replace(extract.blocks, _sorted(merged))
        self._tidy()

    def until_open(self, t: int) -> Extract:
        """The first blocks: all events that start no later than the first that does not end before ``t``."""
        rows = 1
        while True:
            head = self._table.head(rows)
            start, rows = head.columns["group"], len(head.follower)
            at = (
                int(np.argmax(is_open)) if bool((is_open := is_open_at(head.columns["end"], t)).any()) else -1
            )
            if not bool(head.follower.any()) or (at >= 0 and start[-1] > start[at]):
                return head
            rows *= 2

    def payload(self, rows: Index) -> pa.RecordBatch:
        """The payloads of rows of the table."""
        return self._store.take(rows)

    def keep(self, head: Extract, kept: Mask) -> None:
        """Only these events of the first blocks stay."""
        columns = {name: column[kept] for name, column in head.columns.items()}
        self._table.replace(head.blocks, columns)
        self._tidy()

    def _tidy(self) -> None:
        """Drop payload rows when most of them belong to no event."""
        if len(self._store) > 2 * len(self) + _SLACK:
            table = self._table.to_arrow()
            self._store.retain(table["row"].to_numpy())
            at = table.schema.get_field_index("row")
            self._table.load(table.set_column(at, "row", pa.array(np.arange(len(self)))))

    def chunks(self, name: str) -> dict[str, pa.Table]:
        """The state as tables whose names begin with ``name``."""
        return {f"{name}/events": self._table.to_arrow(), **self._store.chunks(name)}

    def load(self, name: str, chunks: Mapping[str, pa.Table]) -> None:
        """Become what gave these chunks under this name."""
        self._table.load(chunks[f"{name}/events"])
        self._store.load(name, chunks)


def is_open_at(end: Ticks, t: int) -> Mask:
    """Which ends may still move after a CTI; at the end of time none."""
    return (end >= t) & (t < FOREVER)


def _named(change: NetChanges, at: Index, end: Ticks) -> Columns:
    tag = identity(change.hash[at], change.vs[at], end[at])
    return {"group": change.vs[at], "time": tag.view(np.int64), "end": end[at]}


def _sorted(columns: Columns) -> Columns:
    order = np.lexsort((columns["time"], columns["group"]))
    return {name: column[order] for name, column in columns.items()}
