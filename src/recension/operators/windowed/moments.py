"""Moments: the distinct times at which a group's events start (or end), with the sums of the events there.

What a batch changes is summed up moment by moment and laid over the moments kept so far:

    moments kept so far    |     |   |        |
    changed by the batch         -       +    +
    merged                 |     |   |   |    |       each knows its events before and after the batch
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.errors import StreamError
from recension.core.ticks import FOREVER, Ticks
from recension.operators import double_double as dd
from recension.operators.state.block_table import Column, Columns, sort_keys
from recension.operators.state.kept_moments import KeptMoments
from recension.operators.state.leaf_table import LeafExtract
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import Sums


@dataclass(frozen=True, slots=True)
class MomentChanges:
    """One row per distinct (group, moment), sorted.

    ``is_changed``: events come, go or change there; otherwise the moment is only looked at.
    """

    group: Index
    time: Ticks
    is_changed: Mask
    by: Sums


def changes_at(
    group: Index, old: Ticks, new: Ticks, amounts: Contributions, due: tuple[Ticks, Index], *, in_place: bool
) -> MomentChanges:
    """What a batch changes when each element takes an event from the moment ``old`` to ``new``.

    FOREVER is no moment at all. ``in_place``: an event that stays where it is may still change answers.
    ``due``: further moments to look at, as (time, group).
    """
    moves = old != new
    leaves, comes = np.flatnonzero(moves & (old != FOREVER)), np.flatnonzero(moves & (new != FOREVER))
    stays = np.flatnonzero(~moves & in_place)
    rows = np.concatenate([leaves, comes, stays])
    sign = np.repeat([-1, 1, 0, 0], [len(leaves), len(comes), len(stays), len(due[0])])
    groups = np.concatenate([group[rows], due[1]])
    times = np.concatenate([old[leaves], new[comes], new[stays], due[0]])
    order = np.argsort(sort_keys([groups], [times])[0])
    groups, times, sign = groups[order], times[order], sign[order]
    first = np.flatnonzero(np.append(True, (groups[1:] != groups[:-1]) | (times[1:] != times[:-1])))
    first = first[: len(times)]
    lengths = np.diff(np.append(first, len(times)))
    row = np.append(rows, np.zeros(len(due[0]), np.int64))[order]
    by = Sums(
        np.add.reduceat(sign, first),
        [np.add.reduceat(sign * _take(x, row), first) for x in amounts.ints],
        [dd.sums((sign * _take(h, row), sign * _take(low, row)), lengths) for h, low in amounts.pairs],
    )
    is_changed = np.logical_or.reduceat(order < len(rows), first)
    return MomentChanges(groups[first], times[first], is_changed, by)


def _take(values: Column, row: Index) -> Column:
    """Values by row; moments that are only looked at have row 0, which a batch of nothing lacks."""
    return values[row] if len(values) else np.zeros(len(row), values.dtype)


@dataclass(frozen=True, slots=True)
class MergedMoments:
    """The merged moments; ``is_known`` marks those that were kept, ``is_changed`` where events change."""

    group: Index
    time: Ticks
    is_known: Mask
    is_changed: Mask
    old: Sums
    new: Sums

    def write_back(self, kept: KeptMoments, extract: LeafExtract) -> Mask:
        """Keep the moments that have events now; gives back which of them had none."""
        born, gone = ~self.is_known & (self.new.n > 0), self.is_known & (self.new.n == 0)
        rows = np.flatnonzero(self.new.n)
        columns: Columns = {"group": self.group[rows], "time": self.time[rows]}
        columns |= self.new.take(rows).columns()
        kept.replace(extract, columns, (self.group[born], self.time[born]), self.group[gone])
        return born


def merge(extract: LeafExtract, changes: MomentChanges) -> MergedMoments:
    """Lay the changes of a batch over the moments kept so far."""
    own = ~extract.follower
    known = {name: column[own] for name, column in extract.columns.items()}
    groups, times = [known["group"], changes.group], [known["time"], changes.time]
    keys = np.concatenate(sort_keys(groups, times))
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    at_known, at_changes = place[: len(known["time"])], place[len(known["time"]) :]
    is_known, is_changed = (np.zeros(len(first), np.bool_) for _ in range(2))
    is_known[at_known], is_changed[at_changes] = True, changes.is_changed

    def spread(name: str) -> Column:
        column = np.zeros(len(first), known[name].dtype)
        column[at_known] = known[name]
        return column

    old = Sums(
        spread("n"),
        [spread(f"int{i}") for i in range(len(changes.by.ints))],
        [(spread(f"high{i}"), spread(f"low{i}")) for i in range(len(changes.by.pairs))],
    )
    new = _add(old, changes.by, at_changes)
    group, time = np.concatenate(groups)[first], np.concatenate(times)[first]
    return MergedMoments(group, time, is_known, is_changed, old, new)


def _add(old: Sums, by: Sums, at: Index) -> Sums:
    def plus(before: Index, change: Index) -> Index:
        after = before.copy()
        after[at] += change
        return after

    n = plus(old.n, by.n)
    if bool((n < 0).any()):
        raise StreamError("an event was retracted that had never been inserted")
    pairs = []
    for (high, low), change in zip(old.pairs, by.pairs, strict=True):
        high, low = high.copy(), low.copy()
        high[at], low[at] = dd.add((high[at], low[at]), change)
        # With no event left there is no rounding error left either.
        pairs.append((np.where(n == 0, 0.0, high), np.where(n == 0, 0.0, low)))
    return Sums(n, [plus(o, c) for o, c in zip(old.ints, by.ints, strict=True)], pairs)
