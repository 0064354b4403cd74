"""Rows that open and close events, event by event: which close belongs to which open.

Of equal events that are open at a time each has a level of its own: how many are open, itself included.

State       start and end of the last open event of each payload (and level), known by hash.
Cost        O(b log s) for b rows and s events held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask, take_rows
from recension.core.formats.decode import OPEN
from recension.core.netting import distinct
from recension.core.placement import PlacedRows
from recension.core.records import record
from recension.core.rowhash import Hashes, combine, row_hash
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.validity import frontier_before


@record
class Toggles:
    """Open and close rows by payload (and level), then by arrival, each with the CTI before it.

    An end that came too late for its CTI may be another in the output: it is moved there. What is remembered
    from earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    output_end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> Toggles:
        """Some of the rows."""
        return Toggles(*(getattr(self, field.name)[at] for field in fields(self)))

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_early(self) -> Mask:
        """Which closes end their event before its start."""
        opener = self.opener()
        early: Mask = ~self.is_open & (opener >= 0) & (self.end < self.start[opener])
        return early

    def is_final(self, ignored: Mask, *, once: bool) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do.

        What is ignored ends nothing. With ``once`` every end is final.
        """
        last = np.maximum.accumulate(np.where(ignored, 0, np.arange(len(self.key))))
        end_before = np.append(np.int64(FOREVER), self.output_end[last][:-1])
        has_ended = (end_before < self.frontier) | (self.frontier == FOREVER)
        if once:
            has_ended |= end_before != FOREVER
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> Toggles:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class OpenEvents(SortedRuns):
    """The last open event of each payload (and level), known by hash, as long as it can be closed."""

    most_levels = 1
    """So many levels there were at most."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "start": np.int64, "end": np.int64, "output_end": np.int64}
        super().__init__(types, equal="newest", expiry="output_end")

    def find_events(self, keys: Hashes) -> Toggles:
        """The events of the given (sorted) payloads that can still be closed."""
        found = self.find_rows(keys)
        size = len(found["key"])
        row, is_open, frontier = np.full(size, -1), np.ones(size, np.bool_), np.full(size, BEGINNING)
        return Toggles(row=row, is_open=is_open, frontier=frontier, **found)

    def depths(self, keys: Hashes, first: Toggles) -> Index:
        """How many events of these (sorted) payloads are open; ``first`` are those on level 1.

        They are found by halving: below the last level with an open event there is one on each.
        """
        low = np.isin(keys, first.key[first.end == FOREVER]).astype(np.int64)
        high = np.where(low > 0, self.most_levels, 0)
        while bool((is_unknown := low < high).any()):
            middle = (low + high + 1) // 2
            on_level = key_on_level(keys, middle)
            found = self.find_rows(distinct(on_level[is_unknown]))
            is_open = np.isin(on_level, found["key"][found["end"] == FOREVER])
            low = np.where(is_unknown & is_open, middle, low)
            high = np.where(is_unknown & ~is_open, middle - 1, high)
        return low

    def put(self, events: Toggles) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        self.push(events.key, events.start, events.end, events.output_end, is_run=True)


def in_order(parts: list[Toggles]) -> Toggles:
    """All rows of several parts by their keys, those of one key part by part."""
    names = [field.name for field in fields(Toggles)]
    toggles = Toggles(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return toggles.take(np.argsort(toggles.key, kind="stable"))


def toggles_of(batch: EventBatch, rows: Index, frontier: int, placed: PlacedRows | None) -> Toggles:
    """The open and close rows of a batch by payload."""
    is_open = batch.kind[rows] == OPEN
    end = np.where(is_open, FOREVER, batch.ve[rows])
    keys = row_hash(take_rows(batch.payload, rows), len(rows))
    if placed is None:
        before = frontier_before(batch, frontier)[rows]
    else:
        keys, before = combine(keys, placed.salt[rows]), placed.before[rows]
    fresh = Toggles(keys, rows, is_open, batch.vs[rows], end, end, before)
    return fresh.take(np.argsort(keys, kind="stable"))


def find_levels(fresh: Toggles, depth: Index, ignored: Mask) -> Index:
    """The level of each row; ``depth`` is how many events of its payload are open before the first of them.

    An open adds one and a close takes one away, if there is one: a sum that is lifted to 0 where it falls
    below.
    """
    size = len(fresh.key)
    step = np.where(fresh.is_open, 1, np.where(ignored, 0, -1))
    starts = np.append(True, fresh.key[1:] != fresh.key[:-1])[:size]
    group, first = np.cumsum(starts) - 1, np.flatnonzero(starts)
    total = np.cumsum(step)
    total -= (total[first] - step[first] - depth[first])[group]
    # No minimum of one payload reaches into the next.
    apart = group * (2 * size + 2 + int(depth.max(initial=0)))
    lowest = np.minimum.accumulate(np.minimum(total, 0) - apart) + apart
    after = total - lowest
    level: Index = np.where(fresh.is_open, after, np.where(ignored, np.maximum(after, 1), after + 1))
    return level


def key_on_level(keys: Hashes, level: Index) -> Hashes:
    """The keys of events on these levels; on level 1 that of the payload."""
    above = level > 1
    return np.where(above, combine(keys, level.astype(np.int64)), keys) if bool(above.any()) else keys


def rewrite(batch: EventBatch, toggles: Toggles) -> EventBatch:
    """The batch with its open and close rows replaced by what became of them."""
    before = toggles.end_before()
    # An event closed at its start is no longer there; a later close brings it back.
    is_insert = toggles.is_open | (before == toggles.start)
    is_new = toggles.row >= 0
    at = toggles.row[is_new]
    kind = batch.kind.copy()
    kind[at] = np.where(is_insert, INSERT, RETRACT)[is_new]
    times = np.stack([batch.vs, batch.ve, batch.new_ve])
    times[0, at] = toggles.start[is_new]
    times[1, at] = np.where(is_insert, toggles.end, before)[is_new]
    times[2, at] = np.where(is_insert, FOREVER, toggles.end)[is_new]
    return EventBatch(kind, times[0], times[1], times[2], batch.count, batch.payload)


def to_elements(rows: EventBatch) -> EventBatch:
    """Open and close rows as the elements they come nearest to."""
    kind = np.where(rows.kind == OPEN, INSERT, RETRACT).astype(np.uint8)
    forever = np.full(len(rows), FOREVER)
    return EventBatch(
        kind, rows.vs, forever, np.where(kind == RETRACT, rows.ve, FOREVER), rows.count, rows.payload
    )


class FaultyRows:
    """The rows that may not be there, by reason."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Index]] = []
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, EventBatch]] = []

    def drop(self, toggles: Toggles, bad: Mask, reason: str) -> Toggles:
        if not bool(bad.any()):
            return toggles
        self.found.append((reason, toggles.row[bad]))
        return toggles.take(~bad)

    def drop_any(self, toggles: Toggles, bad: Mapping[str, Mask]) -> Toggles:
        self.found += [(reason, toggles.row[rows]) for reason, rows in bad.items() if bool(rows.any())]
        return toggles.take(~np.logical_or.reduce(list(bad.values())))
