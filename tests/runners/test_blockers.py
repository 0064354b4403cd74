"""Who an answer waits for: the input, its partition, since when, and what would free it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.runners.blockers import Blocker

K = {"k": "string"}
HOUR = 3_600_000_000
A, B, C = (rc.source(name, K) for name in "abc")
SEND = "send ctis, or put .advance_time(...) on it"


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def insert(start: int, end: int) -> rc.Insert:
    return rc.Insert({"k": "x"}, start, end)


def names(session: rc.Session, query: str | None = None) -> list[str]:
    return [one.name for one in session.blockers(query)]


def held(session: rc.Session) -> list[str | None]:
    """What the metrics say of the answer."""
    return [
        session.metrics()[session.plan.query_vertices[name]].held_back_by for name in session.plan.queries
    ]


def test_a_source_that_was_never_advanced_is_named() -> None:
    clock = HandClock()
    live = rc.session(A.join(B, on="k").cleanse(), clock=clock)
    clock.now = HOUR
    live.push("a", [insert(1, 5), rc.Cti(9)])
    clock.now = 2 * HOUR
    live.push("a", [insert(9, 12)])
    remedy = f"advance it: session.advance('b', t), {SEND}"
    assert live.blockers() == [Blocker("b", None, rc.BEGINNING, HOUR, remedy)]
    said = f"the answer waits for b: no cti yet, since 1970-01-01 01:00:00+00:00; {remedy}"
    assert live.explain().splitlines()[-1] == said
    answer = live.metrics()[live.plan.query_vertices["query"]]
    assert (answer.held_back_by, answer.held_at, answer.held_since) == ("b", rc.BEGINNING, HOUR)
    assert answer.freed_by == remedy


def test_what_it_says_would_free_the_answer_frees_it() -> None:
    live = rc.session(A.join(B, on="k").cleanse())
    live.push("a", [insert(1, 5), rc.Cti(9)])
    live.push("b", [insert(2, 4)])
    assert (names(live), list(live.read().elements())) == (["b"], [])
    live.advance("b", 20)
    assert [str(one) for one in live.read().elements()] == ["insert [2, 4) {'k': 'x'}", "cti 9"]
    assert (names(live), held(live)) == (["a"], ["a"])
    live.advance("a", 20)
    assert names(live) == ["a", "b"]
    live.close()
    assert (names(live), held(live)) == ([], [None])


def test_a_join_of_three_names_the_least() -> None:
    live = rc.session(A.join(B, on="k").join(C, on="k"))
    live.push("a", [rc.Cti(9)])
    assert names(live) == ["b", "c"]
    live.push("c", [rc.Cti(5)])
    assert names(live) == ["b"]
    live.push("b", [rc.Cti(7)])
    assert (names(live), held(live)) == (["c"], ["c"])
    joins = [one.held_back_by for one in live.metrics() if "join" in one.name]
    assert joins == ["b", "c"], "each step names what it waits for itself"


def test_every_query_of_a_session_has_its_own() -> None:
    live = rc.session(board=A.join(B, on="k"), news=A.union(C))
    live.push("a", [rc.Cti(9)])
    live.push("b", [rc.Cti(12)])
    assert (names(live, "board"), names(live, "news")) == (["a"], ["c"])
    said = [line.split(": ")[0] for line in live.explain().splitlines() if "waits for" in line]
    assert said == ["board waits for a", "news waits for c"]
    assert "news" not in live.explain("board")


def test_a_partition_is_named() -> None:
    feed = rc.source("feed", K, partition="p")
    live = rc.session(feed.join(B, on="k"))
    live.push("feed", {0: [rc.Cti(10)], 1: [rc.Cti(5)]})
    live.push("b", [rc.Cti(8)])
    (one,) = live.blockers()
    assert (one.source, one.partition, one.cti, one.name) == ("feed", "1", 5, "feed, partition 1")
    assert one.remedy == "advance it: session.advance('feed', t, partition=...), or declare idle="
    assert held(live) == ["feed, partition 1"]
    live.advance("feed", 9, partition=1)
    assert names(live) == ["b"]


def test_partitions_that_have_not_spoken_are_counted() -> None:
    live = rc.session(rc.source("feed", K, partition="p", partitions=2).union(B))
    live.push("feed", {0: [rc.Cti(10)]})
    live.push("b", [rc.Cti(8)])
    (one,) = live.blockers()
    assert (one.name, one.cti) == ("feed, 1 more to speak", rc.BEGINNING)
    assert one.remedy == "session.advance('feed', t) counts for all partitions, or declare idle="
    live.advance("feed", 9)
    assert names(live) == ["b"]


def test_a_merge_waits_for_the_one_that_is_furthest() -> None:
    """Any of the replicas moves it, this one soonest."""
    live = rc.session(rc.merge(A, B).join(C, on="k"))
    live.push("c", [rc.Cti(20)])
    live.push("a", [rc.Cti(4)])
    live.push("b", [rc.Cti(7)])
    assert (names(live), held(live)) == (["b"], ["b"])
    live.push("a", [rc.Cti(9)])
    assert names(live) == ["a"]
    live.detach("a")
    assert names(live) == ["b"]


def test_a_table_that_follows_waits_for_the_stream() -> None:
    sites = rc.table("sites", {**K, "site": "string"}, refresh="1h")
    live = rc.session(A.join(sites, on="k"))
    live.push("a", [rc.Cti(9)])
    assert [(one.source, one.remedy) for one in live.blockers()] == [
        ("sites", "give the table: session.push('sites', rows)")
    ]
    live.push("sites", pa.table({"k": ["x"], "site": ["hall"]}))
    assert names(live) == ["a"]
    live.advance("a", 12)
    assert (names(live), live.blockers()[0].cti) == (["a"], 12)


def test_a_source_above_group_apply() -> None:
    grouped = A.group_by("k").apply(lambda g: g.cleanse().align(3))
    assert "GroupApply" in grouped.explain(format="json")
    live = rc.session(grouped.join(B, on="k"))
    live.push("a", [insert(1, 5), rc.Cti(9)])
    assert names(live) == ["b"]
    live.push("b", [rc.Cti(20)])
    assert (names(live), held(live)) == (["a"], ["a"])


def test_a_source_whose_ctis_are_made_of_its_rows() -> None:
    live = rc.session(A.advance_time(2).join(B, on="k"))
    live.push("b", [rc.Cti(20)])
    live.push("a", [insert(10, 15)])
    (one,) = live.blockers()
    assert (one.source, one.cti, one.remedy) == ("a", 8, "later rows move it, or session.advance('a', t)")
    live.push("a", [insert(40, 50)])
    assert names(live) == ["b"]


def test_a_source_whose_partitions_make_ctis_of_their_rows() -> None:
    feed = rc.source("feed", K, partition="p").advance_time(2)
    live = rc.session(feed.join(B, on="k"))
    live.push("b", [rc.Cti(20)])
    live.push("feed", {0: [insert(30, 40)], 1: [insert(10, 15)]})
    (one,) = live.blockers()
    assert (one.name, one.cti) == ("feed, partition 1", 8)


def test_ctis_of_another_stream_are_waited_for_there() -> None:
    live = rc.session(A.advance_time(by=B))
    live.push("a", [insert(1, 5), rc.Cti(9)])
    assert names(live) == ["b"]


def test_a_step_that_waits_for_windows_names_the_source_below() -> None:
    live = rc.session(A.tumbling(10).agg(n=rc.count()))
    live.push("a", [insert(1, 5), rc.Cti(9)])
    assert [(one.source, one.cti) for one in live.blockers()] == [("a", 9)]


@pytest.mark.parametrize(
    "query",
    [A.join(B, on="k"), A.advance_time(2).union(B.advance_time(3)), rc.merge(A, B)],
    ids=["join", "made ctis", "merge"],
)
def test_after_a_restore_the_same_one_is_named(query: rc.Stream) -> None:
    def place(session: rc.Session) -> list[tuple[str, int]]:
        return [(one.name, one.cti) for one in session.blockers()]

    live = rc.session(query)
    live.push("a", [insert(10, 15), rc.Cti(9)])
    live.push("b", [insert(20, 25), rc.Cti(3)])
    live.read()
    again = rc.session(query)
    again.restore(live.snapshot())
    assert place(again) == place(live) != []
    assert [one.since for one in again.blockers()] == [None]


def test_the_clock_is_read_only_when_a_cti_has_moved() -> None:
    read: list[int] = []

    def clock() -> int:
        read.append(len(read))
        return read[-1]

    live = rc.session(A.union(B), clock=clock)
    push: Callable[[Any], None] = lambda *elements: live.push("a", list(elements))  # noqa: E731
    push(insert(1, 5))
    begun = len(read)
    push(insert(2, 5))
    push(insert(3, 5))
    assert len(read) == begun
    push(rc.Cti(4))
    assert len(read) == begun + 1
