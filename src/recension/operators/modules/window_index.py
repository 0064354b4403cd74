"""The window index: which windows a batch affects, which come into view, and which are closed for good.

Each kind of window lies on an axis of its own: a grid on that of window numbers, snapshots and count windows
on that of time. Windows are known by their group and by where they begin on the axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.base import Chunks
from recension.operators.snapshot.events import Place
from recension.operators.state.end_points import EndPoints
from recension.operators.state.time_queue import TimeQueue

View: TypeAlias = Literal["ended", "begun", "all"]
"""Which windows are shown: those that have ended by the watermark, those that have begun, or all."""
Ends: TypeAlias = Literal["unseen", "clipped", "seen"]
"""What modules see of the ends of events: nothing, what lies in the window, or all."""


@dataclass(frozen=True, slots=True)
class WindowList:
    """Windows in order of (group, low): ``[low, high)`` on the axis, ``[start, end)`` in time."""

    group: Index
    low: Index
    high: Index
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Affected:
    """The windows to take back and those to show; ``keep`` makes what was looked at the present state."""

    old: WindowList
    new: WindowList
    keep: Callable[[], None]


def nothing_affected() -> Affected:
    """No windows."""
    none = WindowList(*(np.zeros(0, np.int64) for _ in range(5)))
    return Affected(none, none, lambda: None)


@dataclass(frozen=True, slots=True)
class Settled:
    """What a CTI settles, on the axis: windows that end by ``closed`` are closed, events that end by
    ``past`` belong to such windows only, and so do those at the places ``gone`` (group, place).

    ``first_open`` is the start in time of the first window that can still change.
    """

    first_open: int
    closed: int
    past: int
    gone: tuple[Index, Index] | None = None


class WindowIndex(ABC):
    """The windows of all groups."""

    by_start: ClassVar[bool] = True
    """Does the order on the axis follow the starts of events?"""
    is_fixed: ClassVar[bool] = False
    """Are there the same windows whatever events there are?"""

    def __init__(self, points: EndPoints, view: View, ends: Ends) -> None:
        self._points, self._view, self._ends = points, view, ends
        self._upcoming = TimeQueue()
        self.watermark = BEGINNING

    @property
    @abstractmethod
    def place(self) -> Place | None:
        """Where on the axis a lifetime lies, if it is not where it is in time."""

    @abstractmethod
    def affected(self, batch: EventBatch, group: Index, watermark: int) -> Affected:
        """The windows that a batch changes, or that come into view as the watermark moves."""

    @abstractmethod
    def settle(self, t: int, earliest: int) -> Settled:
        """Close what nothing can change any more once a CTI has come to ``t``.

        ``earliest`` is where the first event starts of which modules see an end that may still move.
        """

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
        """Give up the numbers of groups that have nothing left."""
        if (numbers := self._points.retire()) is not None:
            self._upcoming.renumber(numbers)

    def clear(self) -> None:
        """Forget everything but how far time has come."""
        self._points.clear()
        self._upcoming = TimeQueue()

    def __len__(self) -> int:
        return len(self._points)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._points.nbytes() + 16 * len(self._upcoming)

    def to_chunks(self) -> Chunks:
        """The index as named Arrow tables."""
        own = {"upcoming": self._upcoming.to_arrow(), "watermark": pa.table({"t": [self.watermark]})}
        return {**self._points.to_chunks(), **own}

    def load(self, chunks: Chunks) -> None:
        """Become what `to_chunks` gave."""
        self._points.load(chunks)
        self._upcoming.load(chunks["upcoming"])
        self.watermark = chunks["watermark"]["t"][0].as_py()


def in_view(view: View, watermark: int, start: Ticks, end: Ticks) -> Mask:
    """Which windows are shown at a watermark."""
    if view == "all":
        return np.ones(len(start), np.bool_)
    shown: Mask = (end <= watermark) if view == "ended" else (start <= watermark)
    return shown
