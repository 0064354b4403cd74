"""Random plans split among workers against the oracle, and against what one process gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties import test_random_plans as one_process
from tests.properties.plans import Plan, each_step, plans
from tests.properties.test_random_plans import KNOWN, Turns, check_plan, interleavings
from tests.runners.workers.in_process import CrewInProcess

import recension as rc
from recension.plan.properties import Properties
from recension.runners.local import Session
from recension.runners.workers import engine
from recension.testing.strategies import SCHEMA


class SplitPlay(one_process.Play):
    """The same in workers."""

    workers = 2

    def _session(self) -> tuple[Session, rc.Stream]:
        s, t = (rc.source(name, SCHEMA, properties=self._known) for name in ("s", "t"))
        query = self.plan.build(s, t)
        return rc.session(out=query, t=t, s=s, workers=self.workers), query


def _check(
    plan: Plan, known: Properties, turns: Turns, revive_at: int, workers: int, crew: Any = CrewInProcess
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SplitPlay, "workers", workers)
        patch.setattr(one_process, "Play", SplitPlay)
        if crew is not None:
            patch.setattr(engine, "Crew", crew)
        note(SplitPlay(plan, known).session.explain("out"))
        check_plan(plan, known, turns, revive_at)


@given(st.data())
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    known, plan = data.draw(st.sampled_from(KNOWN)), data.draw(plans())
    turns = data.draw(interleavings(known))
    _check(plan, known, turns, data.draw(st.integers(0, len(turns))), data.draw(st.integers(2, 4)))


@pytest.mark.parametrize("step", each_step(), ids=repr)
@given(st.data())
@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
def test_each_operator(step: Any, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    turns = data.draw(interleavings(known))
    _check(Plan((step,)), known, turns, data.draw(st.integers(0, len(turns))), data.draw(st.integers(2, 3)))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck), deadline=None)
def test_random_plans_in_processes(data: st.DataObject) -> None:
    known, plan = data.draw(st.sampled_from(KNOWN)), data.draw(plans())
    turns = data.draw(interleavings(known))
    _check(plan, known, turns, data.draw(st.integers(0, len(turns))), workers=2, crew=None)
