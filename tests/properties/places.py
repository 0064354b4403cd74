"""Places whose clocks change, and windows of the calendar there, with what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
from tests.properties.step import History, StepKind

import recension as rc
from recension import denote
from recension.core.calendar import DAY
from recension.core.time_kind import of_kind
from recension.testing.clocks import Clock
from recension.testing.modules import Echo, Total

HOUR = DAY // 24
LAST = 11
"""No window starts at this tick or later."""


@dataclass(frozen=True)
class Place:
    """A clock, and windows over its time; ``means`` are size and hop as the oracle has them."""

    clock: Clock
    size: str
    hop: str
    means: tuple[int, int, Literal["day", "week", "month"]]
    offset: str | int = 0
    offset_means: tuple[int, int] = (0, 0)

    @property
    def _tz(self) -> str:
        assert self.clock.tz is not None
        return self.clock.tz

    def windows(self, s: Any) -> Any:
        """The windows over a stream or its groups."""
        until = datetime(1970, 1, 1) + timedelta(microseconds=int(self.clock.at(LAST)))
        return s.hopping(self.size, self.hop, offset=self.offset, until=f"{until.isoformat()}Z", tz=self._tz)

    def oracle(self) -> denote.Windows:
        """What they mean."""
        until = int(self.clock.at(LAST))
        return denote.calendar_windows(*self.means, self._tz, *self.offset_means, until=until)

    def __repr__(self) -> str:
        return f"{self.size}/{self.hop} {self.clock.tz} {self.clock.since}"


def as_timestamps(history: History, tz: str | None) -> History:
    """The same times as timestamps of a zone."""
    kind = pa.timestamp("us", tz)
    return [rc.Event(e.payload, of_kind(int(e.vs), kind), of_kind(int(e.ve), kind)) for e in history]


def _place(tz: str, since: str, step: str, *windows: Any) -> Place:
    return Place(Clock(tz=tz, since=since, step=step), *windows)


PLACES = [
    _place("Pacific/Apia", "2011-12-28", "13h", "1d", "1d", (1, 1, "day")),  # 30 December is left out
    _place("Pacific/Apia", "2011-12-28", "13h", "2d", "1d", (2, 1, "day")),
    _place("Europe/Paris", "2024-03-30", "5h", "1d", "1d", (1, 1, "day"), "2h 30m", (5 * HOUR // 2, 0)),
    _place("America/Havana", "2024-11-02", "7h", "P1D", "P1D", (1, 1, "day")),  # midnight comes twice
    _place("America/Sao_Paulo", "2017-10-13", "9h", "3d", "1d", (3, 1, "day")),  # no midnight on the 15th
    _place("Asia/Kathmandu", "1985-12-20", "3d", "2w", "1w", (2, 1, "week"), "-1d", (-DAY, 0)),
    _place("America/New_York", "2024-02-20", "13d", "1mo", "1mo", (1, 1, "month")),
    _place(
        "Europe/London", "1971-09-01", "20d", "1q", "1mo", (3, 1, "month"), "14d 6h", (14 * DAY + 6 * HOUR, 0)
    ),
    _place("UTC", "1969-02-10", "60d", "1y", "1q", (12, 3, "month"), "1mo", (0, 1)),
    # After the last change that the files of zones list, a rule says when clocks change.
    _place("Europe/Paris", "2051-03-25", "7h", "1d", "1d", (1, 1, "day")),
    _place("America/New_York", "2089-11-04", "11h", "2d", "1d", (2, 1, "day")),
]


def step_over(place: Place, agg: str, speculate: Any, *, grouped: bool) -> StepKind:
    """Windows of the place, and an aggregate of the library or a module over them."""

    def build(s: Any, t: Any) -> Any:
        windows = place.windows(s.group_by("k") if grouped else s)
        if agg == "echo":
            made = windows.clip_input("left").stamp_output("keep").apply(Echo, speculate=speculate)
        else:
            answer: Any = Total() if agg == "total" else getattr(rc, agg)("v")
            made = windows.agg(v=answer, speculate=speculate)
        return made if grouped else made.select(k=rc.lit("all"), v=rc.col("v"))

    def meaning(s: History) -> History:
        windows = place.oracle()
        if agg == "echo":
            return denote.window_apply(s, windows, _echo, "left", "keep")
        named = "sum" if agg == "total" else agg
        return denote.window_aggregate(s, windows, denote.agg(v=getattr(denote, named)("v")))

    def means(s: History, t: History) -> History:
        s = [rc.Event(e.payload, int(e.vs), int(e.ve)) for e in s]
        if grouped:
            return denote.grouped(s, "k", meaning)
        return denote.select(meaning(s), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{agg} over {place} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def _echo(events: History, window: Any) -> History:
    return [rc.Event({"v": e.payload["v"]}, e.vs, e.ve) for e in events]
