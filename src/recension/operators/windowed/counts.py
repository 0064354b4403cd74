"""Count windows: every run of ``n`` consecutive moments at which events of a group start (or end).

What a window holds is summed up from the sums of 1, 2, 4, … moments:

    n = 6      |--- 2 ---|------- 4 -------|

Every window is put together in the same way from its own first moment on, so that the same events always
give the same floating-point sum, and a window shown earlier is retracted exactly as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recension.core.batch import EventBatch, Index
from recension.core.ticks import FOREVER, Ticks
from recension.operators import double_double as dd
from recension.operators.base import new_end, old_end
from recension.operators.state.kept_moments import KeptMoments
from recension.operators.windowed.events import Placement
from recension.operators.windowed.index import Change, Closing, IndexSpec, Stretches, WindowIndex, in_view
from recension.operators.windowed.moments import MergedMoments, changes_at, merge
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import Sums, state_columns

_Values: TypeAlias = npt.NDArray[Any]


class CountIndex(WindowIndex):
    """Count windows, by start or by end."""

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

    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> Change:
        due = self._upcoming.pop_until(watermark)
        had, has = (self._moment(batch.vs, end(batch)) for end in (old_end, new_end))
        changes = changes_at(group, had, has, amounts, due, in_place=self._ends != "unseen")
        if not len(changes.time):
            return self._move_to(watermark)
        extract = self._kept.around(changes.group, changes.time, self._n)
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
        """The windows in view that hold a changed moment; or that were not in view at ``before``.

        Of each the place of its first moment, its end, and what it holds.
        """
        at = np.flatnonzero(sums.n)
        size = max(0, len(at) - self._n + 1)
        first, last = at[:size], at[len(at) - size :]
        changed = np.append(0, np.cumsum(axis.is_changed))
        start, end = axis.time[first], axis.time[last] + 1
        wanted = changed[last + 1] > changed[first]
        if before is not None:
            wanted |= ~in_view(self._view, before, start, end)
        # Beyond the last moment of a group, or of what was read, no window holds a change.
        wanted &= (axis.group[first] == axis.group[last]) & in_view(self._view, watermark, start, end)
        keep = np.flatnonzero(wanted)
        return first[keep], end[keep], self._sums(sums.take(at), keep)

    def _sums(self, moments: Sums, keep: Index) -> Sums:
        """What some windows add up to, of all those over these moments."""
        return Sums(
            sums_of(moments.n, self._n, np.add)[keep],
            [sums_of(column, self._n, np.add)[keep] for column in moments.ints],
            [_pair(sums_of(np.stack(pair), self._n, _add_pairs)[:, keep]) for pair in moments.pairs],
        )

    def close(self, t: int, earliest: int) -> Closing:
        # Counted by end, an event whose end may still move is in no window that has ended.
        closed = min(t, earliest) if self.by_start else t
        gone = self._kept.forget(closed, self._n - 1)
        first_open = min(closed, self._kept.earliest_held())
        return Closing(first_open, first_open, closed, first_open, gone)


def _change(
    axis: MergedMoments,
    old: tuple[Index, Ticks, Sums],
    new: tuple[Index, Ticks, Sums],
    write_back: Callable[[], None],
) -> Change:
    """Windows before and after; those that begin at the same moment have one slot."""
    is_first = np.zeros(len(axis.time), np.bool_)
    is_first[old[0]], is_first[new[0]] = True, True
    at, slot = np.flatnonzero(is_first), np.cumsum(is_first) - 1

    def shown(rows: Index, end: Ticks, sums: Sums) -> tuple[Ticks, Stretches]:
        ends = axis.time.copy()
        ends[rows] = end
        return ends[at], Stretches(slot[rows], rows, axis.group, axis.time, ends, sums)

    (old_end, was), (new_end, now) = shown(*old), shown(*new)
    return Change(axis.time[at], old_end, new_end, was, now, write_back)


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
