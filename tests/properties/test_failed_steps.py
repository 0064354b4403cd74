"""After an error in any operator at any step a session refuses; restored, it goes on as one that saw none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from inspect import isabstract
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.plans import STEPS, Plan, plans
from tests.properties.step import StepKind
from tests.properties.test_random_plans import KNOWN, Turns, interleavings

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Element
from recension.core.validity import Policy
from recension.lowering import lower
from recension.operators.base import Operator
from recension.operators.coverage_join import CoverageJoin
from recension.operators.pipeline import Pipeline
from recension.operators.windowed.parts import PartialSums
from recension.plan.properties import Properties
from recension.runners.local import Session
from recension.testing.assertions import assert_equivalent
from recension.testing.strategies import SCHEMA


def started(plan: Plan, known: Properties, policy: Policy = "raise") -> Session:
    s, t = (rc.source(name, SCHEMA, properties=known, on_violation=policy) for name in ("s", "t"))
    return rc.session(out=plan.build(s, t), t=t, s=s)


def operators_of(session: Session) -> list[Operator]:
    """Those that run."""
    engine = session._run.engine
    return [
        operator for at in engine.running_vertices if (operator := engine._vertices[at].operator) is not None
    ]


Ending: TypeAlias = Literal["failed", "refused"]


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


def check(plan: Plan, known: Properties, turns: Turns, fault_at: FaultAt, policy: Policy = "raise") -> bool:
    return check_session(partial(started, plan, known, policy), turns, fault_at)


def check_session(start: Callable[[], Session], turns: Turns, fault_at: FaultAt) -> bool:
    """Whether the fault was met; a session that never saw it and one that was restored agree to the end."""
    session, untouched = start(), start()
    running, fault, was_met = operators_of(session), None, False
    for number, (source, elements) in enumerate(turns):
        if number == fault_at.turn and running:
            fault = Fault(running[fault_at.place % len(running)], fault_at.after)
        if fault is None:
            session.push(source, elements)
        elif (chunks := session.snapshot()) and (end := push_and_break(session, source, elements)):
            fault.mend()
            if end == "failed":
                session = start() if fault_at.fresh else session
                session.restore(chunks)
            session.push(source, elements)
            was_met, fault = True, None
        untouched.push(source, elements)
    for name in ("out", "s", "t"):
        assert_equivalent(session.history(name), untouched.history(name))
    return was_met


def push_and_break(session: Session, source: str, elements: list[Element]) -> Ending | None:
    """How a push ends: with a session that has failed, or that goes on; None if nothing breaks."""
    try:
        session.push(source, elements)
    except rc.RecensionError as why:
        if "out of luck" not in str(why):
            raise
        # Steps that look at one row at a time are tried before anything changes.
        if isinstance(why, StreamError) and why.row is not None:
            return "refused"
        refuses(session, source)
        return "failed"
    return None


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


ROWS: Turns = [
    ("s", [rc.Insert({**P, "n": 1}, 0, 5), rc.Insert({**Q, "n": 2}, 2), rc.Cti(1)]),
    ("s", [rc.Insert({**P, "n": 3}, 0, 9), rc.Insert({**Q, "n": 3}, 2, 7), rc.Cti(2)]),
    ("s", [rc.Insert({**P, "k": "c", "n": 4}, 4, 8), rc.Cti(rc.FOREVER)]),
]


def keyed(source: Callable[..., rc.Stream]) -> Session:
    """Of a source whose rows have keys."""
    rows = source("s", SCHEMA, key="k", version="n")
    return rc.session(out=rows, t=rows.select("k"), s=rows)


def _merged(case: Any, below: Callable[[Any], Any], **options: Any) -> StepKind:
    def build(s: Any, t: Any) -> Any:
        return rc.merge(below(s), below(s).align(1), case=case, **options)

    return StepKind(f"merge {case} {options}", build, lambda s, t: s, is_immediate=False)


# Cases of merges that only some streams fall under, as those of `TURNS` do.
MERGES = [
    _merged("R0", lambda s: s.agg(n=rc.count()).cleanse()),
    _merged("R1", lambda s: s.cleanse()),
    _merged("R2", lambda s: s.cleanse()),
    _merged("R3", lambda s: s),
    _merged("R3-", lambda s: s),
    _merged("R3", lambda s: s, on_mismatch="fallback"),
]


# Shared extents that are kept eagerly: by other parts than those kept lazily.
EAGER = [step for step in STEPS if repr(step).startswith("extent set") and repr(step).endswith("eager")]
# A lenient source that is mended here is checked for all other readers.
MENDED = Plan(tuple(step for step in STEPS if repr(step) == "finalize"))


def _classes(query: rc.Stream) -> tuple[type, ...]:
    return tuple(type(vertex.operator) for vertex in lower({"out": query.plan}).vertices)


def _kinds() -> list[StepKind]:
    """One step for every set of operators that steps run as."""
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    return [*{_classes(Plan((step,)).build(s, t)): step for step in STEPS}.values(), *EAGER, *MERGES]


def _with_parts(holder: object) -> Iterator[type]:
    """The classes of an operator and of those that it runs: for groups, or for shared extents."""
    if isinstance(holder, Operator):
        yield type(holder)
    if isinstance(holder, Operator | Pipeline):
        holder = list(vars(holder).values())
    for part in holder if isinstance(holder, list) else ():
        yield from _with_parts(part)


def _all_operators(base: type[Operator] = Operator) -> set[type]:
    below = {kind for one in base.__subclasses__() for kind in _all_operators(one)}
    is_ours = base.__module__.startswith("recension.operators.") and not isabstract(base)
    return below | ({base} if is_ours else set())


def test_no_operator_is_left_out() -> None:
    seen: set[type] = set()
    for session in (
        *(started(Plan((step,)), Properties()) for step in _kinds()),
        started(MENDED, Properties(), "drop"),
    ):
        for source, elements in TURNS[:2]:
            session.push(source, elements)
        seen |= {kind for operator in operators_of(session) for kind in _with_parts(operator)}
    seen |= {type(operator) for source in (rc.source, rc.changes) for operator in operators_of(keyed(source))}
    assert _all_operators() - seen == {CoverageJoin, PartialSums}, (
        "semi, anti and left joins are kinds of the one; the other has no state, and runs on Spark only"
    )


@pytest.mark.parametrize("source", [rc.source, rc.changes])
@pytest.mark.parametrize("after", [False, True])
def test_keyed_sources(source: Callable[..., rc.Stream], after: bool) -> None:
    for turn in range(3):
        fault_at = FaultAt(0, turn, after, fresh=bool(turn % 2))
        assert check_session(partial(keyed, source), ROWS, fault_at)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_each_operator_once(after: bool) -> None:
    """The last operator of each step breaks, of every second one before it has done its work."""
    for number, step in list(enumerate(_kinds()))[int(after) :: 2]:
        fault_at = FaultAt(-1, 2 * (number // 2 % 2), after, fresh=number % 3 == 0)
        assert check(Plan((step,)), Properties(), TURNS, fault_at), step
    assert check(MENDED, Properties(), TURNS, FaultAt(-1, 0, after, fresh=True), "drop")


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(st.data())
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_each_operator(step: StepKind, data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(KNOWN))
    plan, turns = Plan((*data.draw(plans(1)).steps, step)), data.draw(interleavings(known))
    check(plan, known, turns, data.draw(faults(len(turns))))
