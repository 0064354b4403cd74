"""Bags of events known by hash: which events are there, and which retractions name one that is not.

Such a retraction is an *orphan*. Within a batch the changes of one event are added up in order of arrival:
each announcement counts +1, each retraction -1, and the total may not go below zero. A retraction that
would is an orphan and is not carried out. Since it then announces nothing either, its own successor may
become an orphan, so this is repeated until nothing changes. Leaving out orphans only ever makes more of
them, so the least fixpoint is the sequential answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from recension.core.batch import RETRACT, EventBatch, Index, Mask, concat, new_end
from recension.core.change_log import Change
from recension.core.netting import group_sizes, maybe_in, order_of_hashes, running_totals
from recension.core.records import record
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.sorted_runs import Column, Columns, SortedRuns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks

# So much waits: unhashed events take more memory than hashes, and many small batches more than their rows.
_MOST_WAITING: Final = 256
_MOST_BYTES: Final = 1 << 25
# To measure a batch takes longer than to keep it: those of a few rows are measured a few at a time.
_FEW: Final = 64
_MEASURED_TOGETHER: Final = 16


class EventCounts(Protocol):
    """Says how often events are there."""

    def count(self, keys: Hashes) -> Index:
        """How often each of the keys is present now."""


class CountedBag(SortedRuns):
    """A bag logged by its keys; a key that is not there any more stays on record until it expires."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell rows apart."""
        return self._keys

    def clear(self) -> None:
        super().clear()
        # What was added or taken away since the last checkpoint; None: everything.
        self._changed: list[Columns] | None = None

    def push(self, *columns: Column, is_run: bool = False) -> None:
        super().push(*columns, is_run=is_run)
        if self._changed is not None:
            self._changed.append(dict(zip(self._types, columns, strict=True)))

    def restore(self, table: pa.Table | Change, expired_before: int = BEGINNING) -> None:
        """Become what `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            super().restore(table, expired_before)
            return
        if table.is_whole:
            is_open = table.rows["end"].to_numpy() >= expired_before
            super().restore(table.rows.filter(pa.array(is_open)), expired_before)
        else:
            none = pa.array(np.zeros(len(table.gone), np.int64))
            gone = table.gone.append_column("count", none).select(list(self._types))
            rows = pa.concat_tables([table.rows, gone])
            columns = {name: rows[name].to_numpy() for name in self._types}
            more = columns["count"] - self.total(*(columns[name] for name in self._keys))
            columns["count"] = more
            super().push(*take_columns(columns, more != 0).values())
            self.forget_before(expired_before)
        self._changed = []

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        changed, self._changed = self._changed, []
        if changed is None:
            rows = pa.table(self._merge_parts([run.part() for run in self]))
            return Change(rows, rows.drop_columns("count").slice(0, 0), is_whole=True)
        columns = self._join_parts(changed)
        order = np.lexsort([columns[name] for name in reversed(self._keys)])
        is_other = [columns[name][order[1:]] != columns[name][order[:-1]] for name in self._keys]
        first = np.append(True, np.any(is_other, axis=0))[: len(order)]
        columns = take_columns(columns, order[first])
        columns["count"] = self.total(*(columns[name] for name in self._keys))
        there = columns["count"] != 0
        gone = pa.table(take_columns(columns, ~there)).drop_columns("count")
        return Change(pa.table(take_columns(columns, there)), gone)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        total = self._count(change.rows), self._count(change.gone)
        is_open = [t["end"].to_numpy() >= self.expired_before for t in (change.rows, change.gone)]
        return is_open[0] & (total[0] == change.rows["count"].to_numpy()), is_open[1] & (total[1] == 0)

    def _count(self, rows: pa.Table) -> Index:
        return self.total(*(rows[name].to_numpy() for name in self._keys))


class EventBag(CountedBag):
    """How often each event is present; events that ended before the last CTI are forgotten.

    Inserts may wait here as they came. They are hashed when somebody asks for events: most streams have no
    retraction that would, and their events are forgotten unhashed.
    """

    def __init__(self) -> None:
        types = {"key": np.uint64, "count": np.int64, "end": np.int64}
        super().__init__(types, equal="sum", expiry="end")

    def clear(self) -> None:
        super().clear()
        self._waiting: list[_WaitingInserts] = []
        # What those take that were measured, and how many of the last ones were not.
        self._waiting_bytes = self._unmeasured = 0

    def count_events(self) -> int:
        """How many events are remembered."""
        ends = [waiting.batch.ve for waiting in self._waiting]
        return len(self) + sum(int(np.count_nonzero(end >= self.expired_before)) for end in ends)

    def nbytes(self) -> int:
        """Memory taken by the events that are there."""
        self._measure_waiting()
        return super().nbytes() + self._waiting_bytes

    def add_later(self, inserts: EventBatch, salt: Hashes | None = None) -> None:
        """Add the events of a batch that has only inserts; with ``salt``, as `bag_changes` takes it."""
        if not len(inserts) or self.expired_before == FOREVER:
            return
        coming, nbytes = _WaitingInserts(inserts, int(inserts.ve.max()), salt), 0
        if len(inserts) > _FEW or self._unmeasured == _MEASURED_TOGETHER:
            self._measure_waiting()
            nbytes = coming.measure()
        if len(self._waiting) == _MOST_WAITING or self._waiting_bytes + nbytes > _MOST_BYTES:
            self._add_waiting()
        self._waiting.append(coming)
        self._waiting_bytes += nbytes
        self._unmeasured += not nbytes

    def _measure_waiting(self) -> None:
        if self._unmeasured:
            self._waiting_bytes += sum(one.measure() for one in self._waiting[-self._unmeasured :])
            self._unmeasured = 0

    def _add_waiting(self) -> None:
        if self._waiting:
            batch = concat([waiting.batch for waiting in self._waiting])
            salts = [waiting.salt for waiting in self._waiting if waiting.salt is not None]
            self._waiting, self._waiting_bytes, self._unmeasured = [], 0, 0
            salt = np.concatenate(salts) if salts else None
            self.apply(bag_changes(batch, batch.ve >= self.expired_before, salt))

    def forget_before(self, t: int) -> None:
        is_later = t > self.expired_before
        super().forget_before(t)
        if is_later and self._waiting:
            self._measure_waiting()
            self._waiting = [waiting for waiting in self._waiting if waiting.end >= t]
            self._waiting_bytes = sum(waiting.nbytes for waiting in self._waiting)

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        self._add_waiting()
        return super().take_changes(version)

    def snapshot(self) -> pa.Table:
        """All events."""
        self._add_waiting()
        return super().snapshot()

    def total(self, *needles: Column) -> Index:
        """The counts of each key added up."""
        self._add_waiting()
        return super().total(*needles)

    def count(self, keys: Hashes) -> Index:
        """How often each of the keys is present now."""
        return self.total(keys)

    def change(self, keys: Hashes, deltas: Index, ends: Ticks) -> None:
        """Add (or with a negative delta remove) events; ``ends`` says when they can be forgotten."""
        self.push(keys, deltas, ends)

    def apply(self, changes: BagChanges, dropped: Mask | None = None) -> None:
        """Record what elements announce and take away, but for the dropped rows."""
        if dropped is not None and bool(dropped.any()):
            changes = changes.take(~dropped[changes.row])
        if len(changes.row):
            self.change(changes.key, changes.delta, changes.end)

    def latest_end(self) -> int:
        """The last end of any event present, BEGINNING if there is none."""
        self._add_waiting()
        return int(self.unite()["end"].max(initial=BEGINNING))


@dataclass(slots=True, eq=False)
class _WaitingInserts:
    """Inserts that are not hashed yet, the last of their ends, their salt, and the memory they take."""

    batch: EventBatch
    end: int
    salt: Hashes | None
    nbytes: int = 0

    def measure(self) -> int:
        """Find the memory they take."""
        self.nbytes = int(self.batch.payload.nbytes) + 4 * self.batch.vs.nbytes
        return self.nbytes


class LiveEnds(CountedBag):
    """The ends of events, by the hash of (payload, start); ends before the last CTI are forgotten."""

    def __init__(self) -> None:
        types = {"start": np.uint64, "end": np.int64, "count": np.int64}
        super().__init__(types, keys=2, equal="sum", expiry="end")

    def count(self, start: Hashes, end: Ticks) -> Index:
        """How often each (start, end) is there."""
        return self.total(start, end)

    def ends_of(self, starts: Hashes) -> dict[int, dict[int, int]]:
        """For each of the (distinct) starts the ends that are there, and how often."""
        found: dict[int, dict[int, int]] = {start: {} for start in starts.tolist()}
        rows = [column.tolist() for column in self.find_rows(np.sort(starts)).values()]
        for start, end, count in zip(*rows, strict=True):
            found[start][end] = count
        return found

    def change(self, start: Hashes, end: Ticks, delta: Index) -> None:
        """Add, or with a negative delta take away."""
        self.push(start, end, delta)


@record
class BagChanges:
    """What the rows of a batch do to a bag: row, event, +1 or -1, and the event's end.

    A retraction is two changes: it takes an event away and announces another, unless it removes it.
    """

    row: Index
    key: Hashes
    delta: Index
    end: Ticks

    def take(self, at: Index | Mask) -> BagChanges:
        """Some of the changes."""
        return BagChanges(self.row[at], self.key[at], self.delta[at], self.end[at])


_NONE: Final = np.zeros(0, np.int64)
NO_CHANGES: Final = BagChanges(_NONE, np.zeros(0, np.uint64), _NONE, _NONE)


def bag_changes(batch: EventBatch, considered: Mask, salt: Hashes | None = None) -> BagChanges:
    """What the considered inserts and retractions take away and announce.

    ``salt`` tells equal events of different sub-streams apart.
    """
    after = new_end(batch)
    down = ((batch.kind == RETRACT) & considered).nonzero()[0]
    up = (considered & batch.is_data() & (after > batch.vs)).nonzero()[0]
    start = combine(row_hash(batch.payload, len(batch)), batch.vs)
    row = np.concatenate([down, up])
    end = np.concatenate([batch.ve[down], after[up]])
    key = combine(start[row], end)
    key = key if salt is None else combine(key, salt[row])
    return BagChanges(row, key, np.repeat(np.array([-1, 1]), [len(down), len(up)]), end)


def find_orphans(changes: BagChanges, live: EventCounts, size: int, is_exempt: Mask | None = None) -> Mask:
    """Which of a batch's ``size`` rows retract an event that is not there; exempt ones are not asked."""
    orphan = np.zeros(size, np.bool_)
    named = changes.key[changes.delta < 0]
    if not len(named):
        return orphan
    # Only what some retraction names can be missing.
    changes = changes.take(maybe_in(changes.key, named))
    by_row = changes.row.argsort(kind="stable")  # two sorted runs
    changes = changes.take(by_row[order_of_hashes(changes.key[by_row])])
    while True:
        # A retraction that is not carried out still asks for its event; it announces nothing.
        stands = (changes.delta < 0) | ~orphan[changes.row]
        fresh = find_unmatched(changes.take(stands), live)
        if is_exempt is not None:
            fresh = fresh[~is_exempt[fresh]]
        if bool(orphan[fresh].all()):
            return orphan
        orphan[fresh] = True


def find_unmatched(changes: BagChanges, live: EventCounts | None = None) -> Index:
    """The rows that take away an event that is not there; changes are by key, then by arrival.

    Without ``live`` no event was there before.
    """
    total = running_totals(changes.key, changes.delta, None if live is None else live.count)
    rows: Index = changes.row[(changes.delta < 0) & (total < _lowest_before(changes.key, total))]
    return rows


def _lowest_before(keys: Hashes, total: Index) -> Index:
    """The lowest total of its key before each row, at most 0."""
    group, sizes = group_sizes(keys)
    first = sizes.cumsum() - sizes
    # One running minimum serves all keys: each is sunk below everything that the keys before it reached.
    sunk = -group * np.int64(len(total) + 1)
    before = np.concatenate([[0], np.minimum(total, 0)[:-1] + sunk[:-1]])
    before[first] = sunk[first]
    lowest: Index = np.minimum.accumulate(before) - sunk
    return lowest
