"""Random plans as pipelines of fragments, rehearsed without Spark, against the oracle.

Any number of shards, any worker for any micro-batch, attempts that fail half way.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.places import PLACES, Place, as_timestamps, step_over
from tests.properties.plans import Plan, each_step, plans
from tests.properties.step import History
from tests.properties.test_calendar_windows import PlanOfTimes, moved
from tests.properties.test_random_plans import KNOWN, interleavings
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.plan.fragments import describe_fragments
from recension.plan.properties import Properties
from recension.runners.spark.stream import processor
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA


class Play:
    """A rehearsal fed step by step from two sources, its output followed in plain Python."""

    def __init__(self, plan: Plan, known: Properties, shards: int) -> None:
        self.plan = plan
        s, t = (rc.source(name, SCHEMA, properties=known) for name in ("s", "t"))
        self.rehearsal = Rehearsal([plan.build(s, t).plan, s.plan, t.plan], shards)
        self.inputs = {"s": StreamModel(), "t": StreamModel()}
        self.shown = StreamModel()
        self.state_rows = 0

    def feed(self, source: str, elements: list[Element], *, fails: bool) -> None:
        batches = [from_elements(elements, SCHEMA)]
        if fails:
            self.rehearsal.turn({source: batches}, fails=True)
        packets = self.rehearsal.turn({source: batches})
        self.state_rows = self.rehearsal.state_rows(packets)
        for element in elements:
            self.inputs[source].take(element)
        for element in self.rehearsal.output(packets).to_elements():
            assert (fault := self.shown.fault(element)) is None, f"{element} {fault}"
            self.shown.take(element)


def shown_in(place: Place | None, play: Play) -> History:
    """What is shown now; a shard knows times as ticks."""
    shown = play.shown.events()
    return shown if place is None else as_timestamps(shown, place.clock.tz)


def _check(plan: Plan, known: Properties, data: st.DataObject, place: Place | None = None) -> None:
    play = Play(plan, known, data.draw(st.integers(1, 3), label="shards"))
    note(describe_fragments(play.rehearsal.plan.fragments))
    workers: list[dict[processor.EngineKey, processor.ParkedEngine]] = [{}, {}]
    turns = data.draw(interleavings(known))
    for source, elements in turns if place is None else moved(place, turns):
        # Another worker may hold the engines of an earlier micro-batch, or none.
        worker = workers[data.draw(st.integers(0, 1))]
        processor._parked.clear()
        processor._parked.update(worker)
        play.feed(source, elements, fails=data.draw(st.booleans()))
        worker.clear()
        worker.update(processor._parked)
        if plan.is_immediate:
            meaning = plan.meaning(play.inputs["s"].events(), play.inputs["t"].events())
            assert_equivalent(shown_in(place, play), meaning)
    meaning = plan.meaning(play.inputs["s"].events(), play.inputs["t"].events())
    assert_equivalent(shown_in(place, play), meaning)
    assert play.state_rows == 0


@given(st.data())
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    _check(data.draw(plans()), data.draw(st.sampled_from(KNOWN)), data)


@pytest.mark.parametrize("step", each_step(), ids=repr)
@given(st.data())
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
def test_each_operator(step: object, data: st.DataObject) -> None:
    _check(Plan((step,)), data.draw(st.sampled_from(KNOWN)), data)  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_calendar_windows(data: st.DataObject) -> None:
    place, agg = data.draw(st.sampled_from(PLACES)), data.draw(st.sampled_from(["sum", "min", "total"]))
    speculate = data.draw(st.sampled_from(["perfect", "eager"]))
    step = step_over(place, agg, speculate, grouped=data.draw(st.booleans()))
    _check(PlanOfTimes((step,), place), data.draw(st.sampled_from(KNOWN)), data, place)
