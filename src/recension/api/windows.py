"""Windows: the time axis cut into intervals, with one answer for each that holds an event."""

from __future__ import annotations

from typing import Generic, TypeVar

from recension.api.base import StreamBase
from recension.core.ticks import DurationLike, TimeLike, duration, instant
from recension.plan.aggregate import SnapshotAggregate, Speculate
from recension.plan.aggregates import Aggregate
from recension.plan.span import Outputs
from recension.plan.window import WindowAggregate, Windows

S = TypeVar("S", bound=StreamBase)


class WindowedStream(Generic[S]):
    """A stream seen through windows; an event belongs to every window it overlaps."""

    __slots__ = ("_keys", "_stream", "_windows")

    def __init__(self, stream: S, keys: Outputs, windows: Windows) -> None:
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
        node = WindowAggregate(plain.input, plain.keys, plain.aggregates, plain.speculate, self._windows)
        return self._stream._then(node)

    def __repr__(self) -> str:
        return f"<WindowedStream of {self._stream.plan.label}: {self._windows}>"


def windows_of(
    size: DurationLike, hop: DurationLike, offset: DurationLike, until: TimeLike | None
) -> Windows:
    """The grid, from what a user writes."""
    end = None if until is None else instant(until)
    return Windows(duration(size), duration(hop), duration(offset), end)
