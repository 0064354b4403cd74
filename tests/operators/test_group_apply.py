"""Group and apply, a pipeline a group: what is held, forgotten, counted and restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples

import recension as rc
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.validity import LATE
from recension.lowering import operator_of
from recension.operators.group_apply import GroupApply
from recension.plan import nodes
from recension.plan.node import walk
from recension.testing.driver import Driver
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

Build = Callable[[Any], Any]

KINDS: dict[str, Build] = {
    "align": lambda g: g.finalize().align(2),
    "cleanse": lambda g: g.finalize().cleanse(),
    "finalize": lambda g: g.finalize(3),
    "endless finalize": lambda g: g.finalize(),
    "advance_time": lambda g: g.advance_time(3),
    "advance_time by": lambda g: g.advance_time(by=g.where(rc.col("v") > 0)),
    "sum": lambda g: g.advance_time(2).agg(v=rc.sum("v")),
    "first, eager": lambda g: g.advance_time(2).agg(v=rc.first("v"), speculate="eager"),
    "windows": lambda g: g.advance_time(2).hopping(4, 2, until=15).agg(v=rc.max("v")),
    "count windows": lambda g: g.finalize().align(1).count_window(1).agg(v=rc.sum("v")).cleanse(),
    "joins": lambda g: (
        g.finalize().align(1).join(g.shift(2), on="v", how="left").select("v").distinct().cleanse()
    ),
    "clip": lambda g: g.finalize().align(1).clip(by=g).union(g.shift(1)).cleanse(),
    "within": lambda g: g.finalize().group_by("v").apply(lambda h: h.finalize().cleanse()),
}


def node_of(build: Build) -> nodes.GroupApply:
    """The step that runs group by group."""
    query = rc.source("s", SCHEMA).group_by("k").apply(build)
    return next(node for node in walk(query.plan) if isinstance(node, nodes.GroupApply))


def keyed(element: Element) -> Element:
    """The element with its group's key beside it."""
    match element:
        case Insert(payload, vs, ve):
            return Insert({"group k": payload["k"], **payload}, vs, ve)
        case Retract(payload, vs, ve, new_ve):
            return Retract({"group k": payload["k"], **payload}, vs, ve, new_ve)
    return element


def driver(build: Build) -> Driver:
    node = node_of(build)
    return Driver(lambda: operator_of(node), *(stream.schema for stream in node.streams))


def groups(drive: Driver) -> int:
    """How many groups are at hand."""
    assert isinstance(drive.operator, GroupApply)
    return len(drive.operator._groups)


@pytest.mark.parametrize("kind", ["align", "cleanse", "finalize", "advance_time", "sum", "windows"])
@settings(max_examples=examples(20))
@given(st.data())
def test_one_restored_goes_on_alike(kind: str, data: st.DataObject) -> None:
    drive = driver(KINDS[kind])
    for batch in data.draw(batchings(data.draw(physical_streams(data.draw(histories()))))):
        drive.feed([keyed(element) for element in batch])
        if data.draw(st.booleans()):
            drive.restore_twin()
    assert drive.operator.state_rows() == 0
    assert groups(drive) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_the_cti_has_passed_is_forgotten(kind: str) -> None:
    """Every group comes, lives for a while and goes."""
    session = rc.session(rc.source("s", SCHEMA).group_by("k").apply(KINDS[kind]))
    (operator,) = [v.operator for v in session._run.plan.vertices if isinstance(v.operator, GroupApply)]
    for turn in range(10):
        rows = [Insert({"k": f"{turn} {n}", "v": n}, turn * 10 + n, turn * 10 + n + 3) for n in range(4)]
        session.push("s", rows)
        assert len(operator._groups) >= 4
        session.push("s", [Cti(turn * 10 + 9)])
        assert len(operator._groups) <= 4
    session.push("s", [Cti(200)])
    assert (len(operator._groups), operator.state_rows()) == (0, 0)


def test_a_group_that_comes_again_knows_the_ctis_it_has_missed() -> None:
    drive = driver(lambda g: g.finalize(100))
    drive.feed([keyed(Insert({"k": "a", "v": 1}, 0, 2)), Cti(10)])
    assert groups(drive) == 0
    assert drive.feed([keyed(Insert({"k": "a", "v": 2}, 5, 9))]) == []
    assert drive.operator.counts() == {LATE: 1}


def test_what_is_late_in_one_group_is_not_in_another() -> None:
    query = rc.source("s", SCHEMA).group_by("k").apply(lambda g: g.finalize(2))
    session = rc.session(query)
    for vs in (20, 5, 19, 18):
        session.push("s", [Insert({"k": "a", "v": vs}, vs, 30)])
    session.push("s", [Insert({"k": "b", "v": 5}, 5, 30)])
    out = session.read()
    assert [e.payload["v"] for e in out.elements() if isinstance(e, Insert)] == [20, 19, 18, 5]
    ((_, dropped),) = next(iter(out.dropped.values()))
    assert list(map(str, dropped.to_elements())) == ["insert [5, 30) {'k': 'a', 'v': 5}"]
    assert sum(m.dropped for m in out.metrics) == 1


def test_counts_outlive_their_group_and_a_snapshot() -> None:
    query = rc.source("s", SCHEMA).group_by("k").apply(lambda g: g.advance_time(0))
    session = rc.session(query)
    session.push("s", [Insert({"k": "a", "v": vs}, vs, 30) for vs in (9, 5, 6)])
    session.push("s", [Cti(31)])
    chunks, session = session.snapshot(), rc.session(query)
    session.restore(chunks)
    session.push("s", [Insert({"k": "b", "v": vs}, vs, 60) for vs in (40, 33)])
    assert sum(m.dropped for m in session.metrics()) == 3


def test_the_wall_clock_reaches_every_group() -> None:
    now = 0
    query = rc.source("s", SCHEMA).group_by("k").apply(lambda g: g.align(rc.wall_clock("5us")))
    session = rc.session(query, clock=lambda: now)
    shown = []
    for now, key in ((0, "a"), (3, "b"), (5, "c"), (8, "d"), (20, "e")):
        session.push("s", [Insert({"k": key, "v": now}, now, 99)])
        shown.append([e.payload["k"] for e in session.read().elements() if isinstance(e, Insert)])
    assert shown == [[], [], ["a"], ["b"], ["c", "d"]]


def test_the_checks_of_a_source_forget_behind_the_slowest_group() -> None:
    """Without CTIs of the source a group may come that has seen nothing: nothing is forgotten."""
    s = rc.source("s", SCHEMA)
    session = rc.session(s.group_by("k").apply(lambda g: g.advance_time(5)))
    for t in range(0, 400, 10):
        session.push("s", [Insert({"k": "ab"[t % 20 // 10], "v": 0}, t, t + 3)])
    assert next(m.state_rows for m in session.metrics() if m.name == "s") == 40
    session.push("s", [Cti(400)])
    assert next(m.state_rows for m in session.metrics() if m.name == "s") == 0


def test_a_restored_group_holds_the_cti_back_as_before() -> None:
    """Group a has a session that is open; nothing comes of a after the restore, but of b."""
    drive = driver(lambda g: g.finalize().sessions(5).agg(n=rc.count()))
    drive.feed([keyed(Insert({"k": name, "v": 1}, vs, vs + 1)) for name, vs in (("a", 8), ("b", 1))])
    assert drive.feed([Cti(10)])[-1] == Cti(8)
    drive.restore_twin()
    assert Cti(10) not in drive.feed([keyed(Insert({"k": "b", "v": 1}, 20, 21))])
