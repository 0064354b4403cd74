"""Finalize: retractions that came before what they retract are put in order, and the past is closed.

Assumes     inserts, retractions and external CTIs in any order; external CTIs do not overlap.
Guarantees  a valid stream. A CTI comes out where external CTIs prove the input complete, where the input has
            a CTI, and ``remember`` behind the latest time seen; elements before the last CTI, and
            retractions of what was left out, are left out and counted. With an endless memory the output
            history is the input's.
State       the events that may still be retracted, the retractions that wait, the elements not yet counted.
Cost        O(log n) an element, in a loop over elements.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.6, as corrected by rulings F1 to F10.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, INSERT, RETRACT, EventBatch, concat, empty
from recension.core.rowhash import row_hash
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import LATE, UNKNOWN
from recension.operators.base import Chunks, Operator, Output
from recension.operators.state.external_ctis import ExternalCtis
from recension.operators.state.retraction_chains import Broken, Key, RetractionChains


@dataclass(slots=True)
class _Answer:
    """Rows to put out: the row of the batch that has the payload (-1: none), and the control columns."""

    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def batch(self, of: EventBatch) -> EventBatch:
        if not self.rows:
            return empty(of.schema)
        columns = zip(*self.rows, strict=True)
        row, kind, vs, ve, new_ve = (np.array(column, np.int64) for column in columns)
        indices = pa.array(np.maximum(row, 0), mask=row < 0)
        payload = of.payload.take(indices) if of.payload.num_columns else of.payload
        return EventBatch(kind.astype(np.uint8), vs, ve, new_ve, np.zeros(len(row), np.int64), payload)


class Finalize(Operator):
    """Remembers for ``remember`` ticks of application time, FOREVER until a CTI; see `ExternalCtis`."""

    makes_ctis: ClassVar[bool] = True
    external_ctis: ClassVar[Literal["stop", "pass", "take"]] = "take"

    def __init__(self, schema: pa.Schema, remember: int, since: int = 0) -> None:
        super().__init__(schema)
        self._remember = remember
        self._chains = RetractionChains(schema)
        self._known = ExternalCtis(since)
        self._latest = BEGINNING
        self._counts: Counter[str] = Counter()
        self._rejected: list[tuple[str, EventBatch]] = []

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        answer = _Answer()
        hashes = row_hash(batch.payload, len(batch)).tolist()
        kinds, vss, ves, ends = (c.tolist() for c in (batch.kind, batch.vs, batch.ve, batch.new_ve))
        for row, (kind, vs, ve, vn) in enumerate(zip(kinds, vss, ves, ends, strict=True)):
            if kind == EXTERNAL_CTI:
                if vs >= self.out_cti:
                    self._known.add(vs, ve, int(batch.count[row]))
            elif kind == INSERT:
                self._insert(answer, batch, row, (hashes[row], vs), ve)
            else:
                self._retract(answer, batch, row, (hashes[row], vs), ve, vn)
            self._progress(answer)
        return answer.batch(batch)

    def _insert(self, answer: _Answer, batch: EventBatch, row: int, key: Key, ve: int) -> None:
        vs = key[1]
        if not self._is_in_time(vs, batch, row):
            return
        if (broken := self._chains.take(key, ve=ve)) is not None:
            ve = broken.vn
        if ve > vs:
            answer.rows.append((row, INSERT, vs, ve, FOREVER))
            self._chains.add(key, ve)

    def _retract(self, answer: _Answer, batch: EventBatch, row: int, key: Key, ve: int, vn: int) -> None:
        if not self._is_in_time(min(ve, vn), batch, row):
            return
        merged = Broken(ve, vn, batch.slice(row, row + 1))
        if not self._chains.is_live(key, ve) and (before := self._chains.take(key, vn=ve)) is not None:
            merged = Broken(before.ve, merged.vn, concat([before.elements, merged.elements]))
        if (after := self._chains.take(key, ve=vn)) is not None:
            merged = Broken(merged.ve, after.vn, concat([merged.elements, after.elements]))
        if merged.ve == merged.vn:
            return
        if not self._chains.is_live(key, merged.ve):
            self._wait(key, merged)
            return
        answer.rows.append((row, RETRACT, key[1], merged.ve, merged.vn))
        self._chains.remove(key, merged.ve)
        if merged.vn > key[1]:
            self._chains.add(key, merged.vn)
        else:
            self._drop_orphans()

    def _is_in_time(self, sync: int, batch: EventBatch, row: int) -> bool:
        """Count the element (F7: a late one too); a late one is left out."""
        self._known.count(sync)
        self._latest = max(self._latest, sync)
        if sync >= self.out_cti:
            return True
        self._reject(LATE, batch.slice(row, row + 1))
        return False

    def _wait(self, key: Key, broken: Broken) -> None:
        self._chains.break_off(key, Broken(broken.ve, broken.vn, _copied(broken.elements)))
        self._drop_orphans()

    def _reject(self, reason: str, elements: EventBatch) -> None:
        self._counts[reason] += len(elements)
        self._rejected.append((reason, _copied(elements)))

    def _drop_orphans(self, lost_before: int = BEGINNING) -> None:
        """Leave out retractions whose predecessor cannot come any more, or which may not change the past."""
        frontier = self._known.frontier

        def is_lost(key: Key, broken: Broken) -> bool:
            is_orphan = key[1] < frontier and not self._chains.has_live(key)
            return is_orphan or broken.ve < frontier or broken.sync < lost_before

        for broken in self._chains.take_all(is_lost):
            self._reject(UNKNOWN, broken.elements)

    def _progress(self, answer: _Answer) -> None:
        t = self._time()
        if t > self.out_cti:
            self.out_cti = t
            answer.rows.append((-1, CTI, t, FOREVER, FOREVER))

    def _time(self) -> int:
        """The CTI that can be put out now; forgets what it closes."""
        if self._known.settle():
            self._drop_orphans()
        if self._remember < FOREVER and self._latest - self._remember > self.out_cti:
            self._expire(self._latest - self._remember)
        frontier = self._known.frontier
        if frontier <= self.out_cti:
            return self.out_cti
        t = min([frontier, *(broken.sync for broken in self._chains.broken())])
        self._chains.forget_before(t)
        return t

    def _expire(self, t: int) -> None:
        """Forced ageing (F8)."""
        self._known.advance(t)
        self._drop_orphans(t)

    def on_cti(self, port: int, t: int) -> Output:
        self._known.advance(t)
        self._drop_orphans(t if t == FOREVER else BEGINNING)
        return self.promise(self._time())

    def counts(self) -> Counter[str]:
        return self._counts

    def rejected(self) -> list[tuple[str, EventBatch]]:
        return self._rejected

    def state_rows(self) -> int:
        return len(self._chains) + len(self._known)

    def state_chunks(self) -> Chunks:
        latest = {"latest": pa.table({"latest": pa.array([self._latest], pa.int64())})}
        return latest | self._chains.chunks() | self._known.chunks()

    def load_chunks(self, chunks: Chunks) -> None:
        self._latest = chunks["latest"]["latest"][0].as_py()
        self._chains.load(dict(chunks))
        self._known.load(dict(chunks))


def _copied(elements: EventBatch) -> EventBatch:
    """Rows of their own, so that they do not keep the batch they came in."""
    return elements.take(np.arange(len(elements)))
