"""External CTIs: they pass what has no state, and are taken in on the source where anything has."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.test_explain import check_golden
from tests.properties.plans import Plan, plans

import recension as rc
from recension import col
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.assertions import assert_equivalent, assert_valid
from recension.testing.model import reconstitute
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams

feed = rc.source("feed", {"k": "string", "v": "int64"}, external_ctis=True)
other = rc.source("other", {"k": "string", "v": "int64"})
ELEMENTS = [
    Retract({"k": "a", "v": 1}, 0, 9, 4),
    Insert({"k": "a", "v": 1}, 0, 9),
    Insert({"k": "b", "v": -1}, 3, 5),
]

PASSING = {
    "source": feed,
    "where": feed.where(col("v") > 0),
    "select": feed.select(w=col("v") + 1),
    "map": feed.map(lambda row: {"v": row["v"]}, {"v": "int64"}),
    "union": feed.union(other),
    "all": feed.where(col("v") > 0).union(other).select("k"),
}


def titles(query: rc.Stream) -> list[str]:
    lines = [line.strip(" │└├─") for line in query.explain().splitlines()]
    return [line for line in lines if not line.startswith(("columns:", "known:", "chosen:"))]


@pytest.mark.parametrize("name", PASSING)
def test_they_pass_unchanged_where_nothing_has_state(name: str) -> None:
    session = rc.session(PASSING[name])
    session.push("feed", [*ELEMENTS, ExternalCti(0, 8, 3)])
    assert [e for e in session.read().elements() if isinstance(e, ExternalCti)] == [ExternalCti(0, 8, 3)]
    assert not any("finalize" in title for title in titles(PASSING[name]))


@pytest.mark.parametrize(
    "query",
    [
        feed.where(col("v") > 0).agg(n=rc.count(), speculate="eager"),
        feed.where(col("v") > 0).finalize().agg(n=rc.count(), speculate="eager"),
        feed.where(col("v") > 0).agg(n=rc.count()).consistency(rc.MIDDLE),
        feed.where(col("v") > 0).union(other).finalize().agg(n=rc.count(), speculate="eager"),
    ],
)
def test_a_filter_below_does_not_spoil_the_count(query: rc.Stream) -> None:
    session = rc.session(query)
    session.push("feed", [*ELEMENTS, ExternalCti(0, 8, 3)])
    if "other" in session.sources:
        session.push("other", [Cti(8)])
    out = session.read()
    assert [str(e) for e in out.elements()] == ["insert [0, 4) {'n': 1}", "cti 8"]


def test_explain_shows_where_it_stands() -> None:
    query = feed.where(col("v") > 0).group_by("k").agg(n=rc.count())
    written, runs = query.explain(rewrite=False), query.explain()
    check_golden("external_ctis", f"as written\n\n{written}\nas it runs\n\n{runs}")


def test_a_finalize_written_further_up_keeps_its_memory() -> None:
    query = feed.where(col("v") > 0).finalize(7, since=2).distinct()
    assert titles(query)[1:3] == ["where v > 0", "finalize, remember 7, since 2"]


def test_each_branch_by_itself() -> None:
    query = feed.where(col("v") > 0).union(other.set_duration(3)).union(feed.set_duration(2))
    assert sum(title.endswith("finalize, remember forever") for title in titles(query)) == 1
    session = rc.session(query)
    session.push("feed", [Insert({"k": "a", "v": 1}, 0, 9), ExternalCti(0, 8, 1)])
    assert [str(e) for e in session.read().elements()] == [
        "insert [0, 9) {'k': 'a', 'v': 1}",
        "external_cti [0, 8) #1",
        "insert [0, 2) {'k': 'a', 'v': 1}",
    ]


def test_altered_lifetimes_have_it_below() -> None:
    assert titles(feed.set_duration(3))[1] == "finalize, remember forever"


def test_an_undeclared_source_says_what_to_do() -> None:
    session = rc.session(other.distinct())
    session.push("other", [Insert({"k": "a", "v": 1}, 0, 9)])
    with pytest.raises(
        rc.RecensionError, match=r"other: an external cti.*external_ctis=True.*\.finalize\(\)"
    ):
        session.push("other", [ExternalCti(0, 8, 1)])
    above_a_filter = rc.session(other.where(col("v") > 0).finalize())
    with pytest.raises(rc.RecensionError, match="onto the source itself"):
        above_a_filter.push("other", [ExternalCti(0, 8, 1)])


def test_a_negative_count_is_refused_as_other_bad_rows_are() -> None:
    schema = {"k": "string", "v": "int64"}
    bad = [*ELEMENTS, ExternalCti(0, 8, -1)]
    with pytest.raises(rc.StreamError, match=r"counts less than nothing: external_cti \[0, 8\) #-1"):
        rc.run(feed.finalize(), {"feed": bad})
    patient = rc.source("feed", schema, on_violation="drop", external_ctis=True)
    out = rc.run(patient.finalize(), {"feed": [*bad, ExternalCti(0, 8, 3)]})
    assert [str(e) for e in out.elements()][-1] == "cti 8"


LATER = rc.source("feed", {"k": "string", "v": "int64"}, external_ctis=True, since=100)


@pytest.mark.parametrize(
    "query",
    [
        LATER.where(col("v") > 0).distinct(),
        LATER.where(col("v") > 0).finalize(),
        LATER.distinct().consistency(remember=50),
    ],
)
def test_a_source_says_where_they_begin(query: rc.Stream) -> None:
    session = rc.session(query)
    session.push("feed", [Insert({"k": "a", "v": 1}, 103, 109), ExternalCti(100, 108, 1)])
    assert str(session.read().elements()[-1]) == "cti 108"
    assert any(title.endswith("since 100") for title in titles(query) if title.startswith("finalize"))


def test_a_finalize_may_name_another_beginning() -> None:
    assert "finalize, remember forever, since 7" in titles(LATER.finalize(since=7))


def test_a_beginning_of_nothing() -> None:
    with pytest.raises(rc.RecensionError, match="needs external_ctis=True"):
        rc.source("feed", {"v": "int64"}, since=5)


@given(st.data(), plans(max_steps=2))
def test_the_meaning_of_any_plan_from_any_arrival(data: st.DataObject, plan: Plan) -> None:
    """Two feeds in any order with external CTIs: closed, the answer is that of their histories."""
    s, t = (rc.source(name, SCHEMA, external_ctis=True) for name in ("s", "t"))
    session = rc.session(out=plan.build(s, t).align(), s=s, t=t)
    given_to = {name: data.draw(_feeds()) for name in ("s", "t")}
    for name, (_, arrival) in given_to.items():
        for batch in data.draw(batchings(arrival)):
            session.push(name, batch)
    session.close()
    shown = session.read("out").elements()
    assert_valid(shown)
    assert not any(isinstance(e, ExternalCti) for e in shown)
    assert_equivalent(shown, plan.meaning(*(reconstitute(changes) for changes, _ in given_to.values())))


@st.composite
def _feeds(draw: st.DrawFn) -> tuple[list[Element], list[Element]]:
    stream = draw(physical_streams(draw(histories(max_size=3)), shrink_only=True))
    changes: list[Element] = [e for e in stream if not isinstance(e, Cti)]
    cuts = [0, *sorted(draw(st.sets(st.integers(1, 20), max_size=2))), FOREVER]
    counts = [sum(a <= _sync(e) < b for e in changes) for a, b in pairwise(cuts)]
    external = [ExternalCti(a, b, n) for (a, b), n in zip(pairwise(cuts), counts, strict=True)]
    return changes, draw(st.permutations([*changes, *external]))


def _sync(e: Element) -> int:
    assert isinstance(e, Insert | Retract)
    return min(e.ve, e.new_ve) if isinstance(e, Retract) else e.vs
