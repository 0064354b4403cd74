"""The events an operator must remember, with their payloads: found by overlap or by identity.

An `IntervalIndex` over the lifetimes and a `RowStore` for the payloads; each payload is stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, take_rows
from recension.core.change_log import Change
from recension.core.rowhash import Hashes
from recension.core.ticks import FOREVER, Ticks
from recension.operators.changes import NetChanges, identity
from recension.operators.state.interval_index import IntervalIndex
from recension.operators.state.row_store import RowStore


class EventStore(IntervalIndex):
    """A bag of events; positions and rows are good until the next `insert`, `add` or `expire`."""

    def __init__(self, schema: pa.Schema, extras: Sequence[str] = ()) -> None:
        super().__init__(extras)
        # Payloads go with their intervals, but later: when depends on how those lie in memory.
        self._store = RowStore(schema, notes_gone=False)

    def insert(
        self, group: Hashes, vs: Ticks, ve: Ticks, tag: Hashes, payload: pa.RecordBatch, **extras: Index
    ) -> None:
        """Add events with new payloads; columns that are not in the schema are dropped."""
        rows = self._store.append(payload.select(self._store.schema.names), len(vs))
        self.add(group, vs, ve, tag, row=rows, **extras)

    def apply(self, change: NetChanges, group: Hashes, payload: pa.RecordBatch) -> None:
        """Take over the net changes of a batch.

        ``group`` has one entry per change, ``payload`` the rows of the batch that the changes name.
        """
        known = np.flatnonzero(change.old != change.vs) if not change.is_insert_only else ()
        if len(known):
            found = self.find(identity(change.hash[known], change.vs[known], change.old[known]))
            self.remove(found[found >= 0])
        is_open = change.new > np.maximum(change.vs, self._expired_until)
        if change.is_insert_only and bool(is_open.all()):
            tag = identity(change.hash, change.vs, change.new)
            self.insert(group, change.vs, change.new, tag, payload)
            return
        stays = np.flatnonzero(is_open)
        vs, ve = change.vs[stays], change.new[stays]
        tag = identity(change.hash[stays], vs, ve)
        self.insert(group[stays], vs, ve, tag, take_rows(payload, change.row[stays]))

    def payload(self, at: Index) -> pa.RecordBatch:
        """The payloads of the events at these positions."""
        return self._store.take_at(self.rows, at)

    def _let_go(self, rows: Index) -> None:
        super()._let_go(rows)
        self._store.drop(self._store.find_there(rows))

    def expire(self, t: int) -> None:
        super().expire(t)
        if t == FOREVER:
            self._store.clear()

    def nbytes(self) -> int:
        return super().nbytes() + self._store.nbytes()

    def parts(self, name: str) -> dict[str, Any]:
        return super().parts(name) | {f"{name}/rows": self._store}

    def restore(self, name: str, chunks: Mapping[str, Any]) -> None:
        rows = chunks[f"{name}/rows"]
        self._store.restore(rows)
        super().restore(name, chunks)
        if isinstance(rows, Change) and self._log is not None:
            # Nobody else will let go of rows whose intervals had gone when they were stored. But rows may
            # come without intervals that are here already: each store is logged and cleaned on its own.
            numbers = rows.rows[0].to_numpy()
            self._let_go(numbers[~self._log.holds(numbers)])
