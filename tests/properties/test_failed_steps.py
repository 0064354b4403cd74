"""After an error in any operator at any step a session refuses; restored, it goes on as one that saw none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.plans import STEPS, Plan, plans
from tests.properties.step import StepKind
from tests.properties.test_random_plans import KNOWN, Turns, interleavings

import recension as rc
from recension.core.events import Element
from recension.lowering import lower
from recension.operators.base import Operator
from recension.plan.properties import Properties
from recension.runners.local import Session
from recension.testing.assertions import assert_equivalent
from recension.testing.strategies import SCHEMA


def started(plan: Plan, known: Properties) -> Session:
    s, t = (rc.source(name, SCHEMA, properties=known) for name in ("s", "t"))
    return rc.session(out=plan.build(s, t), t=t, s=s)


def operators_of(session: Session) -> list[Operator]:
    """Those that run."""
    engine = session._run.engine
    return [operator for at in engine.running if (operator := engine._vertices[at].operator) is not None]


class FaultAt(NamedTuple):
    """Where and when an operator breaks: before or after it has worked; and where the snapshot then goes."""

    place: int
    turn: int
    after: bool
    fresh: bool


class Fault:
    """Breaks an operator: its next call fails, before it has done anything or when it has done it all."""

    def __init__(self, operator: Operator, after: bool) -> None:
        self._operator, self._after = operator, after
        for name in ("on_batch", "on_cti"):
            setattr(operator, name, self._failing(getattr(operator, name)))

    def _failing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*given: Any) -> Any:
            if self._after:
                method(*given)
            raise ValueError("out of luck")

        return fail

    def mend(self) -> None:
        for name in ("on_batch", "on_cti"):
            delattr(self._operator, name)


def check(plan: Plan, known: Properties, turns: Turns, fault_at: FaultAt) -> bool:
    """Whether the fault was met; a session that never saw it and one that was restored agree to the end."""
    session, untouched = started(plan, known), started(plan, known)
    running, fault, was_met = operators_of(session), None, False
    for number, (source, elements) in enumerate(turns):
        if number == fault_at.turn and running:
            fault = Fault(running[fault_at.place % len(running)], fault_at.after)
        if fault is None:
            session.push(source, elements)
        elif (chunks := session.snapshot()) and is_broken(session, source, elements):
            fault.mend()
            session = started(plan, known) if fault_at.fresh else session
            session.restore(chunks)
            session.push(source, elements)
            was_met, fault = True, None
        untouched.push(source, elements)
    for name in ("out", "s", "t"):
        assert_equivalent(session.history(name), untouched.history(name))
    return was_met


def is_broken(session: Session, source: str, elements: list[Element]) -> bool:
    """Does a push fail, and the session then refuse everything?"""
    try:
        session.push(source, elements)
    except rc.RecensionError as why:
        if "out of luck" not in str(why):
            raise
        refuses(session, source)
        return True
    return False


def refuses(session: Session, source: str) -> None:
    for method in (
        lambda: session.push(source, []),
        lambda: session.advance(source, rc.FOREVER),
        lambda: session.read("s"),
        lambda: session.history("out"),
        session.snapshot,
        session.close,
    ):
        with pytest.raises(rc.RecensionError, match=r"failed in push .*out of luck.* restore"):
            method()


def faults(turns: int) -> st.SearchStrategy[FaultAt]:
    return st.builds(FaultAt, st.integers(0, 9), st.integers(0, turns - 1), st.booleans(), st.booleans())


@given(st.data())
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_random_plans(data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan, turns = data.draw(plans()), data.draw(interleavings(known))
    check(plan, known, turns, data.draw(faults(len(turns))))


P, Q = {"k": "a", "v": 1}, {"k": "b", "v": -1}
TURNS: Turns = [
    ("s", [rc.Insert(P, 0, 5), rc.Insert(Q, 2, 9), rc.Cti(1)]),
    ("t", [rc.Insert(P, 1, 4), rc.Cti(2)]),
    ("s", [rc.Retract(Q, 2, 9, 6), rc.Insert(P, 7, 8), rc.Cti(4)]),
    ("t", [rc.Cti(rc.FOREVER)]),
    ("s", [rc.Cti(rc.FOREVER)]),
]


def _classes(query: rc.Stream) -> tuple[type, ...]:
    return tuple(type(vertex.operator) for vertex in lower({"out": query.plan}).vertices)


@pytest.mark.slow
def test_each_operator_once() -> None:
    """One step for every set of operators that steps run as; the last of them breaks."""
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    kinds = {_classes(Plan((step,)).build(s, t)): step for step in STEPS}
    for number, step in enumerate(kinds.values()):
        fault_at = FaultAt(-1, 2 * (number % 2), after=True, fresh=number % 3 == 0)
        assert check(Plan((step,)), Properties(), TURNS, fault_at), step


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(st.data())
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_each_operator(step: StepKind, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan, turns = Plan((*data.draw(plans(1)).steps, step)), data.draw(interleavings(known))
    check(plan, known, turns, data.draw(faults(len(turns))))
