"""Any module of a family, over any windows, under any policy, in any batches: output, CTIs and state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from tests.modules.family import CUTS, MODULES, UNTIL, Cut, Echo, Last, whole

import recension as rc
from recension import denote
from recension.core.events import Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.grouped import groups as groups_of
from recension.lowering import operator_of
from recension.operators.modules.measure import Modules
from recension.operators.windowed.operator import WindowedOperator
from recension.plan.properties import Properties
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams


@dataclass(frozen=True)
class Case:
    """A query with a module, and what it means."""

    module: Any
    cut: Cut
    clip: Any
    stamp: Any
    grouped: bool
    speculate: Any
    recompute: bool
    shrinks: bool

    @property
    def view(self) -> str:
        if self.speculate == "eager":
            return "all"
        return "begun" if self.stamp == "time_bound" else "ended"

    @property
    def sees_ends(self) -> bool:
        return self.module.is_time_sensitive and self.clip in ("none", "left")

    def plan(self) -> Any:
        source = rc.source("s", SCHEMA, properties=Properties(is_shrink_only=self.shrinks))
        windowed = self.cut.build(source.group_by("k") if self.grouped else source)
        windowed = windowed.clip_input(self.clip)
        if self.module.yields_rows:
            windowed = windowed.stamp_output(self.stamp)
            return windowed.apply(self.module, speculate=self.speculate, recompute=self.recompute).plan
        return windowed.agg(a=self.module(), speculate=self.speculate, recompute=self.recompute).plan

    def meaning(self, history: list[Event], watermark: int, cti: int | None = None) -> list[Event]:
        """What the module says of the windows in view; with a CTI, of those that are not closed by it."""

        def windows(part: list[Event]) -> list[Any]:
            shown = [(w, some) for w, some in self.cut.meaning(part) if self._is_shown(w, watermark)]
            return shown if cti is None else [(w, some) for w, some in shown if not is_closed(w)]

        def is_closed(window: Any) -> bool:
            assert cti is not None
            until, cut = min([cti, *(self.movable(part, cti) for part in parts)]), self.cut
            if cut.size:
                return bool(window.start < min((x - cut.size) // cut.hop + 1 for x in (cti, until)) * cut.hop)
            if cut.n:
                return bool(window.end <= (until if cut.by == "start" else cti))
            if cut.gap:
                return bool(window.end + cut.gap <= cti)
            return bool(window.end < until)

        parts = groups_of(history, "k") if self.grouped else [history]

        def one(part: list[Event]) -> list[Event]:
            seen = [Event({name: e.payload[name] for name in read}, e.vs, e.ve) for e in part]
            return denote.window_apply(seen, windows, whole(self.module()), self.clip, self.stamp)

        read = list(self.module.inputs or SCHEMA.names)
        return denote.grouped(history, "k", one) if self.grouped else one(history)

    def _is_shown(self, window: Any, watermark: int) -> bool:
        if self.view == "all":
            return True
        return bool((window.start if self.view == "begun" else self._shown_at(window)) <= watermark)

    def _shown_at(self, window: Any) -> int:
        return min(int(window.end) + self.cut.gap, FOREVER)

    def first_open(self, history: list[Event], t: int) -> int:
        """Ruling G7: the start of the first window that can still change; windows that are empty can fill."""
        parts = [*groups_of(history, "k"), []] if self.grouped else [history]
        return min([t, *(self._first_open(part, t) for part in parts)])

    def movable(self, part: list[Event], t: int) -> int:
        """Where the first event starts whose end a module sees and that may still move."""
        least = t + 1 if self.shrinks else t
        return min([t, *(e.vs for e in part if self.sees_ends and e.ve >= least)])

    def _first_open(self, part: list[Event], t: int) -> int:
        until, cut = self.movable(part, t), self.cut
        if cut.size:
            first = min(((x - cut.size) // cut.hop + 1) * cut.hop for x in (t, until))
            return t if first >= UNTIL else min(t, first)
        if cut.n:
            by_start = cut.by == "start"
            until = until if by_start else t
            moments = sorted({e.vs if by_start else e.ve for e in part})
            past = [m for m in moments if m < until]
            return past[-(cut.n - 1) :][0] if past and cut.n > 1 else until
        if cut.gap:
            return min([t, *(w.start for w, _ in cut.meaning(part) if w.end + cut.gap > t)])
        held = [w.start for w, _ in cut.meaning(part) if w.start < until <= w.end]
        return min([until, *held])

    def live(self, history: list[Event], t: int) -> int:
        """How many events belong to windows that are not closed, or may come to (ruling G8)."""
        parts = groups_of(history, "k") if self.grouped else [history]
        until = min([t, *(self.movable(part, t) for part in parts)])
        return sum(self._is_live(e, part, until, t) for part in parts for e in part)

    def _is_live(self, e: Event, part: list[Event], until: int, t: int) -> bool:
        cut = self.cut
        if cut.size:
            first = min((x - cut.size) // cut.hop + 1 for x in (t, until)) * cut.hop
            end = min(e.ve, UNTIL)
            return end > first and any(w < end and e.vs < w + cut.size for w in range(first, end, cut.hop))
        if cut.n:
            by_start = cut.by == "start"
            moment = e.vs if by_start else e.ve
            until = until if by_start else t
            past = sorted({m for m in ((x.vs if by_start else x.ve) for x in part) if m < until})
            kept = past[-(cut.n - 1) :] if cut.n > 1 else []
            return moment != FOREVER and (moment >= until or moment in kept)
        if cut.gap:
            return any(w.end + cut.gap > t for w, some in cut.meaning(part) if e in some)
        return e.ve >= until


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Modules with the policies they may have."""
    module, cut = draw(st.sampled_from(MODULES)), draw(st.sampled_from(CUTS))
    clip = draw(st.sampled_from(["full", "none", "left", "right"]))
    stamp = "align"
    if module.yields_rows and module.is_time_sensitive:
        stamp = draw(st.sampled_from(["align", "keep", "clip", "unrestricted", "time_bound"]))
        if stamp == "time_bound":
            # Others change what they said before the change that makes them do so.
            module, clip = (Last if cut.n else Echo), "full"
            if cut.n and cut.by == "end":
                stamp = "keep"
    eager = draw(st.booleans()) and stamp != "time_bound"
    options = {"recompute": draw(st.booleans()), "shrinks": draw(st.booleans())}
    return Case(module, cut, clip, stamp, draw(st.booleans()), "eager" if eager else "perfect", **options)


class Play:
    """A case fed step by step."""

    def __init__(self, case: Case) -> None:
        plan = case.plan()
        self.case, self.driver = case, Driver(lambda: operator_of(plan), SCHEMA)
        self.watermark = BEGINNING

    def feed(self, batch: list[Element]) -> None:
        before, cti = self.driver.input_history(), self.driver.input_cti()
        self.driver.feed(batch)
        starts = [e.vs for e in batch if isinstance(e, Insert)]
        self._tell(before, starts, batch)
        self.watermark = max([self.watermark, self.driver.input_cti(), *starts])
        assert_equivalent(
            self.driver.history(), self.case.meaning(self.driver.input_history(), self.watermark)
        )
        if cti < self.driver.input_cti() < FOREVER:
            self._check_bounds(self.driver.input_cti())

    def _tell(self, before: list[Event], starts: list[int], batch: list[Element]) -> None:
        """Is what is hard being met?"""
        if any(vs < self.watermark for vs in starts):
            event("late arrival")
        if not self.case.cut.size and not self.case.cut.n:
            kind = "session" if self.case.cut.gap else "snapshot"
            was = {w for w, _ in self.case.cut.meaning(before)}
            now = {w for w, _ in self.case.cut.meaning(self.driver.input_history())}
            for old in was - now:
                inside = [w for w in now if old.start <= w.start and w.end <= old.end]
                around = [w for w in now if w.start <= old.start and old.end <= w.end]
                if len(inside) > 1:
                    event(f"split of a {kind}")
                if around:
                    event(f"merge of {kind}s")
        if any(isinstance(e, Retract) for e in batch) and self.case.sees_ends:
            event("an end that modules see moves")

    def _check_bounds(self, t: int) -> None:
        operator, history = self.driver.operator, self.driver.input_history()
        assert isinstance(operator, WindowedOperator)
        modules = operator.measure
        assert isinstance(modules, Modules)
        bound = self.case.first_open(history, t)
        if self.case.stamp == "unrestricted":
            assert self.driver.cti == BEGINNING
        elif self.case.stamp == "time_bound":
            assert self.driver.cti == t
        else:
            # It may have been further before: an event that vanished held nothing.
            assert self.driver.cti == max(bound, self.reached)
            self.reached = self.driver.cti
        assert modules._events._live.count_live() == self.case.live(history, t)
        still_open = len(self.case.meaning(history, self.watermark, t))
        if modules._kept is not None:
            assert modules._kept.count_live() == still_open
        if not self.case.module.yields_rows:  # one row a window, so one state
            assert all(len(states._held) == still_open for states in modules._answers.states)

    reached = BEGINNING


@given(st.data())
@settings(max_examples=settings().max_examples * 2)
def test_output_ctis_and_state(data: st.DataObject) -> None:
    case = data.draw(cases())
    history = data.draw(histories(min_size=1, max_size=5))
    stream = data.draw(physical_streams(history, shrink_only=case.shrinks))
    batches = data.draw(batchings(stream))
    revive_at = data.draw(st.integers(0, len(batches)))
    note(f"{case}")
    event(f"{case.module.__name__}")
    event(f"stamp {case.stamp}")
    play = Play(case)
    for number, batch in enumerate(batches):
        if number == revive_at:
            play.driver.restore_twin()
        play.feed(batch)
    assert play.driver.operator.state_rows() == 0
