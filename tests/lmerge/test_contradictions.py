"""Inputs that contradict each other are counted and told once, with the event; those that agree never."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.lmerge.play import Play

import recension as rc
from recension.core.errors import StreamError
from recension.core.events import Cti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.operators.lmerge.choice import make_merge
from recension.testing.strategies import SCHEMA

A, B, C, D = ({"k": k, "v": 0} for k in "abcd")
ALL = ("R0", "R1", "R2", "R3", "R4")
Elements = list[Any]


def play(case: str, *turns: tuple[int, Elements], ports: int = 2, restored: bool = False) -> Play:
    made = Play(lambda ports: make_merge(case, SCHEMA, ports), ports)
    for port, elements in turns:
        made.feed(port, elements)
        if restored:
            made.restore_twin()
    return made


def told(case: str, *turns: tuple[int, Elements]) -> str:
    """What is said, by a merge and by one that is restored after every step."""
    merge = play(case, *turns).merge
    (warning,) = merge.take_warnings()
    twin = play(case, *turns, restored=True).operators[-1]
    assert twin.anomalies == merge.anomalies
    assert not twin.take_warnings()
    return warning


TRUE: Elements = [Insert(A, 1, 30), Insert(B, 2, 31), Insert(C, 3, 32)]


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "lie",
    [
        [Insert(A, 1, 30), Insert(D, 2, 31), Insert(C, 3, 32)],
        [Insert(A, 1, 30), Insert(B, 2, 29), Insert(C, 3, 32)],
        [Insert(A, 1, 30), Insert(C, 3, 32)],
        [Insert(A, 1, 30), Insert(B, 2, 31), Insert(C, 3, 32), Insert(D, 3, 32)],
    ],
    ids=["payload", "end", "lost", "more"],
)
def test_a_replica_that_lies(case: str, lie: Elements, is_first: bool) -> None:
    """Whether it is ahead or behind."""
    if case == "R0" and len(lie) > 3:
        lie = [*lie[:2], Insert(C, 3, 32), Insert(D, 4, 32)]
    turns = [(0, [*lie]), (1, [*TRUE])] if is_first else [(1, [*TRUE]), (0, [*lie])]
    # More has come, so that it is plain what each has at these starts; then it becomes final.
    turns += [(port, [Insert(A, 9, 40), Cti(9)]) for port, _ in turns]
    turns += [(port, [Cti(35)]) for port, _ in turns]
    warning = told(case, *turns)
    assert warning.startswith("input ")
    assert "contradicts what is final: it " in warning
    assert "one of the inputs is wrong" in warning


def test_the_input_and_the_event_are_named() -> None:
    turns = [(0, [Insert(A, 1, 30), Cti(5)]), (1, [Insert(B, 1, 30), Cti(6)])]
    merge = play("R4", *turns).merge
    merge.contradictions.names = {}
    (warning,) = merge.take_warnings()
    assert (
        "input 1 contradicts what is final: it lacks [1, 30) {'k': 'a', 'v': 0}, which the output has"
        in warning
    )
    assert merge.contradictions.by_input() == {"1": 2}


@pytest.mark.parametrize("case", ["R3", "R4"])
def test_what_may_still_be_taken_back_is_no_contradiction(case: str) -> None:
    merge = play(
        case,
        (0, [Insert(A, 1, 30), Insert(B, 2, 31), Cti(1)]),
        (1, [Insert(A, 1, 20), Insert(D, 2, 31), Cti(2)]),
        (0, [Retract(B, 2, 31, 25), Cti(28)]),
        (1, [Retract(A, 1, 20, 30), Retract(D, 2, 31, 2), Insert(B, 2, 25), Cti(40)]),
        (0, [Cti(40)]),
    ).merge
    assert merge.anomalies == 0


@pytest.mark.parametrize("case", ["R3", "R4"])
def test_what_is_forgotten_cannot_be_compared(case: str) -> None:
    """Final before the other input has spoken: nothing of it is kept. This is what goes unnoticed."""
    merge = play(case, (0, [Insert(A, 1, 3), Cti(9)]), (1, [Insert(B, 1, 3), Cti(9)])).merge
    assert merge.anomalies == 0


def test_an_input_that_is_told_what_is_final_may_leave_it_out() -> None:
    merge = make_merge("R4", SCHEMA, 2)
    fed = Play(lambda ports: merge, 2)
    merge.on_feedback(50, [True, True])
    fed.feed(0, [Insert(A, 1, 30), Cti(5)])
    fed.feed(1, [Cti(6)])
    assert merge.anomalies == 0


def test_warnings_and_errors_of_a_session(caplog: pytest.LogCaptureFixture) -> None:
    sources = [rc.source(name, {"k": "string"}) for name in ("east", "west")]

    def feed(**how: Any) -> rc.Session:
        live = rc.session(rc.merge(*sources, **how))
        live.push("east", [rc.Insert({"k": "a"}, 1, 30), rc.Cti(5)])
        live.push("west", [rc.Insert({"k": "b"}, 1, 30), rc.Cti(6)])
        live.push("west", [rc.Cti(40)])
        return live

    live = feed()
    (found,) = (metrics for metrics in live.metrics() if metrics.contradictions)
    assert set(found.contradictions) == {"1 (west)"}
    (warning,) = found.warnings
    assert "input 1 (west) contradicts what is final" in warning
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1
    with pytest.raises(StreamError, match=r"merge: input 1 \(west\) contradicts .*: it lacks \[1, 30\)"):
        feed(on_anomaly="raise")
    with pytest.raises(rc.RecensionError, match="on_anomaly is one of 'warn', 'raise', not 'ignore'"):
        rc.merge(*sources, on_anomaly="ignore")  # type: ignore[arg-type]
    assert "on_anomaly raise" in rc.merge(*sources, on_anomaly="raise").explain()
    restored = rc.session(rc.merge(*sources, on_anomaly="raise"))
    restored.restore(live.snapshot())  # a state fits both


@st.composite
def two_replicas(draw: st.DrawFn, case: str) -> tuple[Elements, Elements]:
    """A replica that is right and one that is wrong in one event, without CTIs. All ends are beyond 20."""
    starts = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=case == "R0"))
    rows = st.sampled_from([A, B, C, D])
    true = [Insert(draw(rows), vs, draw(st.integers(21, 29))) for vs in sorted(starts)]
    if case in ("R2", "R3"):
        true = list({(e.vs, e.payload["k"]): e for e in true}.values())
    at = draw(st.integers(0, len(true) - 1))
    one = true[at]
    other = draw(
        st.sampled_from(
            [[], [Insert(one.payload, one.vs, one.ve + 1)], [Insert({"k": "e", "v": 0}, one.vs, one.ve)]]
        )
    )
    false = [*true[:at], *other, *true[at + 1 :]]
    if case == "R2":
        orders = [sorted(draw(st.permutations(one)), key=lambda e: e.vs) for one in (true, false)]
        return orders[0], orders[1]
    if case in ("R3", "R4"):
        return _revised(draw, true), _revised(draw, false)
    return true, false


def _revised(draw: st.DrawFn, events: Elements) -> Elements:
    """In another order, some with another end first."""
    made: Elements = []
    for event in draw(st.permutations(events)):
        if draw(st.booleans()):
            first = draw(st.integers(11, 40))
            made.append(Insert(event.payload, event.vs, first))
            if first != event.ve:
                made.append(Retract(event.payload, event.vs, first, event.ve))
        else:
            made.append(event)
    return made


@pytest.mark.parametrize("case", ALL)
@given(st.data())
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_one_wrong_event_is_always_noticed_while_it_is_open(case: str, data: st.DataObject) -> None:
    """In what order and in what batches it comes: both have spoken before any event ends.

    What goes unnoticed is what was final, and forgotten, before the other had spoken.
    """
    replicas = data.draw(two_replicas(case))
    turns: list[tuple[int, Elements]] = []
    cut = data.draw(st.integers(0, 3))
    order = data.draw(st.permutations([0, 1]))
    for part in (slice(None, cut), slice(cut, None)):
        turns += [(port, replicas[port][part]) for port in order]
    later = [Insert(A, 10, 30)] if case in ("R0", "R1", "R2") else []
    for t in data.draw(st.sampled_from([[10, FOREVER], [20, FOREVER], [12, 20, FOREVER]])):
        turns += [(port, [*later, Cti(t)]) for port in data.draw(st.permutations([0, 1]))]
        later = []
    merge = play(case, *turns).merge
    assert merge.anomalies
    assert len(merge.take_warnings()) == 1
