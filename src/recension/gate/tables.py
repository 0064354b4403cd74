"""The gate of a table: rows without times, a whole table at a push.

Read once, its rows are true for ever and it is closed. With ``refresh`` each push is a new version: rows
that are new in it begin, and rows that are gone end, at the CTI that the streams have reached. Between two
versions it is the bag of rows that counts, not their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, RETRACT, EventBatch, concat, cti, inserts, null_payload
from recension.core.errors import RecensionError
from recension.core.netting import cancel
from recension.core.rowhash import Hashes, combine, row_hash, rows_equal
from recension.core.rows import Rows
from recension.core.ticks import FOREVER
from recension.gate.decode import Data
from recension.gate.gate import NO_PARTITION, Admission, Gate
from recension.gate.step import Arrival, Step, Verdict
from recension.gate.valid import Validity
from recension.plan.source import Table


class TableGate(Gate):
    """Turns whole tables into valid elements: with one more step."""

    def __init__(self, table: Table, **options: Any) -> None:
        super().__init__(table, **options)
        self._table = table
        self._versions = Versions(table, self._validity)
        self._steps.insert(1, self._versions)

    @property
    def may_follow(self) -> bool:
        """Does its CTI follow the streams that it is joined with? Only once it is there."""
        return self._versions.is_there

    def judge(self, data: Data, arrival: Arrival = NO_PARTITION) -> Admission:
        """The same as of any source; a table that is read once comes once, and as a whole."""
        name, is_once = self._table.name, self._table.refresh is None
        if self.is_closed and is_once:
            advice = f"rc.table({name!r}, ..., refresh='10m') takes new versions"
            raise RecensionError(f"{name}: the table is there already; {advice}")
        if self.is_closed:
            raise RecensionError(f"{name}: the streams that the table is joined with have ended")
        if isinstance(data, list | tuple | dict):
            raise RecensionError(f"{name}: a table comes as a whole, as a table or a frame, not as elements")
        return super().judge(data, arrival)


class Versions(Step):
    """The step *versions* of a table: from the rows that hold now to those of the next version."""

    def __init__(self, table: Table, validity: Validity) -> None:
        super().__init__()
        self._table, self._validity = table, validity
        # Of a table that may be read again: the rows that hold now, with their starts; none before the first.
        self._rows: EventBatch | None = None

    @property
    def is_there(self) -> bool:
        """Is there a version that others may follow?"""
        return self._rows is not None

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """What changes; read once, the rows and their end."""
        batch = rows.batch
        if len(batch) and bool((batch.kind == CTI).all()):
            return rows, None
        if self._table.refresh is None:
            return replace(rows, batch=concat([batch, cti(FOREVER, batch.schema)])), None
        changes = self._changes(batch)
        return replace(rows, batch=changes), partial(self._take_over, changes)

    def _changes(self, version: EventBatch) -> EventBatch:
        if self._rows is None:
            return version
        before, after = (row_hash(rows.payload, len(rows)) for rows in (self._rows, version))
        is_gone, kept, same = cancel(before, after)
        _require_equal(self._rows.take(kept), version.take(same))
        is_new = np.ones(len(version), np.bool_)
        is_new[same] = False
        t, gone, fresh = self._validity.cti, self._rows.filter(is_gone), version.filter(is_new)
        ends = replace(gone, kind=np.full(len(gone), RETRACT, np.uint8), new_ve=np.full(len(gone), t))
        return concat([ends, replace(fresh, vs=np.full(len(fresh), t))])

    def _take_over(self, changes: EventBatch, batch: EventBatch) -> EventBatch:
        self._rows = self._apply(changes)
        return batch

    def _apply(self, changes: EventBatch) -> EventBatch:
        """The rows that hold after these changes."""
        fresh, gone = (changes.filter(is_so) for is_so in (changes.kind != RETRACT, changes.kind == RETRACT))
        if self._rows is None:
            return fresh
        stays, _, _ = cancel(_identities(self._rows), _identities(gone))
        return concat([self._rows.filter(stays), fresh])

    def snapshot(self) -> dict[str, pa.Table]:
        """The rows that hold now."""
        if self._rows is None:
            return {}
        payload = pa.Table.from_batches([self._rows.payload])
        return {"starts": pa.table({"vs": self._rows.vs}), "rows": payload}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
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
