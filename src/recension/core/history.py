"""Histories: what a stream means (CEDR's canonical history table, LMerge's TDB).

A history is a bag of ``(vs, ve, payload)``. Two streams are equivalent when their histories are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask, payload_of
from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.ticks import Ticks, from_arrow, to_arrow


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Events with their final lifetimes, in no particular order."""

    vs: Ticks
    ve: Ticks
    payload: pa.Table

    def __len__(self) -> int:
        return len(self.vs)

    @property
    def schema(self) -> pa.Schema:
        """The payload's columns."""
        return self.payload.schema

    @staticmethod
    def from_events(events: Sequence[Event], schema: pa.Schema | None = None) -> History:
        """A history written as Python values."""
        if schema is None:
            names = list(dict.fromkeys(name for e in events for name in e.payload))
            schema = pa.schema([(n, pa.array([e.payload.get(n) for e in events]).type) for n in names])
        payload = payload_of([e.payload for e in events], schema)
        vs, ve = (np.array([getattr(e, end) for e in events], np.int64) for end in ("vs", "ve"))
        return History(vs, ve, pa.Table.from_batches([payload]))

    @staticmethod
    def from_arrow(table: pa.Table) -> History:
        """A history from a table with ``_vs``, ``_ve`` and payload columns."""
        if missing := {"_vs", "_ve"} - set(table.column_names):
            raise SchemaError(
                f"a history needs the columns _vs and _ve; missing: {', '.join(sorted(missing))}"
            )
        forever = pa.scalar(2**63 - 1, pa.int64())
        vs, ve = (
            from_arrow(table[name].combine_chunks(), name).fill_null(forever).to_numpy(zero_copy_only=False)
            for name in ("_vs", "_ve")
        )
        return History(vs, ve, table.drop_columns(["_vs", "_ve"]))

    def to_arrow(self, time_type: pa.DataType | None = None) -> pa.Table:
        """A table with ``_vs``, ``_ve`` (null = forever) and the payload."""
        unit = time_type or pa.int64()
        times = [
            to_arrow(self.vs, unit, null_forever=False),
            to_arrow(self.ve, unit, null_forever=True),
        ]
        return pa.table([*times, *self.payload.columns], names=["_vs", "_ve", *self.payload.column_names])

    def to_events(self) -> list[Event]:
        """The events as Python values, by lifetime and then as they stand."""
        payloads = self.payload.to_pylist() if self.payload.num_columns else [{}] * len(self)
        order = np.lexsort((self.ve, self.vs)).tolist()
        return [Event(payloads[i], int(self.vs[i]), int(self.ve[i])) for i in order]

    def filter(self, keep: Mask) -> History:
        """The events where ``keep`` is true."""
        payload = self.payload.filter(pa.array(keep)) if self.payload.num_columns else self.payload
        return History(self.vs[keep], self.ve[keep], payload)

    def before(self, t: int) -> History:
        """What is true before ``t``: events that start before it, cut off at it."""
        started = self.filter(self.vs < t)
        return History(started.vs, np.minimum(started.ve, t), started.payload)

    def identity(self) -> Hashes:
        """One hash per event over lifetime and payload: equal events have equal identities."""
        return combine(combine(table_hash(self.payload, len(self)), self.vs), self.ve)


def table_hash(payload: pa.Table, size: int) -> Hashes:
    """Row hashes of a table, a chunk at a time."""
    if not payload.num_columns:
        return row_hash(pa.record_batch([]), size)
    hashes = [row_hash(chunk) for chunk in payload.to_batches()]
    return np.concatenate([np.zeros(0, np.uint64), *hashes])


def concat_histories(parts: Iterable[History]) -> History:
    """The bag union of histories of one schema."""
    parts = list(parts)
    return History(
        np.concatenate([p.vs for p in parts]),
        np.concatenate([p.ve for p in parts]),
        pa.concat_tables([p.payload for p in parts]),
    )
