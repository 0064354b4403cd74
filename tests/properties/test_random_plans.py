"""Random plans of one to three operators on the local engine against the oracle."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan, each_step, plans
from tests.properties.step import StepKind

import recension as rc
from recension.core.batch import from_elements
from recension.core.classes import classify
from recension.core.events import Element, Event
from recension.plan.properties import Properties
from recension.runners.local import Session
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

Turns: TypeAlias = list[tuple[str, list[Element]]]

KNOWN = [
    Properties(),
    Properties(is_insert_only=True),
    Properties(is_insert_only=True, is_ordered=True),
    Properties(is_ordered=True),
    Properties(is_shrink_only=True),
]


class Play:
    """A session fed step by step from two sources, its output followed in plain Python."""

    def __init__(self, plan: Plan, known: Properties) -> None:
        self.plan, self._known = plan, known
        self.session, self.query = self._session()
        self.inputs = {"s": StreamModel(), "t": StreamModel()}
        self.shown, self.output = StreamModel(), list[Element]()

    def _session(self) -> tuple[Session, rc.Stream]:
        s, t = (rc.source(name, SCHEMA, properties=self._known) for name in ("s", "t"))
        query = self.plan.build(s, t)
        # Both sources are read by every plan, so that both can be fed.
        return rc.session(out=query, t=t, s=s), query

    def feed(self, source: str, elements: list[Element]) -> None:
        self.session.push(source, elements)
        for element in elements:
            self.inputs[source].take(element)
        for element in self.session.read("out").elements():
            assert (fault := self.shown.fault(element)) is None, f"{element} {fault}"
            self.shown.take(element)
            self.output.append(element)

    def meaning(self) -> list[Event]:
        return self.plan.meaning(self.inputs["s"].events(), self.inputs["t"].events())

    def restore_twin(self) -> None:
        """Go on in a fresh session restored from a snapshot."""
        chunks = self.session.snapshot()
        self.session, self.query = self._session()
        self.session.restore(chunks)


@st.composite
def interleavings(draw: st.DrawFn, known: Properties) -> Turns:
    """Batches of two sources in some order."""
    shape = {
        "insert_only": known.is_insert_only,
        "ordered": known.is_ordered,
        "shrink_only": known.is_shrink_only,
    }
    streams = {}
    for name in ("s", "t"):
        history = draw(histories(min_size=1, max_size=4))
        streams[name] = draw(batchings(draw(physical_streams(history, **shape))))
    turns = draw(st.permutations([name for name, parts in streams.items() for _ in parts]))
    return [(name, streams[name].pop(0)) for name in turns]


def check_plan(plan: Plan, known: Properties, turns: Turns, revive_at: int) -> None:
    play = Play(plan, known)
    for number, (source, elements) in enumerate(turns):
        if number == revive_at:
            play.restore_twin()
        play.feed(source, elements)
        if plan.is_immediate:
            assert_equivalent(play.shown.events(), play.meaning())
    note("\n".join(map(str, play.output)))
    assert_equivalent(play.shown.events(), play.meaning())
    assert sum(m.state_rows for m in play.session.metrics()) == 0
    _properties_hold(play)


def _properties_hold(play: Play) -> None:
    claimed = play.query.properties
    report = classify([from_elements(play.output, play.query.schema)])
    assert not claimed.is_insert_only or report.is_insert_only
    assert not claimed.is_ordered or report.is_ordered
    assert not claimed.is_strictly_increasing or report.is_strictly_increasing
    assert not claimed.has_key or report.has_key
    assert not claimed.is_shrink_only or not _lengthens(play.output)
    if claimed.constant_duration is not None:
        inserts = [e for e in play.output if isinstance(e, rc.Insert)]
        assert all(e.ve in (rc.FOREVER, e.vs + claimed.constant_duration) for e in inserts)


def _lengthens(output: list[Element]) -> bool:
    return any(isinstance(e, rc.Retract) and e.new_ve > e.ve for e in output)


@given(st.data())
@settings(max_examples=examples(250), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan = data.draw(plans())
    turns = data.draw(interleavings(known))
    check_plan(plan, known, turns, data.draw(st.integers(0, len(turns))))


def _check_step(step: StepKind, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    turns = data.draw(interleavings(known))
    check_plan(Plan((step,)), known, turns, data.draw(st.integers(0, len(turns))))


@pytest.mark.parametrize("step", each_step(), ids=repr)
@given(st.data())
@settings(max_examples=examples(18), suppress_health_check=list(HealthCheck))
def test_each_operator(step: StepKind, data: st.DataObject) -> None:
    """A few examples: there are hundreds of steps."""
    _check_step(step, data)


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(st.data())
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
def test_each_operator_at_length(step: StepKind, data: st.DataObject) -> None:
    _check_step(step, data)


@given(st.data())
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_the_streams_are_as_their_sources_declare(data: st.DataObject) -> None:
    """What is inferred above a source is worth nothing if the source does not keep its word."""
    known = data.draw(st.sampled_from(KNOWN))
    for name in ("s", "t"):
        stream = [e for source, batch in data.draw(interleavings(known)) if source == name for e in batch]
        report = classify([from_elements(stream, SCHEMA)])
        assert not known.is_insert_only or report.is_insert_only
        assert not known.is_ordered or report.is_ordered
        assert not known.is_shrink_only or not _lengthens(stream)
