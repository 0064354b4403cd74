"""The window index: which stretches of windows a batch changes, which come into view, which are closed.

Each kind of window lies on an axis of its own: windows of a grid on that of window numbers, snapshots and
count windows on that of time. A stretch is a part of a group's axis in which windows hold the same events;
it carries the sums that the measure keeps.

    axis              0    1    2    3    4    5    6
    events                 |---------|
                                |--------------|
    stretches              |----|----|---------|          one answer each, however many windows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask
from recension.core.records import record
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, Ticks
from recension.core.window_limit import TooManyWindowsError
from recension.operators.base import Chunks
from recension.operators.state.end_points import EndPoints
from recension.operators.state.leaf_table import LeafTable
from recension.operators.state.time_queue import TimeQueue
from recension.operators.windowed.double_double import Floats
from recension.operators.windowed.events import Placement
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import AxisSide, Sums, WorkingSet, pair_columns

View: TypeAlias = Literal["ended", "begun", "present", "all"]
"""Which windows are shown: those that have ended by the watermark; those that have begun; likewise, the last
as if it never ended (snapshots only); or all."""
Ends: TypeAlias = Literal["unseen", "clipped", "seen"]
"""What answers depend on of the ends of events: nothing, what lies in the window, or all."""
Moves: TypeAlias = Literal["none", "shorten", "both"]
"""How the end of a window that keeps its content may move: not at all, to earlier times, or to any."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What an index is to keep and to show; ``ints`` and ``pairs`` count the measure's columns."""

    key_schema: pa.Schema
    view: View
    ends: Ends = "unseen"
    ints: int = 0
    pairs: int = 0


@record
class Stretches:
    """Stretches that were or are shown, in order of (group, low); their content holds on ``[low, high)``.

    ``slot`` numbers the stretches of a change. ``rows`` are their places on the merged axis, whose columns
    are read only when needed.
    """

    slot: Index
    rows: Index
    axis_group: Index
    axis_low: Index
    axis_high: Index
    sums: Sums

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def group(self) -> Index:
        """The group of each."""
        return self.axis_group.take(self.rows)

    @property
    def low(self) -> Index:
        """Where each begins on the axis."""
        return self.axis_low[self.rows]

    @property
    def high(self) -> Index:
        """Where its content ends."""
        return self.axis_high[self.rows]


@record
class WindowChange:
    """What to retract and what to insert; ``write_back`` stores it as the present state.

    For each slot: the stretch begins at ``low``, before and after. It was shown up to ``old_end`` and is now
    shown up to ``new_end``; an end that is not after ``low`` means that it is not shown.
    """

    low: Index
    old_end: Index
    new_end: Index
    old: Stretches
    new: Stretches
    write_back: Callable[[], None]

    def __len__(self) -> int:
        return len(self.old) + len(self.new)


@record
class ExpandedWindows:
    """Windows one by one: number of the stretch, ``[low, high)`` on the axis, ``[start, end)`` in time."""

    stretch: Index
    low: Index
    high: Index
    start: Ticks
    end: Ticks

    def count_before(self, stretch: int) -> int:
        """How many windows are of earlier stretches."""
        return int(self.stretch.searchsorted(stretch))


@record
class Closing:
    """What a CTI closes, on the axis: windows that end by ``closed`` are closed, events that end by
    ``past`` belong to such windows only, and so do those in the places ``gone`` (group, from, to).

    ``first_open`` is the start in time of the first window that can still change. Where the ends of windows
    may move, nothing changes before ``until``.
    """

    first_open: int
    until: int
    closed: int
    past: int
    gone: tuple[Index, Index, Index] | None = None


class WindowIndex(ABC):
    """The windows of all groups."""

    by_start: bool = True
    """Does the order on the axis follow the starts of events?"""
    is_fixed: ClassVar[bool] = False
    """Are there the same windows whatever events there are? Then a stretch may stand for many."""
    is_lived_through: ClassVar[bool] = True
    """Do the events of a window live through all of it?"""
    moves: Moves = "none"
    emits_in_order: bool = True
    """Are changes put in order of time over all groups?"""

    def __init__(self, points: EndPoints, spec: IndexSpec) -> None:
        self._points, self._view, self._ends = points, spec.view, spec.ends
        self._upcoming = TimeQueue()
        self.watermark = BEGINNING

    @property
    @abstractmethod
    def place(self) -> Placement | None:
        """Puts lifetimes on the axis of windows; None if that axis is time itself."""

    @abstractmethod
    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> WindowChange:
        """The stretches that a batch changes, or that come into view as the watermark moves.

        ``amounts`` are what each event adds to the measure's columns.
        """

    def expand(self, low: Index, high: Index) -> ExpandedWindows:
        """The windows of stretches; one for each stretch, unless `is_fixed`."""
        return ExpandedWindows(np.arange(len(low)), low, high, low, high)

    @abstractmethod
    def close(self, t: int, earliest: int) -> Closing:
        """Close what nothing can change any more once a CTI has come to ``t``.

        ``earliest`` is where the first event starts whose end matters and may still move.
        """

    def check_end(self) -> None:
        """Raise what the end of time would raise. Windows made by the data always end."""

    def refuse_endless(self) -> None:
        """Raise what an event that never ends would raise at the end of time."""

    def is_endless(self) -> bool:
        """Does a window go on for ever, as things are?"""
        return False

    def check_last(self, batch: EventBatch) -> None:
        """Raise what the end of the stream would raise after this batch, if certain."""

    def name_event(self, why: TooManyWindowsError, batch: EventBatch) -> TooManyWindowsError:
        """The error with the event that fills so many windows, if it is in the batch."""
        return why

    def widen(self, pairs: int) -> None:
        """Keep so many pairs from now on: those that come are 0 for all that is there."""
        for table in self._tables():
            table.widen(pair_columns(pairs))

    def count_pairs(self) -> int:
        """How many pairs are kept."""
        return sum(name.startswith("high") for name in self._tables()[0].columns)

    def read_pair(self, number: int) -> list[Floats]:
        """Both parts of a pair, of all that is kept."""
        tables = [table.snapshot() for table in self._tables()]
        return [table[f"{part}{number}"].to_numpy() for table in tables for part in ("high", "low")]

    def _tables(self) -> list[LeafTable]:
        """Where sums are kept."""
        return [self._points.table]

    def number(self, keys: pa.RecordBatch, size: int) -> Index:
        """The group of each key row."""
        return self._points.number(keys, size)

    def keys_of(self, group: Index) -> pa.RecordBatch:
        """The key rows of groups."""
        return self._points.keys_of(group)

    def group_hash(self, group: Index) -> Hashes:
        """A hash of each group's key, which stays when numbers change."""
        return self._points.group_hash(group)

    def retire(self) -> None:
        """Forget all groups if none has end points left."""
        if self._points.retire():
            self._upcoming = TimeQueue()

    def clear(self) -> None:
        """Forget everything but how far time has come."""
        self._points.clear()
        self._upcoming = TimeQueue()

    def trace(self) -> tuple[int, ...]:
        """How far time has come, if what is shown depends on it."""
        return (self.watermark,) if self._view != "all" else ()

    def __len__(self) -> int:
        return len(self._points)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._points.nbytes() + 16 * len(self._upcoming)

    def snapshot(self) -> Chunks:
        """The index as named Arrow tables."""
        own = {"upcoming": self._upcoming, "watermark": pa.table({"t": [self.watermark]})}
        return {**self._points.snapshot(), **own}

    def restore(self, chunks: Chunks) -> None:
        """Become what `snapshot` gave."""
        self._points.restore(chunks)
        self._upcoming.restore(chunks["upcoming"])
        self.watermark = chunks["watermark"]["t"][0].as_py()

    def _move_to(self, watermark: int) -> WindowChange:
        """Nothing changes but the watermark."""
        at = np.zeros(0, np.int64)
        none = Stretches(at, at, at, at, at, Sums(at, [], []))
        return WindowChange(at, at, at, none, none, lambda: self._set_watermark(watermark))

    def _set_watermark(self, watermark: int) -> None:
        self.watermark = watermark


def changed_stretches(
    work: WorkingSet, at: Index, low: Index, ends: tuple[Index, Index], write_back: Callable[[], None]
) -> WindowChange:
    """The stretches at some places of the merged axis, shown from ``low`` to ``ends`` before and after."""
    own, old_end, new_end = low.take(at), ends[0].take(at), ends[1].take(at)

    def stretches_of(side: AxisSide, end: Index) -> Stretches:
        slot = (end > own).nonzero()[0]
        rows = at.take(slot)
        return Stretches(slot, rows, work.group, low, side.following, side.sums_at(rows))

    return WindowChange(
        own, old_end, new_end, stretches_of(work.old, old_end), stretches_of(work.new, new_end), write_back
    )


def is_in_view(view: View, watermark: int, start: Ticks, end: Ticks) -> Mask:
    """Which windows are shown at a watermark."""
    if view == "all":
        return np.ones(len(start), np.bool_)
    is_shown: Mask = (end <= watermark) if view == "ended" else (start <= watermark)
    return is_shown
