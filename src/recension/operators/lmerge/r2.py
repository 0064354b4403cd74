"""R2: the merge of insert-only streams in order of start, with ties in any order.

Assumes     every input is insert-only and in order of start, and (vs, payload) is a key of it.
Guarantees  of the events of the furthest start each payload once, of later ones all. An element that an
            input lacks is shown if another sends it before any goes beyond its start.
State       hashes of the payloads shown at the furthest start, none once a stable has passed it.
Cost        O(n) a batch; only payloads that share their start with others, or have the furthest, are hashed.
Source      Physically Independent Stream Merging, §IV-C; rulings 5, 13, 16–18.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.rowhash import Hashes, combine, row_hash
from recension.operators.base import Chunks, Output
from recension.operators.lmerge.in_order import InOrderMerge
from recension.operators.lmerge.key_table import KeyTable, find_repeated, first_of_each
from recension.operators.lmerge.merge import CaseMismatchError, mismatch_error


class R2(InOrderMerge):
    """Payloads tell what is new within a start."""

    case = "R2"
    repeats = True

    def __init__(self, schema: pa.Schema, ports: int, *, remembers: bool = False) -> None:
        super().__init__(schema, ports, remembers=remembers)
        self._seen = KeyTable({})
        self._tied: tuple[EventBatch, Index, Hashes] | None = None
        # What each input has sent of its last start: it may repeat that, but not with another end.
        self._own: dict[int, KeyTable] = {}

    def check(self, port: int, batch: EventBatch) -> None:
        super().check(port, batch)
        rows, keys = self._keys(batch)
        again = find_repeated(keys)
        own = self._own.setdefault(port, _own_table())
        found = own.find(keys)
        known = (found >= 0) & (batch.vs[rows] == self._last[port])
        if self._remembers:
            self._refuse_repeats(batch, rows, known, again)
        else:
            self._refuse_clashes(batch, rows, keys, again)
            clash = rows[known][own["ve"][found[known]] != batch.ve[rows[known]]]
            if len(clash):
                raise self._clash(batch, int(clash.min()))
        if int(batch.vs[-1]) > self._last[port]:
            own.clear()
        last = batch.vs[rows] == batch.vs[-1]
        own.find_or_add(keys[last], ve=batch.ve[rows[last]])

    def _refuse_repeats(self, batch: EventBatch, rows: Index, known: Mask, again: Index) -> None:
        """Where a more general case may take over, a repeat may be a second event."""
        if len(again) or bool(known.any()):
            row = int(rows[known].min()) if bool(known.any()) else int(rows[again].max())
            raise mismatch_error(batch, row, self.case, "the input has this start and payload already")

    def _refuse_clashes(self, batch: EventBatch, rows: Index, keys: Hashes, again: Index) -> None:
        order = again[np.argsort(keys[again], kind="stable")]
        same = keys[order][1:] == keys[order][:-1]
        other = same & (batch.ve[rows[order]][1:] != batch.ve[rows[order]][:-1])
        if bool(other.any()):
            raise self._clash(batch, int(rows[order[1:][other]].min()))

    def _clash(self, batch: EventBatch, row: int) -> CaseMismatchError:
        return mismatch_error(batch, row, self.case, "two events with one start and payload end differently")

    def _keys(self, batch: EventBatch) -> tuple[Index, Hashes]:
        """The rows that share their start with a neighbour, or have the furthest, first or last start."""
        if self._tied is not None and self._tied[0] is batch:
            return self._tied[1], self._tied[2]
        same = batch.vs[1:] == batch.vs[:-1]
        tied = np.append(False, same) | np.append(same, False)
        tied |= batch.vs == self.max_vs
        tied |= batch.vs == batch.vs[0]
        tied[-1] = True
        rows = np.flatnonzero(tied)
        keys = combine(row_hash(take_rows(batch.payload, rows), len(rows)), batch.vs[rows])
        self._tied = (batch, rows, keys)
        return rows, keys

    def select_new(self, port: int, batch: EventBatch) -> EventBatch:
        rows, keys = self._keys(batch)
        self._tied = None
        floor = max(self.max_vs, self.out_cti)
        first = int(np.searchsorted(batch.vs, floor))
        old = np.zeros(len(rows), np.bool_)
        if self.out_cti <= self.max_vs:
            old = (batch.vs[rows] == self.max_vs) & (self._seen.find(keys) >= 0)
        repeats = np.ones(len(rows), np.bool_)
        repeats[first_of_each(keys)] = False
        dropped = rows[(old | repeats) & (rows >= first)]
        self._remember(batch, rows, keys)
        if not len(dropped):
            return batch.slice(first, len(batch))
        keep = np.ones(len(batch), np.bool_)
        keep[:first] = False
        keep[dropped] = False
        return batch.filter(keep)

    def _remember(self, batch: EventBatch, rows: Index, keys: Hashes) -> None:
        last = int(batch.vs[-1])
        if last > self.max_vs:
            self._seen.clear()
            self.max_vs = last
        if last == self.max_vs and self.out_cti <= last:
            self._seen.find_or_add(keys[batch.vs[rows] == last])

    def on_detach(self, port: int) -> Output:
        self._own.pop(port, None)
        return super().on_detach(port)

    def _forget(self, t: int) -> None:
        super()._forget(t)
        for port, own in self._own.items():
            if t > self._last[port]:
                own.clear()
        if t > self.max_vs:
            self._seen.clear()

    def state_rows(self) -> int:
        return super().state_rows() + len(self._seen)

    def state_bytes(self) -> int:
        return super().state_bytes() + self._seen.nbytes()

    def snapshot_state(self) -> Chunks:
        chunks = {**super().snapshot_state(), "seen": self._seen.snapshot()}
        chunks |= {f"own/{port}": own.snapshot() for port, own in self._own.items()}
        ports = pa.table({"port": pa.array(list(self._own), pa.int64())})
        return {**chunks, "own": ports}

    def restore_state(self, chunks: Chunks) -> None:
        super().restore_state(chunks)
        self._seen.restore(chunks["seen"])
        self._own = {port: _own_table() for port in chunks["own"]["port"].to_pylist()}
        for port, own in self._own.items():
            own.restore(chunks[f"own/{port}"])


def _own_table() -> KeyTable:
    return KeyTable({"ve": (np.int64, 0)})
