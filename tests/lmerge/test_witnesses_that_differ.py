"""Inputs that are not quite alike: turned columns, other orders of ties, a past that another one knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import recension as rc
from recension import Properties

A, B = {"p": "a"}, {"p": "b"}
IN_ORDER = Properties(is_insert_only=True, is_ordered=True, has_deterministic_ties=True, has_key=True)


def _said(live: rc.Session) -> list[str]:
    return [str(element) for element in live.read().elements()]


def _feed(name: str, **known: bool) -> rc.Stream:
    return rc.source(name, {"p": "string"}, properties=Properties(**known))


def _turned() -> tuple[rc.Stream, rc.Stream]:
    return rc.source("a", {"k": "string", "v": "int64"}), rc.source("b", {"v": "int64", "k": "string"})


def test_ties_in_another_order_are_not_told_by_their_number() -> None:
    a, b = _turned()
    query = rc.merge(a.cleanse(), b.cleanse())
    assert "chosen: R1" not in query.explain()
    events = [rc.Insert({"k": "x", "v": 2}, 1, 5), rc.Insert({"k": "y", "v": 1}, 1, 50)]
    live = rc.session(query)
    live.push("a", [*events, rc.Cti(6)])
    live.push("b", [*events, rc.Cti(rc.FOREVER)])
    found = sorted((e.vs, e.ve, e.payload["k"]) for e in live.read().history().to_events())
    assert found == [(1, 5, "x"), (1, 50, "y")]


def test_copies_of_one_plan_have_ties_in_one_order() -> None:
    same = [rc.source(name, {"p": "string"}).cleanse() for name in "ab"]
    assert "chosen: R1" in rc.merge(*same).explain()


@pytest.mark.parametrize("order", [("table", "feed"), ("feed", "table")])
def test_a_seed_counts_whether_it_comes_first_or_not(order: tuple[str, str]) -> None:
    table, feed = (rc.source(name, {"p": "string"}) for name in ("table", "feed"))
    query = rc.scenarios.jump_start(lambda stream: stream, table, feed, from_time=50)
    given = {
        "table": [rc.Insert(A, 1, 40), rc.Insert(B, 2, 90), rc.Cti(50)],
        "feed": [rc.Insert(B, 2, 90), rc.Insert(A, 60, 70), rc.Cti(80)],
    }
    events = rc.run(query, {name: given[name] for name in order}).history().to_events()
    assert [(e.vs, e.ve, e.payload["p"]) for e in events] == [(1, 40, "a"), (2, 90, "b"), (60, 70, "a")]
    assert "input 1 from 50" in query.explain()


@pytest.mark.parametrize("feedback", [False, True])
def test_feedback_leaves_a_merge_that_counts_its_ties_alone(feedback: bool) -> None:
    x, y = (rc.source(name, {"p": "string"}, properties=IN_ORDER) for name in "xy")
    inner = rc.merge(x, y, case="R1")
    live = rc.session(rc.merge(_feed("fast", has_key=True), inner, case="R3", feedback=feedback))
    live.push("x", [rc.Insert(A, 5, 6)])
    live.push("fast", [rc.Insert(A, 5, 6), rc.Insert(B, 5, 200), rc.Cti(10)])
    live.push("y", [rc.Insert(A, 5, 6), rc.Insert(B, 5, 100), rc.Cti(rc.FOREVER)])
    found = sorted((e.vs, e.ve, e.payload["p"]) for e in live.read().history().to_events())
    assert found == [(5, 6, "a"), (5, 100, "b")]


def test_an_input_whose_columns_were_turned_can_leave() -> None:
    a, b = _turned()
    live = rc.session(rc.merge(a, b))
    live.detach(b)
    live.push("a", [rc.Insert({"k": "x", "v": 1}, 1, 2), rc.Cti(rc.FOREVER)])
    assert _said(live)[-1] == "cti ∞"


def test_an_input_may_repeat_its_last_start_across_batches_but_not_end_it_otherwise() -> None:
    live = rc.session(rc.merge(_feed("a"), _feed("b"), case="R2"))
    live.push("a", [rc.Insert(A, 2, 5)])
    live.push("a", [rc.Insert(A, 2, 5)])
    with pytest.raises(rc.RecensionError, match=r"insert \[2, 6\)"):
        live.push("a", [rc.Insert(A, 2, 6)])


@pytest.mark.parametrize("case", ["R3", "R3-", "R4"])
def test_a_key_is_adjusted_once_for_a_stable(case: rc.plan.merge.MergeCase) -> None:
    live = rc.session(rc.merge(_feed("a", has_key=True), case=case))
    live.push("a", [rc.Insert(A, 1, 5), rc.Cti(2)])
    live.attach(_feed("c", has_key=True), from_time=6)
    live.push("c", [rc.Insert(A, 1, 9), rc.Cti(8)])
    live.read()
    live.push("a", [rc.Retract(A, 1, 5, 7), rc.Cti(6)])
    assert _said(live) == ["retract [1, 5) -> 9 {'p': 'a'}", "cti 8"]


@pytest.mark.parametrize("case", ["R0", "R1", "R2", "R3", "R3-", "R4"])
def test_an_event_may_start_at_the_beginning_of_time(case: rc.plan.merge.MergeCase) -> None:
    live = rc.session(rc.merge(_feed("a"), _feed("b"), case=case))
    for name in "ab":
        live.push(name, [rc.Insert(A, rc.BEGINNING, 5)])
    live.push("a", [rc.Cti(rc.FOREVER)])
    assert [line.split()[0] for line in _said(live)] == ["insert", "cti"]


def _leading(leader: rc.plan.merge.Leader) -> Callable[..., list[str]]:
    def said(*turns: tuple[str, list[rc.Insert | rc.Retract | rc.Cti]]) -> list[str]:
        live = rc.session(rc.merge(_feed("a"), _feed("b"), case="R3", policy="lead", leader=leader))
        for name, elements in turns:
            live.push(name, elements)
        return _said(live)

    return said


def test_the_input_with_the_latest_start_has_the_first_word() -> None:
    said = _leading("starts")
    ahead = ("a", [rc.Insert(B, 10, 20)])
    assert said(ahead, ("b", [rc.Insert(A, 3, 5)])) == ["insert [10, 20) {'p': 'b'}"]
    assert said(("b", [rc.Insert(A, 3, 5)]), ahead) == [
        "insert [3, 5) {'p': 'a'}",
        "insert [10, 20) {'p': 'b'}",
    ]


def test_the_input_with_most_events_that_may_still_go_has_the_first_word() -> None:
    said = _leading("unfrozen")
    many = ("a", [rc.Insert(A, 1, 9), rc.Insert(B, 2, 9)])
    assert said(many, ("b", [rc.Insert(A, 3, 5)])) == ["insert [1, 9) {'p': 'a'}", "insert [2, 9) {'p': 'b'}"]
    assert said(("b", [rc.Insert(A, 3, 5)]), many)[0] == "insert [3, 5) {'p': 'a'}"
