"""How many windows one event may fill: a hop that is too small is refused before it takes all memory.

A result over several windows in a row that hold the same events is computed once and written out for each.
So the length of such a stretch is known before anything is made of it. A limit is no part of what a query
means: raising it changes neither its answers nor what its checkpoints are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from recension.core.batch import Index
from recension.core.errors import RecensionError, SchemaError
from recension.core.ticks import Ticks
from recension.core.time_kind import describe_time_in_message, messages_show_timestamps

MAX_WINDOWS: Final = 1_000_000
"""Of one event: some 150 MB and half a second."""
EVENTS: Final = 50
"""A step may give so many times as many windows as one event may fill."""
FROM: Final = "in the windows from"
ADVICE: Final = (
    "take a larger hop, shorter events (set_duration), a last start (until=) or CTIs that come more often, "
    "or raise max_windows="
)


class TooManyWindowsError(RecensionError):
    """An event would fill more windows, ``low`` to ``high``, than the query allows."""

    def __init__(self, limit: WindowLimit, event: str, low: int, high: int) -> None:
        self.limit, self.low, self.high = limit, low, high
        super().__init__(limit.message(event, f"{high - low:,}"))

    def with_event(self, event: str) -> TooManyWindowsError:
        """The same, with the event now that it is known."""
        return TooManyWindowsError(self.limit, event, self.low, self.high)


@dataclass(frozen=True, slots=True)
class WindowLimit:
    """``most`` windows from one event in ``step``, and 50 times as many at once.

    ``with_units`` is the step with units for its durations, for messages beside timestamps.
    """

    step: str = "windows"
    most: int = MAX_WINDOWS
    with_units: str = ""

    @property
    def _where(self) -> str:
        return self.with_units if self.with_units and messages_show_timestamps() else self.step

    def message(self, event: str, count: str) -> str:
        """That an event fills too many windows."""
        place, most = f"{self._where}: {event}", f"{self.most:,}"
        return f"{place} would fill {count} windows, the limit is max_windows={most}; {ADVICE}"

    def check(self, low: Index, high: Index, start: Callable[[Index], Ticks]) -> None:
        """Refuse stretches of windows ``[low, high)`` that are too long; ``start`` tells when one begins."""
        if not len(low):
            return
        # As floats, since differences may not fit into int64; they need not be exact.
        sizes = high.astype(np.float64) - low
        if (largest := float(sizes.max())) <= self.most and largest * len(sizes) <= EVENTS * self.most:
            return
        sizes = np.maximum(sizes, 0)
        at = int(np.argmax(sizes))
        if sizes[at] > self.most:
            begins = describe_time_in_message(int(start(low[at : at + 1])[0]))
            raise TooManyWindowsError(self, f"an event {FROM} {begins}", int(low[at]), int(high[at]))
        if (total := float(sizes.sum())) > EVENTS * self.most:
            raise RecensionError(
                f"{self._where}: a batch would give {total:,.0f} windows at once, the limit is "
                f"{EVENTS} times max_windows={self.most:,}; give smaller batches, {ADVICE}"
            )

    def check_each(self, size: int, hop: int) -> None:
        """Refuse windows of which every event, however short, would fill too many."""
        if (each := -(-size // hop)) > self.most:
            raise SchemaError(
                f"{self.step}: every event would be in {each:,} windows or more, the limit is "
                f"max_windows={self.most:,}; take a larger hop or slide, or raise max_windows="
            )


USUAL: Final = WindowLimit()


def check_limit(most: Any, place: str) -> int:
    """What a user gave as ``max_windows``."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise SchemaError(f"{place}: max_windows is a number of windows, 1 or more, not {most!r}")
    return most
