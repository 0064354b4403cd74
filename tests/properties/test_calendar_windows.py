"""Random plans with windows of a calendar, around changes of clocks, against the oracle.

The other random plans run on ticks. Here the ticks 0 to 8 stand for moments some hours or days apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.places import PLACES, Place, as_timestamps, step_over
from tests.properties.plans import STEPS, Plan
from tests.properties.step import History
from tests.properties.test_random_plans import KNOWN, Turns, check_plan, interleavings

import recension as rc

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


@dataclass(frozen=True)
class PlanOfTimes(Plan):
    """A plan over times of a place: what it means is computed in ticks."""

    place: Place

    def meaning(self, s: History, t: History) -> History:
        return as_timestamps(super().meaning(in_ticks(s), in_ticks(t)), self.place.clock.tz)


def in_ticks(history: History) -> History:
    return [rc.Event(e.payload, int(e.vs), int(e.ve)) for e in history]


def moved(place: Place, turns: Turns) -> Turns:
    return [(name, [place.clock.element(element) for element in elements]) for name, elements in turns]


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
    check_plan(
        PlanOfTimes((*before, own, *after), place), known, turns, data.draw(st.integers(0, len(turns)))
    )
