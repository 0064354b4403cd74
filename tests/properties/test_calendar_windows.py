"""Random plans with windows of a calendar, around changes of clocks, against the oracle.

The other random plans run on ticks. Here the ticks 0 to 8 stand for moments some hours or days apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan
from tests.properties.step import History, StepKind
from tests.properties.test_random_plans import KNOWN, Turns, check_plan, interleavings

import recension as rc
from recension import denote
from recension.core.calendar import DAY
from recension.core.events import Cti, Element, Retract
from recension.core.ticks import duration, instant
from recension.core.time_kind import of_kind
from recension.testing.modules import Echo, Total

HOUR = DAY // 24


@dataclass(frozen=True)
class Place:
    """A stretch of time in a zone, and the windows over it."""

    tz: str
    since: str
    step: str
    size: str
    hop: str
    means: tuple[int, int, Literal["day", "week", "month"]]
    offset: str | int = 0
    offset_means: tuple[int, int] = (0, 0)

    def at(self, tick: int) -> int:
        """The moment that a tick stands for."""
        if abs(tick) >= 2**62:
            return tick
        start = int(instant(f"{self.since}T00:00Z"))
        return of_kind(start + tick * duration(self.step), pa.timestamp("us", self.tz))

    def element(self, element: Element) -> Any:
        """An element at the moments that its ticks stand for."""
        if isinstance(element, Cti):
            return Cti(self.at(element.t))
        names = ("vs", "ve", "new_ve") if isinstance(element, Retract) else ("vs", "ve")
        moments: Any = {name: self.at(getattr(element, name)) for name in names}
        return replace(element, **moments)

    def windows(self, s: Any) -> Any:
        until = datetime(1970, 1, 1) + timedelta(microseconds=int(self.at(11)))
        return s.hopping(self.size, self.hop, offset=self.offset, until=f"{until.isoformat()}Z", tz=self.tz)

    def oracle(self) -> denote.Windows:
        return denote.calendar_windows(*self.means, self.tz, *self.offset_means, until=int(self.at(11)))

    def __repr__(self) -> str:
        return f"{self.size}/{self.hop} {self.tz} {self.since}"


PLACES = [
    Place("Pacific/Apia", "2011-12-28", "13h", "1d", "1d", (1, 1, "day")),  # 30 December is left out
    Place("Pacific/Apia", "2011-12-28", "13h", "2d", "1d", (2, 1, "day")),
    Place("Europe/Paris", "2024-03-30", "5h", "1d", "1d", (1, 1, "day"), "2h 30m", (5 * HOUR // 2, 0)),
    Place("America/Havana", "2024-11-02", "7h", "P1D", "P1D", (1, 1, "day")),  # midnight comes twice
    Place("America/Sao_Paulo", "2017-10-13", "9h", "3d", "1d", (3, 1, "day")),  # no midnight on the 15th
    Place("Asia/Kathmandu", "1985-12-20", "3d", "2w", "1w", (2, 1, "week"), "-1d", (-DAY, 0)),
    Place("America/New_York", "2024-02-20", "13d", "1mo", "1mo", (1, 1, "month")),
    Place(
        "Europe/London", "1971-09-01", "20d", "1q", "1mo", (3, 1, "month"), "14d 6h", (14 * DAY + 6 * HOUR, 0)
    ),
    Place("UTC", "1969-02-10", "60d", "1y", "1q", (12, 3, "month"), "1mo", (0, 1)),
]
# Steps that name no times.
OTHER_NAMES = {
    "where",
    "union",
    "distinct",
    "clip",
    "join inner",
    "join anti",
    "deletes",
    "sum eager by k",
    "count perfect",
    "first over 1 starts eager by k",
    "coalesce",
    "cleanse",
    "apply distinct",
}
OTHERS = [step for step in STEPS if step.name in OTHER_NAMES]


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
            return denote.window_apply(s, windows, echo, "left", "keep")
        named = "sum" if agg == "total" else agg
        return denote.window_aggregate(s, windows, denote.agg(v=getattr(denote, named)("v")))

    def means(s: History, t: History) -> History:
        if grouped:
            return denote.grouped(s, "k", meaning)
        return denote.select(meaning(s), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{agg} over {place} {speculate}{' by k' if grouped else ''}"
    return StepKind(label, build, means, is_immediate=speculate == "eager")


def echo(events: History, window: Any) -> History:
    return [rc.Event({"v": e.payload["v"]}, e.vs, e.ve) for e in events]


class PlanOfTimes(Plan):
    """A plan whose meaning is told in ticks."""

    def meaning(self, s: History, t: History) -> History:
        return super().meaning(in_ticks(s), in_ticks(t))


def in_ticks(history: History) -> History:
    return [rc.Event(e.payload, int(e.vs), int(e.ve)) for e in history]


def moved(place: Place, turns: Turns) -> Turns:
    return [(name, [place.element(element) for element in elements]) for name, elements in turns]


@pytest.mark.parametrize("place", PLACES, ids=repr)
@given(st.data())
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_random_plans(place: Place, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    agg = data.draw(st.sampled_from(["sum", "count", "min", "last", "total", "echo"]))
    speculate = data.draw(st.sampled_from(["perfect", "ordered", "eager"]))
    own = step_over(place, agg, speculate, grouped=data.draw(st.booleans()))
    before, after = (data.draw(st.lists(st.sampled_from(OTHERS), max_size=1)) for _ in range(2))
    turns = moved(place, data.draw(interleavings(known)))
    check_plan(PlanOfTimes((*before, own, *after)), known, turns, data.draw(st.integers(0, len(turns))))
