"""Windows: the time axis cut into intervals, with one answer for each that holds an event."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from recension.api.base import StreamBase
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.plan.aggregate import SnapshotAggregate, Speculate
from recension.plan.aggregates import Aggregate
from recension.plan.count_window import CountAggregate, CountWindows
from recension.plan.span import Outputs
from recension.plan.window import WindowAggregate, Windows

S = TypeVar("S", bound=StreamBase)

WindowKind: TypeAlias = Windows | CountWindows | None
"""A grid, counted moments, or the snapshots themselves."""


class WindowedStream(Generic[S]):
    """A stream seen through windows.

    An event belongs to every window it overlaps, and to a count window if its start (end) lies in it.
    """

    __slots__ = ("_keys", "_stream", "_windows")

    def __init__(self, stream: S, keys: Outputs, windows: WindowKind) -> None:
        self._stream, self._keys, self._windows = stream, keys, windows

    def agg(self, *rows: Aggregate, speculate: Speculate = "perfect", **named: Aggregate) -> S:
        """One row for every window that holds an event, as long as the window.

        ``perfect`` and ``ordered`` show a window once it has ended, ``eager`` at once, revising it later.

        >>> import recension as rc
        >>> s = rc.source("s", {"x": "int64"})
        >>> sums = s.tumbling(5).agg(total=rc.sum("x"))
        >>> rc.run(sums, {"s": [rc.Insert({"x": 1}, 1, 2), rc.Insert({"x": 2}, 3, 8)]}, close=True).show()
        _vs  _ve  total
        0    5    3
        5    10   2
        """
        from recension.api.aggregation import aggregated

        plain = aggregated(self._stream.plan, self._keys, rows, named, speculate)
        assert isinstance(plain, SnapshotAggregate)
        return self._stream._then(_over(plain, self._windows))

    def __repr__(self) -> str:
        windows = "snapshots" if self._windows is None else self._windows
        return f"<WindowedStream of {self._stream.plan.label}: {windows}>"


def _over(plain: SnapshotAggregate, windows: WindowKind) -> SnapshotAggregate:
    """The aggregate over these windows instead of snapshots."""
    parts = plain.input, plain.keys, plain.aggregates, plain.speculate
    match windows:
        case Windows():
            return WindowAggregate(*parts, windows)
        case CountWindows():
            return CountAggregate(*parts, windows)
    return plain


def windows_of(
    size: DurationLike, hop: DurationLike, offset: DurationLike, until: TimeLike | None
) -> Windows:
    """The grid, from what a user writes."""
    end = None if until is None else instant(until)
    return Windows(duration(size), duration(hop), duration(offset), end)
