"""What `why` names, judged by the oracle: it suffices, nothing else matters, and the marks are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import STEPS, Plan, plans

import recension as rc
from recension.core.events import Event
from recension.denote.lineage import identity
from recension.lineage import Why, explain_answer
from recension.testing.strategies import SCHEMA, histories


class Case:
    """A query over two histories, and one of its answers."""

    def __init__(self, plan: Plan, inputs: dict[str, list[Event]]) -> None:
        self.plan, self.inputs = plan, inputs
        s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
        # Both sources are read by every plan.
        self.query = plan.build(s, t)
        self.answers = plan.meaning(inputs["s"], inputs["t"])

    def why(self, answer: Event, small: int) -> Why:
        read = {n for n in ("s", "t") if any(getattr(x, "name", None) == n for x in _sources(self.query))}
        given = {n: [rc.Insert(e.payload, e.vs, e.ve) for e in self.inputs[n]] for n in sorted(read)}
        return explain_answer(self.query.plan, given, answer, biography=False, small=small)

    def has(self, answer: Event, inputs: dict[str, list[Event]]) -> bool:
        found = self.plan.meaning(inputs["s"], inputs["t"])
        return identity(answer) in map(identity, found)

    def check(self, answer: Event, why: Why, removed: Sequence[int]) -> None:
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
            for one in why.named.get(n, []):
                at = next(i for i, e in enumerate(self.inputs[n]) if identity(e) == identity(one.event))
                is_needed = not self.has(answer, self._without([(n, at)]))
                assert (one.mark == "needed") == is_needed, f"{one.event} is marked {one.mark}"

    def _without(self, removed: Sequence[tuple[str, int]]) -> dict[str, list[Event]]:
        return {
            n: [e for i, e in enumerate(events) if (n, i) not in removed] for n, events in self.inputs.items()
        }


def _sources(query: rc.Stream) -> list[Any]:
    from recension.plan.node import walk

    return list(walk(query.plan))


def check_plan(data: st.DataObject, plan: Plan) -> None:
    inputs = {name: data.draw(histories(min_size=1, max_size=5)) for name in ("s", "t")}
    case = Case(plan, inputs)
    assume(case.answers)
    answer = data.draw(st.sampled_from(case.answers))
    removed = data.draw(st.lists(st.integers(0, 9)))
    for small in (1000, -1):
        why = case.why(answer, small)
        note(str(why))
        assert identity(why.answer) == identity(answer)
        case.check(answer, why, removed)


@given(st.data())
@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    check_plan(data, data.draw(plans()))


@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(st.data())
@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
def test_each_operator(step: Any, data: st.DataObject) -> None:
    check_plan(data, Plan((step,)))
