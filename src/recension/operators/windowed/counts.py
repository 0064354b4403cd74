"""Count windows: every run of ``n`` consecutive moments at which events of a group start (or end).

A moment is a distinct time, kept with the sums of the events there. What a batch changes is summed up moment
by moment and laid over the moments kept so far:

    moments kept so far    |     |   |        |
    changed by the batch         -       +    +
    merged                 |     |   |   |    |       each knows its events before and after the batch

What a window holds is summed up from the sums of 1, 2, 4, … moments:

    n = 6      |--- 2 ---|------- 4 -------|

Every window is put together in the same way from its own first moment on, so that the same events always
give the same floating-point sum, and a window shown earlier is retracted exactly as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recension.core.batch import EventBatch, Index, Mask, new_end, old_end
from recension.core.sorted_runs import Column, Columns
from recension.core.ticks import FOREVER, Ticks
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import KeptMoments, align_moments, never_inserted_error
from recension.operators.state.leaf_table import LeafExtract
from recension.operators.windowed import double_double as dd
from recension.operators.windowed.events import Placement
from recension.operators.windowed.index import (
    Closing,
    IndexSpec,
    Stretches,
    WindowChange,
    WindowIndex,
    is_in_view,
)
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import Sums, state_columns

_Values: TypeAlias = npt.NDArray[Any]


class CountIndex(WindowIndex):
    """Count windows, by start or by end."""

    is_lived_through = False

    def __init__(self, spec: IndexSpec, n: int, by: Literal["start", "end"]) -> None:
        self._kept = KeptMoments(state_columns(spec.ints, spec.pairs), spec.key_schema)
        super().__init__(self._kept, spec)
        self._n, self.by_start = n, by == "start"

    @property
    def place(self) -> Placement | None:
        return self._place

    def _place(self, vs: Ticks, end: Ticks) -> tuple[Index, Index]:
        """The tick in which an event counts; empty if there is none."""
        moment = self._moment(vs, end)
        return moment, moment + (moment < FOREVER)

    def _moment(self, vs: Ticks, end: Ticks) -> Ticks:
        """Where an event counts; FOREVER if it is not there, or counts by an end it never reaches."""
        return np.where(end == vs, np.int64(FOREVER), vs if self.by_start else end)

    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> WindowChange:
        due = self._upcoming.pop_until(watermark)
        had, has = (self._moment(batch.vs, end(batch)) for end in (old_end, new_end))
        changes = changes_at(group, had, has, amounts, due, in_place=self._ends != "unseen")
        if not len(changes.time):
            return self._move_to(watermark)
        extract = self._kept.extract_around(changes.group, changes.time, self._n)
        axis = merge(extract, changes)

        def write_back() -> None:
            born = axis.write_back(self._kept, extract)
            if self._view != "all":
                # A window comes into view one tick after its last moment, or at its first.
                time = axis.time[born] + (self._view == "ended")
                later = time > watermark
                self._upcoming.push(time[later], axis.group[born][later])
            self.watermark = watermark

        old = self._windows(axis, axis.old, self.watermark, None)
        new = self._windows(axis, axis.new, watermark, self.watermark)
        return _change(axis, old, new, write_back)

    def _windows(
        self, axis: MergedMoments, sums: Sums, watermark: int, before: int | None
    ) -> tuple[Index, Ticks, Sums]:
        """The windows in view that hold a changed moment, or that were not in view at ``before``.

        Gives the place of the first moment of each, its end, and its sums.
        """
        at = sums.n.nonzero()[0]
        size = max(0, len(at) - self._n + 1)
        first, last = at[:size], at[len(at) - size :]
        changed = np.append(0, axis.is_changed.cumsum())
        start, end = axis.time[first], axis.time[last] + 1
        wanted = changed[last + 1] > changed[first]
        if before is not None:
            wanted |= ~is_in_view(self._view, before, start, end)
        # Beyond the last moment of a group, or of what was read, no window holds a change.
        wanted &= (axis.group[first] == axis.group[last]) & is_in_view(self._view, watermark, start, end)
        keep = wanted.nonzero()[0]
        return first[keep], end[keep], self._sums(sums.take(at), keep)

    def _sums(self, moments: Sums, keep: Index) -> Sums:
        """The sums of the windows that are kept, of all windows over these moments."""
        return Sums(
            sums_of(moments.n, self._n, np.add)[keep],
            [sums_of(column, self._n, np.add)[keep] for column in moments.ints],
            [_pair(sums_of(np.stack(pair), self._n, _add_pairs)[:, keep]) for pair in moments.pairs],
        )

    def close(self, t: int, earliest: int) -> Closing:
        # Counted by end, an event whose end may still move is in no window that has ended.
        closed = min(t, earliest) if self.by_start else t
        gone = self._kept.forget_all_but_last(closed, self._n - 1)
        first_open = min(closed, self._kept.earliest_held())
        where = gone["group"], gone["time"], gone["time"] + 1
        return Closing(first_open, first_open, closed, first_open, where)


def _change(
    axis: MergedMoments,
    old: tuple[Index, Ticks, Sums],
    new: tuple[Index, Ticks, Sums],
    write_back: Callable[[], None],
) -> WindowChange:
    """Windows before and after; those that begin at the same moment have one slot."""
    is_first = np.zeros(len(axis.time), np.bool_)
    is_first[old[0]], is_first[new[0]] = True, True
    at, slot = is_first.nonzero()[0], is_first.cumsum() - 1

    def stretches_of(rows: Index, end: Ticks, sums: Sums) -> tuple[Ticks, Stretches]:
        ends = axis.time.copy()
        ends[rows] = end
        return ends[at], Stretches(slot[rows], rows, axis.group, axis.time, ends, sums)

    (old_end, was), (new_end, now) = stretches_of(*old), stretches_of(*new)
    return WindowChange(axis.time[at], old_end, new_end, was, now, write_back)


def sums_of(values: _Values, n: int, add: Callable[[_Values, _Values], _Values]) -> _Values:
    """The sums of every ``n`` consecutive values along the last axis.

    >>> sums_of(np.array([1, 2, 3, 4, 5]), 3, np.add).tolist()
    [6, 9, 12]
    """
    size, offset, width = max(0, values.shape[-1] - n + 1), 0, 1
    total: _Values | None = None
    while size:
        if n & width:
            part = values[..., offset : offset + size]
            total = part if total is None else add(total, part)
            offset += width
        if 2 * width > n:
            break
        values = add(values[..., :-width], values[..., width:])
        width *= 2
    return values[..., :0] if total is None else total


def _add_pairs(a: _Values, b: _Values) -> _Values:
    return np.stack(dd.add((a[0], a[1]), (b[0], b[1])))


def _pair(values: _Values) -> tuple[_Values, _Values]:
    return values[0], values[1]


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
    leaves, comes = (moves & (old != FOREVER)).nonzero()[0], (moves & (new != FOREVER)).nonzero()[0]
    stays = (~moves & in_place).nonzero()[0]
    rows = np.concatenate([leaves, comes, stays])
    sign = np.repeat([-1, 1, 0, 0], [len(leaves), len(comes), len(stays), len(due[0])])
    groups = np.concatenate([group[rows], due[1]])
    times = np.concatenate([old[leaves], new[comes], new[stays], due[0]])
    order = np.argsort(sort_keys([groups], [times])[0])
    groups, times, sign = groups[order], times[order], sign[order]
    first = np.append(True, (groups[1:] != groups[:-1]) | (times[1:] != times[:-1])).nonzero()[0]
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
    """Values by row. Moments that are only looked at have row 0, which an empty batch does not have."""
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
        rows = self.new.n.nonzero()[0]
        columns: Columns = {"group": self.group[rows], "time": self.time[rows]}
        columns |= self.new.take(rows).columns()
        come, went = ((self.group[which], self.time[which]) for which in (born, gone))
        kept.replace(extract, columns, come, went)
        return born


def merge(extract: LeafExtract, changes: MomentChanges) -> MergedMoments:
    """Lay the changes of a batch over the moments kept so far."""
    own = ~extract.follower
    known = {name: column[own] for name, column in extract.columns.items()}
    group, time, at_known, at_changes = align_moments(known, changes.group, changes.time)
    is_known, is_changed = (np.zeros(len(time), np.bool_) for _ in range(2))
    is_known[at_known], is_changed[at_changes] = True, changes.is_changed

    def spread(name: str) -> Column:
        column = np.zeros(len(time), known[name].dtype)
        column[at_known] = known[name]
        return column

    old = Sums.from_columns(spread, len(changes.by.ints), len(changes.by.pairs))
    new = _add(old, changes.by, at_changes)
    return MergedMoments(group, time, is_known, is_changed, old, new)


def _add(old: Sums, by: Sums, at: Index) -> Sums:
    """The sums with those at ``at`` changed."""
    new = old.take(at).add(by)
    if bool((new.n < 0).any()):
        raise never_inserted_error()

    def replace(column: Column, changed: Column) -> Column:
        column = column.copy()
        column[at] = changed
        return column

    after = new.columns()
    columns = {name: replace(column, after[name]) for name, column in old.columns().items()}
    return Sums.from_columns(columns.__getitem__, len(old.ints), len(old.pairs))
