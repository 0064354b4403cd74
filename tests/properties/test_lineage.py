"""What `why` names, judged by the oracle: it suffices, nothing else matters, and the marks are right.

Inputs come as physical streams, with retractions and CTIs. Each answer is explained twice: with all of the
inputs at hand, and with only those parts that it reaches. Its biography must end with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan, plans

import recension as rc
from recension.core.events import Element, Event
from recension.denote.lineage import identity
from recension.lineage import Why, explain_answer
from recension.plan.source import sources_of
from recension.testing.strategies import SCHEMA, histories, physical_streams

# How early answers are shown makes no difference to what they rest on.
KINDS = [step for step in STEPS if " perfect" not in step.name and " ordered" not in step.name]


class Case:
    """A query over two histories."""

    def __init__(self, plan: Plan, inputs: dict[str, list[Event]]) -> None:
        self.plan, self.inputs = plan, inputs
        s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
        self.query = plan.build(s, t)
        self.answers = plan.meaning(inputs["s"], inputs["t"])

    def why(self, answer: Event, feeds: dict[str, list[Element]], small: int, biography: bool = False) -> Why:
        read = {name: feeds[name] for name in feeds if name in sources_of(self.query.plan)}
        return explain_answer(
            self.query.plan, read, answer, biography=biography, close=True, small=small, batch_size=2
        )

    def has(self, answer: Event, inputs: dict[str, list[Event]]) -> bool:
        found = self.plan.meaning(inputs["s"], inputs["t"])
        return identity(answer) in map(identity, found)

    def check(self, answer: Event, why: Why, removed: Sequence[int]) -> None:
        """The three properties; ``removed`` are places among the events that are not named."""
        named = {n: [identity(o.event) for o in why.named.get(n, [])] for n in ("s", "t")}
        unnamed = [
            (n, i) for n in ("s", "t") for i, e in enumerate(self.inputs[n]) if identity(e) not in named[n]
        ]
        assert self.has(answer, self._without(unnamed)), "what is named does not suffice"
        for one in unnamed:
            assert self.has(answer, self._without([one])), f"{one} matters and is not named"
        some = [one for place, one in enumerate(unnamed) if place in removed]
        assert self.has(answer, self._without(some)), f"{some} matter together and are not named"
        for n in ("s", "t"):
            for marked in why.named.get(n, []):
                key = identity(marked.event)
                at = next(i for i, e in enumerate(self.inputs[n]) if identity(e) == key)
                is_needed = not self.has(answer, self._without([(n, at)]))
                assert (marked.mark == "needed") == is_needed, f"{marked.event} is marked {marked.mark}"

    def _without(self, removed: Sequence[tuple[str, int]]) -> dict[str, list[Event]]:
        return {
            n: [e for i, e in enumerate(events) if (n, i) not in removed] for n, events in self.inputs.items()
        }


def check_plan(data: st.DataObject, plan: Plan) -> None:
    inputs = {name: data.draw(histories(min_size=1, max_size=4)) for name in ("s", "t")}
    feeds = {name: data.draw(physical_streams(history)) for name, history in inputs.items()}
    case = Case(plan, inputs)
    assume(case.answers)
    answer = data.draw(st.sampled_from(case.answers))
    removed = data.draw(st.lists(st.integers(0, 9), max_size=4))
    whole = case.why(answer, feeds, 1000, biography=True)
    note(str(whole))
    case.check(answer, whole, removed)
    part = case.why(answer, feeds, -1)
    assert part.named == whole.named
    life = whole.biography
    assert life is not None
    assert life.final is not None
    assert identity(answer) in map(identity, life.revisions[-1].after)


@given(st.data())
@settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    check_plan(data, data.draw(plans()))


@pytest.mark.parametrize("step", KINDS, ids=repr)
@given(st.data())
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
def test_each_operator(step: Any, data: st.DataObject) -> None:
    check_plan(data, Plan((step,)))


@pytest.mark.soak
@given(st.data())
@settings(max_examples=2000, suppress_health_check=list(HealthCheck))
def test_many_random_plans(data: st.DataObject) -> None:
    check_plan(data, data.draw(plans()))
