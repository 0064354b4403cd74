"""Stream classes: which of R0..R4 a finite stream satisfies, and whether it is ordered, perfect, closed.

R0  only inserts and CTIs, ``vs`` strictly increasing.
R1  only inserts and CTIs, ``vs`` never falling, events of equal ``vs`` in (payload, ve) order: the one
    order that a single stream shows to be deterministic (ruling 31).
R2  as R1 with ties in any order, but ``(vs, payload)`` is a key of every prefix's history.
R3  anything, but ``(vs, payload)`` is a key of every prefix's history.
R4  anything.

Source      LMerge technical report, §III-C; Operator Algorithm Design, definitions 3–5; ruling A5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EXTERNAL_CTI, INSERT, RETRACT, EventBatch, Index, concat
from recension.core.event_bag import EventBag, bag_changes
from recension.core.netting import running_totals
from recension.core.rowhash import columns_equal, combine, row_hash
from recension.core.ticks import BEGINNING, FOREVER


@dataclass(slots=True)
class StreamReport:
    """What a finite stream is like."""

    inserts: int = 0
    retractions: int = 0
    removals: int = 0
    ctis: int = 0
    external_ctis: int = 0
    last_cti: int = BEGINNING
    is_ordered: bool = True
    is_strictly_increasing: bool = True
    has_sorted_ties: bool = True
    has_key: bool = True
    latest_end: int = BEGINNING
    ends_with_cti: bool = False

    @property
    def is_insert_only(self) -> bool:
        """No retraction at all."""
        return self.retractions == 0

    @property
    def is_perfect(self) -> bool:
        """Ordered and without retractions (definition 4)."""
        return self.is_ordered and self.is_insert_only

    @property
    def is_closed(self) -> bool:
        """The last element is a CTI at or after the end of every event (definition 5, ruling A5)."""
        return self.ends_with_cti and self.last_cti >= self.latest_end

    @property
    def classes(self) -> list[str]:
        """Every class the stream satisfies, the most restricted first."""
        in_order = self.is_insert_only and self.is_ordered
        holds = {
            "R0": in_order and self.is_strictly_increasing,
            "R1": in_order and self.has_sorted_ties,
            "R2": in_order and self.has_key,
            "R3": self.has_key,
            "R4": True,
        }
        return [name for name, is_so in holds.items() if is_so]


def classify(batches: Iterable[EventBatch]) -> StreamReport:
    """The report on a finite stream; the stream is taken to be valid."""
    classifier = Classifier()
    for batch in batches:
        classifier.add(batch)
    return classifier.report()


class Classifier:
    """Builds a report batch by batch."""

    def __init__(self) -> None:
        self._report = StreamReport()
        self._keys_present = EventBag()
        self._live = EventBag()
        self._largest_sync = BEGINNING
        self._previous: EventBatch | None = None

    def report(self) -> StreamReport:
        """The report on everything taken in so far."""
        return replace(self._report, latest_end=self._live.latest_end())

    def add(self, batch: EventBatch) -> None:
        """Take in the next elements of the stream."""
        if not len(batch):
            return
        self._count(batch)
        data = batch.filter(batch.is_data())
        if len(data):
            self._live.apply(bag_changes(data, np.ones(len(data), np.bool_)))
            self._check_order(data)
            self._check_ties(data)
            self._check_keys(data)
            self._previous = data.slice(len(data) - 1, len(data))

    def _count(self, batch: EventBatch) -> None:
        report, retract = self._report, batch.kind == RETRACT
        report.inserts += int((batch.kind == INSERT).sum())
        report.retractions += int(retract.sum())
        report.removals += int((retract & (batch.new_ve == batch.vs)).sum())
        report.ctis += int((batch.kind == CTI).sum())
        report.external_ctis += int((batch.kind == EXTERNAL_CTI).sum())
        report.last_cti = int(batch.vs[batch.kind == CTI].max(initial=report.last_cti))
        report.ends_with_cti = bool(batch.kind[-1] == CTI)

    def _check_order(self, data: EventBatch) -> None:
        """Sync times must not fall. A CTI changes nothing: one that lags disturbs no order."""
        chain = np.append(self._largest_sync, data.sync())
        self._report.is_ordered &= bool((chain[1:] >= chain[:-1]).all())
        self._largest_sync = int(chain.max())

    def _check_ties(self, data: EventBatch) -> None:
        """Compare each event with the one before it, the last of the previous batch included."""
        if self._previous is not None:
            earlier, later = _join_neighbours(self._previous, data)
        else:
            earlier, later = data.slice(0, len(data) - 1), data.slice(1, len(data))
        tied = earlier.vs == later.vs
        self._report.is_strictly_increasing &= bool((earlier.vs < later.vs).all())
        if self._report.has_sorted_ties and bool(tied.any()):
            rows = np.flatnonzero(tied)
            self._report.has_sorted_ties = _is_not_descending(earlier.take(rows), later.take(rows))

    def _check_keys(self, data: EventBatch) -> None:
        """``(vs, payload)`` must never be held by two events at once."""
        if not self._report.has_key:
            return
        keys = combine(row_hash(data.payload, len(data)), data.vs)
        removal = (data.kind == RETRACT) & (data.new_ve == data.vs)
        steps = np.where(data.kind == INSERT, 1, np.where(removal, -1, 0))
        order = np.argsort(keys, kind="stable")
        level = running_totals(keys[order], steps[order], self._keys_present.count)
        self._report.has_key = bool((level <= 1).all())
        self._keys_present.change(keys, steps, np.full(len(keys), FOREVER))


def _join_neighbours(last: EventBatch, data: EventBatch) -> tuple[EventBatch, EventBatch]:
    both = concat([last, data])
    return both.slice(0, len(data)), both.slice(1, len(both))


def _is_not_descending(earlier: EventBatch, later: EventBatch) -> bool:
    """Row by row: is (payload, ve) of the earlier event at most that of the later one? Nulls come first."""
    undecided: Index = np.arange(len(earlier))
    for a, b in zip(earlier.payload.columns, later.payload.columns, strict=True):
        left, right = a.take(pa.array(undecided)), b.take(pa.array(undecided))
        if _any_greater(left, right):
            return False
        undecided = undecided[columns_equal(left, right)]
    return bool((earlier.ve[undecided] <= later.ve[undecided]).all())


def _any_greater(left: pa.Array, right: pa.Array) -> bool:
    if isinstance(left, pa.ExtensionArray):
        return _any_greater(left.storage, right.storage)
    if pa.types.is_null(left.type):
        return False
    if pa.types.is_nested(left.type) or pa.types.is_interval(left.type):
        # These have no order: only equal ones count as being in order.
        return not bool(columns_equal(left, right).all())
    greater = pc.or_kleene(_greater(left, right), pc.and_(pc.is_valid(left), pc.is_null(right)))
    return bool(pc.any(pc.fill_null(greater, False)).as_py())


def _greater(left: pa.Array, right: pa.Array) -> pa.Array:
    """NaN is greater than every number, as in the order of ties."""
    if not pa.types.is_floating(left.type):
        return pc.greater(left, right)
    left, right = left.cast(pa.float64()), right.cast(pa.float64())
    return pc.or_(pc.greater(left, right), pc.and_not(pc.is_nan(left), pc.is_nan(right)))
