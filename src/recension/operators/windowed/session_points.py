"""What may split sessions: the times at which events begin and end.

Each point has how many events begin there, with what they add to the sums, and how many end there:

    events         |------|      |----|
                       |-------------------|
    points         1   1  -1     1    -1   -1      alive: summed up from the right
                   a   b         c                 what each start adds to the sums

Nothing splits before the CTI, less the gap: points up to there go. The part of a session that reaches back
beyond them is what all of it adds up to, less what its later parts do.

Only retractions ask for points. Until one comes, elements wait as they came, and most of them are gone before
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask, new_end, old_end
from recension.core.change_log import Change
from recension.core.memory import is_bounded
from recension.core.netting import expand, order_of
from recension.core.sorted_runs import Column, Columns, take_columns
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import align_moments, is_among, never_inserted_error
from recension.operators.state.leaf_table import LeafExtract, LeafTable
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.double_double import Pair
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import Sums

_FEW = 1 << 16  # elements that may wait though they are no longer needed


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a batch in order of (group, start).

    ``sign``: 1 for an event that comes, -1 for one that goes, 0 for one whose end moves. ``sums`` are what
    each adds to those of its session.
    """

    group: Index
    vs: Ticks
    old: Ticks
    new: Ticks
    sign: Index
    sums: Sums
    is_plain: bool

    @staticmethod
    def sort(batch: EventBatch, group: Index, amounts: Contributions) -> Elements:
        """From a batch and what its events add to the sums."""
        order = order_of(sort_keys([group], [batch.vs])[0])
        vs, old, new = (column[order] for column in (batch.vs, old_end(batch), new_end(batch)))
        sign, is_plain = (new > vs).astype(np.int64) - (old > vs), bool((batch.kind == INSERT).all())
        ints = [column[order] for column in amounts.ints]
        pairs = [(high[order], low[order]) for high, low in amounts.pairs]
        if not is_plain:
            ints = [sign * column for column in ints]
            pairs = [(sign * high, sign * low) for high, low in pairs]
        return Elements(group[order], vs, old, new, sign, Sums(sign, ints, pairs), is_plain)

    def __len__(self) -> int:
        return len(self.group)

    @staticmethod
    def join(parts: list[Elements]) -> Elements:
        """Those of several batches, in order."""
        if len(parts) == 1:
            return parts[0]
        group, vs, old, new = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("group", "vs", "old", "new")
        )
        columns = [part.sums.columns() for part in parts]
        joined = {name: np.concatenate([own[name] for own in columns]) for name in columns[0]}
        sums = Sums.from_columns(joined.__getitem__, len(parts[0].sums.ints), len(parts[0].sums.pairs))
        is_plain = all(part.is_plain for part in parts)
        order = order_of(sort_keys([group], [vs])[0])
        sums = sums.take(order)
        return Elements(group[order], vs[order], old[order], new[order], sums.n, sums, is_plain)

    def take(self, which: Mask) -> Elements:
        """Some of them."""
        rows = which.nonzero()[0]
        group, vs, old, new = (column[rows] for column in (self.group, self.vs, self.old, self.new))
        sums = self.sums.take(rows)
        return Elements(group, vs, old, new, sums.n, sums, self.is_plain)

    @property
    def end(self) -> Ticks:
        """The end before or after, whichever is later."""
        return np.maximum(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals, in order of (group, start)."""

    group: Index
    start: Ticks
    end: Ticks

    @staticmethod
    def between(begins: Mask, group: Index, start: Ticks, reach: Ticks) -> Spans:
        """From each row that begins one to the last before the next."""
        first = begins.nonzero()[0]
        return Spans(group[first], start[first], reach[np.append(first[1:], len(begins)) - 1])

    def take(self, which: Mask) -> Spans:
        """Some of them."""
        return Spans(self.group[which], self.start[which], self.end[which])


class SessionPoints(LeafTable):
    """The points of all groups: rows (group, time, ends, n, ...)."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self.settled = BEGINNING
        super().__init__({"ends": np.int64, **columns})

    def clear(self) -> None:
        super().clear()
        self._waiting: list[Elements] = []
        self._size = self._needed = 0

    def __len__(self) -> int:
        return super().__len__() + sum(int((part.end > self.settled).sum()) for part in self._waiting)

    def widen(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self.settle_waiting()
        super().widen(columns)

    def add(self, elements: Elements) -> None:
        """Elements of a batch, all of them inserts. They wait, unless memory is bounded."""
        self._waiting.append(elements)
        self._size += len(elements)
        if is_bounded():
            self.settle_waiting()

    def settle_waiting(self) -> None:
        """Make points of the elements that wait."""
        waiting, self._waiting, self._size, self._needed = self._find_needed(), [], 0, 0
        if waiting:
            self.merge(Elements.join(waiting)).write_back()

    def _find_needed(self) -> list[Elements]:
        parts = [(part, part.end > self.settled) for part in self._waiting]
        return [part if bool(own.all()) else part.take(own) for part, own in parts if bool(own.any())]

    def merge(self, elements: Elements, spans: Spans | None = None) -> MergedPoints:
        """The points of some groups with what elements change; at least those in some spans, if given."""
        steps = PointSteps.sum(elements)
        group, low, high = steps.group, steps.time, steps.time
        if spans is not None and self.has_long(group):
            group, low, high = spans.group, spans.start, spans.end
        return MergedPoints.merge(self, self.extract(group, low, high), steps)

    def settle(self, groups: Index, t: int) -> None:
        """Nothing splits up to ``t`` any more: take out the points of groups up to there."""
        self.settled = t
        if self._size > 2 * self._needed + _FEW:
            self._waiting = self._find_needed()
            self._size = self._needed = sum(len(part) for part in self._waiting)
        leaves, long = self.part_groups(groups)
        if len(leaves):
            self.trim(leaves, self.look_before(leaves, t + 1)[0])
        if len(long):
            extract = self.extract(long, np.full(len(long), BEGINNING), np.full(len(long), t))
            columns = extract.columns
            is_past = (columns["time"] <= t) & ~extract.follower & is_among(columns["group"], long)
            self.forget(extract, is_past)

    def nbytes(self) -> int:
        return super().nbytes() + self._size * 8 * len(self._types)

    def snapshot(self) -> pa.Table:
        self.settle_waiting()
        return super().snapshot()

    def restore(self, table: pa.Table | Change) -> None:
        self._waiting, self._size, self._needed = [], 0, 0
        super().restore(table)

    def take_changes(self, version: int) -> Change:
        self.settle_waiting()
        return super().take_changes(version)


@dataclass(frozen=True, slots=True)
class PointSteps:
    """What changes at each point, in order of (group, time): how many events begin (with sums) and end."""

    group: Index
    time: Ticks
    ends: Index
    begin_at: Index
    begin: Sums

    @staticmethod
    def sum(elements: Elements) -> PointSteps:
        """From the elements one by one."""
        rows = elements.sign.nonzero()[0]
        group, vs = elements.group[rows], elements.vs[rows]
        is_new = np.append(True, (group[1:] != group[:-1]) | (vs[1:] != vs[:-1]))[: len(rows)]
        first = is_new.nonzero()[0]
        begin = add_up(elements.sums if elements.is_plain else elements.sums.take(rows), first)
        gone, come = ((end > elements.vs).nonzero()[0] for end in (elements.old, elements.new))
        at = np.concatenate([elements.old[gone], elements.new[come]])
        by = np.repeat([-1, 1], [len(gone), len(come)])
        begins, ends = sort_keys(
            [group[first], np.concatenate([elements.group[gone], elements.group[come]])], [vs[first], at]
        )
        keys, where, place = np.unique(np.append(begins, ends), return_index=True, return_inverse=True)
        groups = np.concatenate([group[first], elements.group[gone], elements.group[come]])[where]
        times = np.append(vs[first], at)[where]
        count = np.bincount(place[len(first) :], by, len(keys)).astype(np.int64)
        return PointSteps(groups, times, count, place[: len(first)], begin)


@dataclass(frozen=True, slots=True)
class MergedPoints:
    """The points that were read, with what a batch changes; those at which nothing is left are gone."""

    table: LeafTable
    extract: LeafExtract
    group: Index
    time: Ticks
    ends: Index
    sums: Sums

    @staticmethod
    def merge(table: LeafTable, extract: LeafExtract, steps: PointSteps) -> MergedPoints:
        """The points of an extract with steps."""
        known = extract.columns
        if bool(extract.follower.any()):
            known = take_columns(known, ~extract.follower)
        group, time, at_known, at_steps = align_moments(known, steps.group, steps.time)

        def spread(name: str) -> Column:
            column = np.zeros(len(time), known[name].dtype)
            column[at_known] = known[name]
            return column

        ends, sums = spread("ends"), Sums.from_columns(spread, len(steps.begin.ints), len(steps.begin.pairs))
        ends[at_steps] += steps.ends
        begins = at_steps[steps.begin_at]
        sums.put(begins, sums.take(begins).add(steps.begin))
        if bool((ends < 0).any()) or bool((sums.n < 0).any()):
            raise never_inserted_error()
        rows = ((ends > 0) | (sums.n > 0)).nonzero()[0]
        return MergedPoints(table, extract, group[rows], time[rows], ends[rows], sums.take(rows))

    def find_within(self, spans: Spans) -> tuple[Index, Index]:
        """Pairs (number, point) of the points in some spans, in order."""
        keys = sort_keys([self.group, spans.group, spans.group], [self.time, spans.start, spans.end])
        first, stop = keys[0].searchsorted(keys[1]), keys[0].searchsorted(keys[2], "right")
        return expand(first, stop)

    def write_back(self) -> None:
        """Keep them."""
        columns: Columns = {"group": self.group, "time": self.time, "ends": self.ends}
        self.table.replace(self.extract, columns | self.sums.columns())


def add_up(sums: Sums, first: Index) -> Sums:
    """The sums of stretches of rows, which begin at ``first``."""
    if len(first) == len(sums.n):
        return sums
    lengths = np.diff(np.append(first, len(sums.n)))
    return Sums(
        np.add.reduceat(sums.n, first),
        [np.add.reduceat(column, first) for column in sums.ints],
        [_add_up_pair(pair, first, lengths) for pair in sums.pairs],
    )


def _add_up_pair(pair: Pair, first: Index, lengths: Index) -> Pair:
    """Most stretches are one row, which is its own sum."""
    high, low = pair[0][first], pair[1][first]
    long = lengths > 1
    rows = (long.repeat(lengths)).nonzero()[0]
    high[long], low[long] = dd.sums((pair[0][rows], pair[1][rows]), lengths[long])
    return high, low


def firsts(numbers: Index) -> Index:
    """Where each number stands first; equal ones stand together."""
    return (np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]).nonzero()[0]
