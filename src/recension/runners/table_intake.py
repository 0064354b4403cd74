"""What comes in at a table: rows without times, a whole table at a push.

Read once, its rows are true for ever and it is closed. With ``refresh`` each push is a new version: rows
that are new in it begin, and rows that are gone end, at the CTI that the streams have reached. Between two
versions it is the bag of rows that counts, not their order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, RETRACT, EventBatch, concat, cti, inserts, null_payload
from recension.core.errors import RecensionError
from recension.core.netting import cancel
from recension.core.placement import Placement
from recension.core.rowhash import Hashes, combine, row_hash, rows_equal
from recension.core.ticks import FOREVER
from recension.operators.base import Chunks
from recension.plan.source import Table
from recension.runners.intake import Data, Intake, Push, ReadRows
from recension.runners.sub_streams import Arrival


class TableIntake(Intake):
    """Turns whole tables into valid elements."""

    def __init__(self, table: Table, **options: Any) -> None:
        super().__init__(table, **options)
        self._table = table
        # Of a table that may be read again: the rows that hold now, with their starts; none before the first.
        self._rows: EventBatch | None = None

    @property
    def may_follow(self) -> bool:
        """Does its CTI follow the streams that it is joined with? Only once it is there."""
        return self._rows is not None

    def _judge(self, data: Data, arrival: Arrival) -> Push:
        name, is_once = self._table.name, self._table.refresh is None
        if self.is_closed and is_once:
            advice = f"rc.table({name!r}, ..., refresh='10m') takes new versions"
            raise RecensionError(f"{name}: the table is there already; {advice}")
        if self.is_closed:
            raise RecensionError(f"{name}: the streams that the table is joined with have ended")
        if isinstance(data, list | tuple | dict):
            raise RecensionError(f"{name}: a table comes as a whole, as a table or a frame, not as elements")
        return super()._judge(data, arrival)

    def _make_push(self, read: ReadRows, placement: Placement | None, arrival: Arrival) -> Push:
        batch = read.batch
        if not (len(batch) and bool((batch.kind == CTI).all())):
            is_once = self._table.refresh is None
            batch = concat([batch, cti(FOREVER, batch.schema)]) if is_once else self._changes(batch)
        return super()._make_push(replace(read, batch=batch), placement, arrival)

    def _changes(self, version: EventBatch) -> EventBatch:
        """From the rows that hold now to those of the next version."""
        if self._rows is None:
            return version
        before, after = (row_hash(rows.payload, len(rows)) for rows in (self._rows, version))
        is_gone, kept, same = cancel(before, after)
        _require_equal(self._rows.take(kept), version.take(same))
        is_new = np.ones(len(version), np.bool_)
        is_new[same] = False
        t, gone, fresh = self._checker.frontier, self._rows.filter(is_gone), version.filter(is_new)
        ends = replace(gone, kind=np.full(len(gone), RETRACT, np.uint8), new_ve=np.full(len(gone), t))
        return concat([ends, replace(fresh, vs=np.full(len(fresh), t))])

    def take(self, push: Push) -> EventBatch:
        """The same as of any source; the rows are remembered if there may be another version."""
        batch = super().take(push)
        if self._table.refresh is not None and not push.is_only_ctis:
            self._rows = self._apply(push.batch)
        return batch

    def _apply(self, changes: EventBatch) -> EventBatch:
        """The rows that hold after these changes."""
        fresh, gone = (changes.filter(is_so) for is_so in (changes.kind != RETRACT, changes.kind == RETRACT))
        if self._rows is None:
            return fresh
        stays, _, _ = cancel(_identities(self._rows), _identities(gone))
        return concat([self._rows.filter(stays), fresh])

    def snapshot(self) -> dict[str, pa.Table]:
        """What the checks remember, and the rows that hold now."""
        if self._rows is None:
            return super().snapshot()
        payload = pa.Table.from_batches([self._rows.payload])
        return {**super().snapshot(), "starts": pa.table({"vs": self._rows.vs}), "rows": payload}

    def restore(self, chunks: Chunks) -> None:
        """Remember what the snapshot remembers."""
        super().restore(chunks)
        self._rows = None
        if "starts" in chunks:
            starts = chunks["starts"]["vs"].to_numpy()
            batches = chunks["rows"].combine_chunks().to_batches()
            payload = batches[0] if batches else null_payload(0, self._table.columns)
            self._rows = inserts(starts, np.full(len(starts), FOREVER), payload)


def _identities(rows: EventBatch) -> Hashes:
    return combine(row_hash(rows.payload, len(rows)), rows.vs)


def _require_equal(old: EventBatch, new: EventBatch) -> None:
    if not bool(rows_equal(old.payload, new.payload, len(old)).all()):
        raise RecensionError("two different rows share a 64-bit hash; the answer would be wrong")
