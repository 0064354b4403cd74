"""Due: after every step what is shown is what has come due, in any order, batching and with restores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core.batch import from_elements
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.due import By, DueStep, shown_after
from recension.operators.base import Operator
from recension.operators.due import AHEAD, Due, DueByClock, DueByOther, Progress
from recension.operators.state.start_times import StartTimes
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

TIMES = pa.schema([("rows", pa.int64())])
MAKE: dict[By, Callable[[int | None], Operator]] = {
    "cti": lambda ahead: Due(SCHEMA),
    "clock": lambda ahead: DueByClock(SCHEMA),
    "other": lambda ahead: DueByOther(SCHEMA, ahead),
}


@dataclass
class Feeding:
    """An operator that is fed steps, and the steps."""

    by: By
    ahead: int | None
    steps: list[DueStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drive = Driver(lambda: MAKE[self.by](self.ahead), SCHEMA, TIMES)
        self._progress = Progress(TIMES, self.ahead)

    def take(self, step: DueStep) -> None:
        """As the engine does: the clock, then the stream, then the other; then the ctis of both."""
        self.steps.append(step)
        if step.clock is not None and self.by == "clock":
            self.drive.tick(step.clock)
        self.drive.feed([e for e in step.stream if not isinstance(e, Cti)])
        if self.by == "other":
            rows = [e for e in step.other if not isinstance(e, Cti)]
            seen = self._progress.on_batch(0, from_elements(rows, SCHEMA)).to_elements()
            self.drive.feed([*seen, *(e for e in step.other if isinstance(e, Cti))], port=1)
        self.drive.feed([e for e in step.stream if isinstance(e, Cti)])

    def check(self) -> None:
        """What is shown, and the CTI, against the denotation."""
        *_, shown = shown_after(self.steps, self.by, self.ahead)
        there = self.drive.input_history()
        assert_equivalent(self.drive.history(), shown)
        held = _held(there, shown)
        expected = min([self.drive.input_cti(), *(event.vs for event in held)])
        assert self.drive.cti == expected
        assert self.drive.operator.state_rows() == len(held)


def _held(there: list[Event], shown: list[Event]) -> list[Event]:
    held = list(there)
    for event in shown:
        held.remove(event)
    return held


ROWS = st.lists(st.tuples(st.sampled_from("iiirc"), st.integers(0, 15)), max_size=8)


def _others(drawn: list[tuple[str, int]]) -> list[Element]:
    """A valid stream: rows come, may go again, and CTIs come before none of them."""
    found: list[Element] = []
    there: list[int] = []
    last, row = BEGINNING, {"k": "a", "v": 1}
    for kind, number in drawn:
        if kind == "c":
            last = max(last, number)
            found.append(Cti(last))
        elif kind == "i" and number >= last:
            there.append(number)
            found.append(Insert(row, number, FOREVER))
        elif kind == "r" and (gone := [start for start in there if start >= last]):
            there.remove(gone[number % len(gone)])
            found.append(Retract(row, gone[number % len(gone)], FOREVER, gone[number % len(gone)]))
    return found


@st.composite
def steps(draw: st.DrawFn) -> list[DueStep]:
    """Batches of both streams in turn, and readings of a clock that may go back."""
    ours = draw(batchings(draw(physical_streams(draw(histories()), closed=draw(st.booleans())))))
    theirs = draw(batchings(_others(draw(ROWS))))
    found: list[DueStep] = []
    while ours or theirs:
        clock, which = draw(st.tuples(st.none() | st.integers(-2, 15), st.sampled_from([3, 1, 2])))
        mine = ours.pop(0) if which & 1 and ours else []
        other = theirs.pop(0) if which & 2 and theirs else []
        found.append(DueStep(mine, other, clock))
    return found


@pytest.mark.parametrize("by", MAKE)
@given(st.data(), st.sampled_from([None, 1, 3]))
def test_after_every_step_what_is_due_is_shown(by: By, data: st.DataObject, ahead: int | None) -> None:
    feeding = Feeding(by, ahead)
    for step in data.draw(steps()):
        feeding.take(step)
        feeding.check()
        if data.draw(st.booleans()):
            feeding.drive.restore_twin()


@given(st.lists(ROWS, max_size=5), st.sampled_from([None, 1, 3]), st.integers(2, 4))
def test_parts_of_rows_say_of_time_what_all_say(
    batches: list[list[tuple[str, int]]], ahead: int | None, parts: int
) -> None:
    """In shards each sums up its own rows; together that is as good as all of them."""
    whole, summed = StartTimes(ahead), StartTimes(ahead)
    for elements in map(_others, batches):
        rows = [e for e in elements if not isinstance(e, Cti)]
        whole.take(*StartTimes.sum_up(from_elements(rows, SCHEMA), ahead))
        shares = [[e for e in rows if e.vs % parts == part] for part in range(parts)]
        seen = [StartTimes.sum_up(from_elements(share, SCHEMA), ahead) for share in shares]
        starts, counts = zip(*seen, strict=True)
        summed.take(np.concatenate(starts), np.concatenate(counts))
        ctis = [e.t for e in elements if isinstance(e, Cti)]
        for times in (whole, summed):
            times.reach(max(ctis, default=None))
        assert summed.trace() == whole.trace()


def test_one_row_far_ahead_is_counted_and_releases_nothing() -> None:
    feeding = Feeding("other", 10)
    row = {"k": "a", "v": 1}

    def play(*starts: int) -> list[str]:
        before = len(feeding.drive.output)
        feeding.take(DueStep(other=[Insert(row, start, start + 1) for start in starts]))
        feeding.check()
        return [str(e) for e in feeding.drive.output[before:]]

    feeding.take(DueStep([Insert(row, vs, vs + 5) for vs in (4, 90, 3000)]))
    assert play(0) == []
    assert feeding.drive.operator.counts()[AHEAD] == 0, "before there is any time nothing is ahead of it"
    assert len(play(5)) == 1
    assert play(9999) == []
    assert feeding.drive.operator.counts()[AHEAD] == 1
    assert play(95) == [], "a quiet week"
    assert len(play(96)) == 1, "and the next row"
    assert play(9999 - 11) == []
    assert len(play(9999 - 5)) == 1
    assert feeding.drive.operator.counts()[AHEAD] == 3, "the last did not wait"


def test_a_restated_row_does_not_bear_itself_out() -> None:
    """A mistyped year whose other columns are corrected is still one row."""
    feeding = Feeding("other", 10)
    old, new = {"k": "a", "v": 1}, {"k": "a", "v": 2}
    feeding.take(DueStep([Insert(old, 50, 60)], [Insert(old, 0, 1), Insert(old, 1, 2)]))
    feeding.take(DueStep(other=[Insert(old, 999, FOREVER)]))
    feeding.take(DueStep(other=[Retract(old, 999, FOREVER, 999), Insert(new, 999, FOREVER)]))
    feeding.check()
    assert feeding.drive.history() == []


def test_events_at_the_ends_of_time() -> None:
    feeding, row = Feeding("other", None), {"k": "a", "v": 1}
    events: list[Element] = [Insert(row, vs, FOREVER) for vs in (BEGINNING, FOREVER - 1)]
    for step in (
        DueStep(events),
        DueStep(other=[Insert(row, BEGINNING, 5)]),
        DueStep(other=[Cti(FOREVER - 1)]),
        DueStep(other=[Cti(FOREVER)]),
    ):
        feeding.take(step)
        feeding.check()
