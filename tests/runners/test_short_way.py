"""From a push to an operator it is a short way, and nobody pays for metrics that nobody asks for."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.operators.base import Operator
from recension.runners.local import Session

s, t = (rc.source(name, {"k": "string", "v": "int64"}) for name in ("s", "t"))
P = {"k": "a", "v": 1}
ALIKE: dict[str, rc.Stream] = {
    "a filter": s.where(rc.col("v") > 0),
    "an eager aggregate": s.group_by("k").agg(n=rc.count(), speculate="eager"),
    "tumbling windows": s.tumbling(10).agg(n=rc.count(), speculate="eager"),
    "a join": s.join(t, on="k"),
}


def way(act: Callable[[], None]) -> list[str]:
    """The functions from `Session.push` to the first `on_batch` of an operator, which is not counted."""
    found: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not found and frame.f_code.co_name == "on_batch":
            assert isinstance(frame.f_locals["self"], Operator)
            above = frame.f_back
            while above is not None and above.f_code is not look_for.__code__:
                found.append(above.f_code.co_qualname)
                above = above.f_back

    def look_for() -> None:
        act()

    sys.setprofile(look)
    try:
        look_for()
    finally:
        sys.setprofile(None)
    return [name for name in reversed(found) if "<lambda>" not in name]


PUSHED: dict[str, Any] = {
    "elements": [rc.Insert(P, 1, 5)],
    "elements and a CTI": [rc.Insert(P, 1, 5), rc.Cti(3)],
    "a table": pa.table({"_vs": [1, 2], "_ve": [5, 6], "k": ["a", "b"], "v": [1, 2]}),
}


@pytest.mark.parametrize("data", PUSHED.values(), ids=PUSHED)
@pytest.mark.parametrize("query", ALIKE.values(), ids=ALIKE)
def test_four_functions_from_a_push_to_an_operator(query: rc.Stream, data: Any) -> None:
    session = rc.session(query)
    session.push("s", [rc.Insert(P, 1, 5)])
    found = way(lambda: session.push("s", data))
    assert found[0] == "Session.push"
    assert len(found) <= 4, found


def measured(monkeypatch: pytest.MonkeyPatch, session: Session) -> list[str]:
    """Notes whatever is looked up for metrics only."""
    asked: list[str] = []

    def note(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def noting(*given: Any) -> Any:
            asked.append(name)
            return original(*given)

        monkeypatch.setattr(owner, name, noting)

    owners: list[Any] = [*(step for gate in session._run.gates.values() for step in gate._steps)]
    owners += [vertex.operator for vertex in session._run.plan.vertices if vertex.operator is not None]
    for owner in owners:
        note(owner, "state_rows")
        note(owner, "state_bytes")
    return asked


@pytest.mark.parametrize("query", ALIKE.values(), ids=ALIKE)
def test_metrics_are_looked_up_when_asked(query: rc.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    session = rc.session(query)
    asked = measured(monkeypatch, session)
    for turn in range(3):
        session.push("s", [rc.Insert(P, turn, 5)])
        result = session.read()
    session.history()
    assert asked == []
    assert len(result.metrics) == len(session.metrics())
    assert set(asked) == {"state_rows", "state_bytes"}
    before = len(asked)
    assert result.metrics is result.metrics
    assert len(asked) == before


def test_the_counters_of_a_result_are_those_of_its_reading() -> None:
    session = rc.session(s.agg(n=rc.count(), speculate="eager"))
    session.push("s", [rc.Insert(P, 1, 5)])
    first = session.read()
    session.push("s", [rc.Insert(P, 2, 5), rc.Cti(3)])
    second = session.read()
    assert {m.events_out for m in first.metrics} == {1}
    assert {m.cti for m in first.metrics} == {rc.BEGINNING}
    assert [m.events_in for m in second.metrics][:2] == [0, 2]
    assert {m.cti for m in second.metrics} == {3}
    assert (first + second).metrics == second.metrics == session.metrics()


def test_what_was_asked_for_stays() -> None:
    session = rc.session(s.agg(n=rc.count(), speculate="eager"))
    session.push("s", [rc.Insert(P, 1, 5)])
    result = session.read()
    held = [m.state_rows for m in result.metrics]
    assert held[-1] > 0
    session.close()
    assert [m.state_rows for m in result.metrics] == held
    assert session.metrics()[-1].state_rows == 0


def test_a_result_asks_a_session_that_was_forgotten_or_has_failed() -> None:
    def read() -> rc.Result:
        session = rc.session(s.agg(n=rc.count(), speculate="eager"))
        session.push("s", [rc.Insert(P, 1, 5)])
        return session.read()

    assert read().metrics[-1].state_rows > 0
    session = rc.session(s)
    session.push("s", [rc.Insert(P, 1, 5)])
    result = session.read()
    with pytest.raises(KeyboardInterrupt), session._step():
        raise KeyboardInterrupt
    with pytest.raises(rc.RecensionError, match="cannot go on"):
        session.metrics()
    assert result.metrics[0].events_out == 1


def test_a_result_can_be_copied_and_stored_with_its_metrics() -> None:
    session = rc.session(s)
    session.push("s", [rc.Insert(P, 1, 5)])
    result = session.read()
    for same in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert same.metrics == result.metrics
        assert same.history().to_events() == result.history().to_events()
