"""What the answers of every operator rest on, as a table: a query, its inputs, an answer, the events named.

Events are written ``vs-ve k v``. Before an event, ``+`` is needed and ``~`` is shared; what is not written is
not named. ``away`` is where nothing else may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.plan.test_structure import node_kinds

import recension as rc
from recension import col
from recension.core.events import Event, Insert
from recension.core.ticks import FOREVER
from recension.lineage import Why
from recension.lineage.result import Absence
from recension.lineage.rules import lineage_of
from recension.plan.node import walk
from recension.plan.nodes import Source
from recension.plan.parts import OfAllParts, OfOnePart
from recension.plan.source import Leaf

SCHEMA = {"k": "string", "v": "int64"}
s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)


class Widest(rc.Operator):
    """A module: the rows of the events with the greatest value."""

    inputs = {"v": "int64"}
    result = {"most": "int64"}

    def compute(self, payloads: Any) -> Any:
        return [{"most": max(payload["v"] for payload in payloads)}]


@dataclass(frozen=True)
class Case:
    name: str
    query: Any
    s: str
    answer: tuple[dict[str, Any], int]
    named: str
    t: str = ""
    named_t: str = ""
    away: str = ""


CASES = [
    Case("where", s.where(col("v") > 1), "0-5 a 2; 0-5 b 3", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("select", s.select("k"), "0-5 a 2; 0-5 a 3", ({"k": "a"}, 1), "~0-5 a 2; ~0-5 a 3"),
    Case(
        "map",
        s.map(lambda row: {"w": row["v"] // 2}, {"w": "int64"}, per_row=True),
        "0-5 a 2; 0-5 b 9",
        ({"w": 1}, 1),
        "+0-5 a 2",
    ),
    Case("times as values", s.where(rc.lifetime() > 3), "0-5 a 2; 0-2 a 2", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("with_lifetime", s.with_lifetime(rc.end(), rc.end() + 3), "0-5 a 2; 7-8 a 2", ({}, 6), "+0-5 a 2"),
    Case("shift", s.shift(10), "0-5 a 2; 10-15 b 2", ({}, 12), "+0-5 a 2"),
    Case("extend", s.extend(-2), "0-5 a 2; 0-2 b 2", ({}, 1), "+0-5 a 2"),
    Case("inserts", s.inserts(), "0-5 a 2; 90-95 b 2", ({}, 50), "+0-5 a 2"),
    Case("deletes", s.deletes(), "0-5 a 2; 0-95 b 2", ({}, 50), "+0-5 a 2"),
    Case("hop_lifetime", s.hop_lifetime(10, 5), "7-8 a 2", ({}, 5), "+7-8 a 2"),
    Case(
        "alter_lifetime",
        s.alter_lifetime(start=lambda vs, ve: ve, duration=4),
        "0-5 a 2; 0-9 b 1",
        ({}, 7),
        "+0-5 a 2",
    ),
    Case(
        "union", s.union(t), "0-5 a 2", ({"k": "a"}, 1), "~0-5 a 2", t="0-5 a 2; 0-9 b 2", named_t="~0-5 a 2"
    ),
    Case("a copy", s, "0-5 a 2; 0-5 a 2", ({}, 1), "~0-5 a 2; ~0-5 a 2"),
    Case("align", s.align(3), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("cleanse", s.cleanse(), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("finalize", s.finalize(), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("advance_time", s.advance_time(100), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2"),
    Case(
        "the clock of another stream",
        s.advance_time(by=t),
        "0-5 a 2; 2-4 b 1",
        ({"k": "a"}, 1),
        "+0-5 a 2",
        t="0-9 c 1",
    ),
    Case("due", s.due(), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2"),
    Case("due by another", s.due(by=t), "0-5 a 2; 2-4 b 1", ({"k": "a"}, 1), "+0-5 a 2", t="0-9 c 1"),
    Case("merge", rc.merge(s, t), "0-5 a 2", ({}, 1), "+0-5 a 2", t="0-5 a 2", named_t="~0-5 a 2"),
    Case(
        "join",
        s.join(t, on="k"),
        "0-9 a 2; 0-9 b 2",
        ({"k": "a"}, 5),
        "+0-9 a 2",
        t="4-12 a 7; 4-12 b 7",
        named_t="+4-12 a 7",
    ),
    Case(
        "join with a condition",
        s.join(t, where=col("v") < col("v_right")),
        "0-9 a 2; 0-9 b 8",
        ({}, 5),
        "+0-9 a 2",
        t="4-12 a 7; 4-12 b 1",
        named_t="+4-12 a 7",
    ),
    Case(
        "semi join",
        s.join(t, on="k", how="semi"),
        "0-9 a 2",
        ({}, 5),
        "+0-9 a 2",
        t="1-5 a 7; 4-7 a 8; 2-3 a 9; 8-9 a 1",
        named_t="+1-5 a 7; +4-7 a 8; ~2-3 a 9",
        away="t k=a 1..7",
    ),
    Case(
        "anti join",
        s.join(t, on="k", how="anti"),
        "0-9 a 2",
        ({}, 5),
        "+0-9 a 2",
        t="1-3 a 7; 2-3 a 8; 6-8 a 9; 0-9 b 1; 8-9 a 1",
        named_t="~1-3 a 7; ~2-3 a 8; +6-8 a 9",
        away="t k=a 3..6",
    ),
    Case(
        "anti join of an anti join",
        s.join(t.join(t.shift(1), on="v", how="anti"), on="k", how="anti"),
        "5-6 a 2",
        ({}, 5),
        "+5-6 a 2",
        t="5-6 a 7; 4-5 b 7",
        named_t="+4-5 b 7",
        away="t k=a 5..6; t 4..5",
    ),
    Case(
        "left join, without a match",
        s.join(t, on="k", how="left"),
        "0-9 a 2",
        ({"v_right": None}, 1),
        "+0-9 a 2",
        t="4-12 a 7",
        named_t="+4-12 a 7",
        away="t k=a 0..4",
    ),
    Case(
        "left join, with one",
        s.join(t, on="k", how="left"),
        "0-9 a 2",
        ({}, 5),
        "+0-9 a 2",
        t="4-12 a 7",
        named_t="+4-12 a 7",
    ),
    Case(
        "full join, without a match",
        s.join(t, on="k", how="full"),
        "0-9 a 2",
        ({"v": None}, 10),
        "+0-9 a 2",
        t="4-12 a 7",
        named_t="+4-12 a 7",
        away="s k=a 9..12",
    ),
    Case(
        "join by start",
        s.join(t, on="k", starts=(-2, 5)),
        "0-9 a 2; 0-9 b 2",
        ({"k": "a"}, 4),
        "+0-9 a 2",
        t="4-12 a 7; 6-12 a 7; 4-12 b 7",
        named_t="+4-12 a 7",
    ),
    Case(
        "semi join by start",
        s.join(t, on="k", how="semi", starts=(0, 5)),
        "0-9 a 2",
        ({}, 8),
        "+0-9 a 2",
        t="1-5 a 7; 4-7 a 8; 6-9 a 9",
        named_t="~1-5 a 7; ~4-7 a 8",
    ),
    Case(
        "left join by start, with a match",
        s.join(t, on="k", how="left", starts=(0, 5)),
        "0-9 a 2",
        ({}, 4),
        "+0-9 a 2",
        t="1-5 a 7; 4-7 a 8; 6-9 a 9",
        named_t="+4-7 a 8",
    ),
    Case(
        "full join by start, without a match",
        s.join(t, on="k", how="full", starts=(0, 5)),
        "0-9 a 2",
        ({"v": None}, 8),
        "",
        t="6-9 a 9",
        named_t="+6-9 a 9",
        away="s k=a 1..6",
    ),
    Case(
        "unless",
        rc.unless(s, t, within=5, on="k"),
        "0-1 a 2; 0-1 b 2",
        ({"k": "a"}, 3),
        "+0-1 a 2",
        t="5-6 a 7; 2-3 b 8",
        away="t k=a 1..4",
    ),
    Case(
        "sequence",
        rc.sequence({"one": s, "two": t}, within=9, on="k"),
        "0-1 a 2; 1-2 a 3; 0-1 b 2",
        ({"k": "a", "one_v": 2}, 6),
        "+0-1 a 2",
        t="4-5 a 7; 0-1 a 9; 9-10 a 1",
        named_t="+4-5 a 7",
    ),
    Case(
        "sequence with nothing between",
        rc.sequence({"one": s.where(col("v") > 0), "two": s.where(col("v") > 5)}, within=9, on="k", absent=t),
        "0-1 a 2; 4-5 a 7; 3-4 b 9",
        ({}, 6),
        "+0-1 a 2; +4-5 a 7",
        t="4-5 a 1; 0-1 a 1",
        away="t k=a 0..4",
    ),
    Case(
        "all of, in any order",
        rc.all_of({"one": s, "two": t}, within=9, on="k", where=col("one_v") > col("two_v")),
        "4-5 a 7; 4-5 a 1",
        ({}, 6),
        "+4-5 a 7",
        t="0-1 a 3",
        named_t="+0-1 a 3",
    ),
    Case(
        "at least one",
        rc.at_least(1, {"one": s, "two": t}, within=9, on="k"),
        "4-5 a 7",
        ({"two_v": None}, 6),
        "+4-5 a 7",
        t="0-1 a 3",
    ),
    Case(
        "clip",
        s.clip(by=t, on="k"),
        "0-9 a 2",
        ({}, 1),
        "+0-9 a 2",
        t="0-3 a 1; 4-5 a 1; 6-7 a 1; 2-3 b 1",
        named_t="+4-5 a 1",
        away="t k=a 0..4",
    ),
    Case(
        "distinct",
        s.distinct(),
        "0-5 a 2; 4-9 a 2; 6-7 a 2; 12-14 a 2",
        ({}, 6),
        "+0-5 a 2; +4-9 a 2; ~6-7 a 2",
        away="s k=a v=2 0..9",
    ),
    Case(
        "coalesce",
        s.coalesce("v", "k"),
        "0-5 a 2; 5-9 a 2; 9-12 a 3",
        ({"v": 2}, 6),
        "+0-5 a 2; +5-9 a 2",
        away="s k=a v=2 0..9",
    ),
    Case(
        "coalesce a run",
        s.coalesce("v", "k", "increasing"),
        "0-5 a 2; 5-9 a 4; 9-12 a 3; 20-21 a 9",
        ({"v": 2}, 6),
        "+0-5 a 2; +5-9 a 4; ~9-12 a 3",
        away="s k=a 0..12",
    ),
    Case(
        "edges",
        s.edges("k"),
        "0-1 a 2; 5-6 a 4; 9-12 a 3; 7-8 b 1",
        ({"k": "a"}, 7),
        "+5-6 a 4; +9-12 a 3",
        away="s k=a 5..9",
    ),
    Case(
        "as_of",
        s.as_of(t, on="k"),
        "7-8 a 2",
        ({}, 7),
        "+7-8 a 2",
        t="0-1 a 1; 5-6 a 4; 9-12 a 3",
        named_t="+5-6 a 4; ~9-12 a 3",
        away="t k=a 5..9",
    ),
    Case(
        "coalesce over a range",
        s.coalesce("v", "k", window=rc.range(4, 5)),
        "0-1 a 1; 3-4 a 2; 4-5 a 2; 4-5 b 9",
        ({"k": "a", "v": 2}, 6),
        "+3-4 a 2; +4-5 a 2",
        away="s k=a 1..5",
    ),
    Case(
        "coalesce over rows",
        s.coalesce("v", "k", window=rc.rows(2)),
        "0-1 a 1; 3-4 a 2; 4-5 a 2; 7-8 a 9",
        ({"k": "a", "v": 2}, 5),
        "+3-4 a 2; +4-5 a 2; +7-8 a 9",
        away="s 3..7",
    ),
    Case(
        "an extent set",
        rc.ExtentSet(s, rc.range(4, 5), steady=rc.coalescing("v", "k"))["steady"],
        "0-1 a 1; 3-4 a 2; 4-5 a 2; 4-5 b 9",
        ({"k": "a", "v": 2}, 6),
        "+3-4 a 2; +4-5 a 2",
        away="s k=a 1..5",
    ),
    Case(
        "count",
        s.group_by("k").agg(n=rc.count()),
        "0-9 a 2; 4-8 a 3; 4-8 b 1",
        ({"k": "a"}, 5),
        "+0-9 a 2; +4-8 a 3",
        away="s k=a 4..8",
    ),
    Case(
        "a maximum and what bounds it",
        s.agg(m=rc.max("v")),
        "0-20 a 7; 0-10 b 2; 4-6 c 1; 12-13 d 9",
        ({}, 7),
        "+0-20 a 7; +0-10 b 2; +4-6 c 1",
        away="s 6..10",
    ),
    Case(
        "a sum with a zero",
        s.agg(m=rc.sum("v")),
        "0-9 a 7; 0-9 b 0; 0-9 c null",
        ({}, 7),
        "+0-9 a 7; ~0-9 b 0",
        away="s 0..9",
    ),
    Case("first", s.agg(m=rc.first("v")), "0-9 a 7; 0-9 b 0", ({}, 7), "+0-9 a 7", away="s 0..9"),
    Case("last", s.agg(m=rc.last("v")), "0-9 a 7; 0-9 b 0", ({}, 7), "+0-9 b 0", away="s 0..9"),
    Case("any", s.agg(m=rc.any(col("v") > 1)), "0-9 a 7; 0-9 b 0", ({}, 7), "+0-9 a 7", away="s 0..9"),
    Case("all", s.agg(m=rc.all(col("v") > 1)), "0-9 a 7; 0-9 b 0", ({}, 7), "+0-9 b 0", away="s 0..9"),
    Case(
        "arg_max",
        s.agg(m=rc.arg_max("k", by="v")),
        "0-9 a 7; 0-9 b 0",
        ({}, 7),
        "+0-9 a 7",
        away="s 0..9",
    ),
    Case(
        "count where",
        s.agg(m=rc.count(where=col("v") > 1)),
        "0-9 a 7; 0-9 b 0",
        ({}, 7),
        "+0-9 a 7",
        away="s 0..9",
    ),
    Case(
        "top_k",
        s.agg(rc.top_k(2, by="v")),
        "0-9 a 7; 0-9 b 0; 0-9 c 3",
        ({"rank": 2}, 7),
        "+0-9 a 7; +0-9 c 3",
        away="s 0..9",
    ),
    Case(
        "a function of one's own",
        s.agg(m=rc.aggregate(lambda values: len(values) // 2, "v", result="int64")),
        "0-9 a 7; 0-9 b 0; 0-9 c 3",
        ({}, 7),
        "~0-9 a 7; ~0-9 b 0; ~0-9 c 3",
        away="s 0..9",
    ),
    Case(
        "tumbling",
        s.group_by("k").tumbling(10).agg(n=rc.count()),
        "0-9 a 2; 9-12 a 3; 12-13 a 1",
        ({}, 5),
        "+0-9 a 2; +9-12 a 3",
        away="s k=a 0..10",
    ),
    Case(
        "hopping",
        s.hopping(10, 5).agg(n=rc.max("v")).where(rc.start() > 5),
        "0-4 a 2; 9-12 a 3; 12-13 a 1",
        ({}, 11),
        "+9-12 a 3",
        away="s 10..20",
    ),
    Case(
        "sessions",
        s.sessions(3).agg(n=rc.max("v")),
        "0-4 a 2; 5-6 b 3; 5-6 c 1; 12-13 a 1",
        ({}, 2),
        "+0-4 a 2; +5-6 b 3; ~5-6 c 1",
        away="s -3..9",
    ),
    Case(
        "a count window",
        s.count_window(2).agg(n=rc.max("v")),
        "0-4 a 2; 5-6 b 3; 5-6 c 1; 12-13 a 1",
        ({}, 2),
        "+0-4 a 2; +5-6 b 3; ~5-6 c 1",
        away="s 0..6",
    ),
    Case(
        "snapshot windows",
        s.snapshot().agg(n=rc.count()),
        "0-9 a 2; 4-8 a 3",
        ({}, 2),
        "+0-9 a 2; +4-8 a 3",
        away="s 0..4",
    ),
    Case(
        "a module",
        s.tumbling(10).apply(Widest()),
        "0-9 a 2; 4-8 a 3; 20-21 a 9",
        ({}, 2),
        "~0-9 a 2; +4-8 a 3",
        away="s 0..10",
    ),
    Case(
        "group and apply",
        s.group_by("k").apply(lambda g: g.advance_time(100).tumbling(10).agg(n=rc.count())),
        "0-9 a 2; 4-8 a 3; 20-21 a 9; 0-9 b 1",
        ({"k": "a"}, 2),
        "+0-9 a 2; +4-8 a 3; ~20-21 a 9",  # all of the group that the windows reach
        away="s k=a -10..20",
    ),
]


def events(text: str) -> list[Event]:
    found = []
    for part in text.split(";"):
        if part.strip():
            times, k, v = part.split()
            vs, ve = times.split("-")
            value = None if v == "null" else int(v)
            found.append(Event({"k": k, "v": value}, int(vs), FOREVER if ve == "inf" else int(ve)))
    return found


def written(why: Why, source: str) -> str:
    marks = {"needed": "+", "shared": "~"}
    return "; ".join(
        f"{marks[one.mark]}{one.event.vs}-{one.event.ve} {one.event.payload['k']} {_value(one.event)}"
        for one in why.named.get(source, [])
    )


def _value(event: Event) -> str:
    value = event.payload["v"]
    return "null" if value is None else str(value)


def absences(why: Why) -> list[str]:
    return [
        " ".join([one.source, *(f"{name}={value}" for name, value in one.region.where), _times(one)])
        for one in why.absences
    ]


def _times(absence: Absence) -> str:
    return f"{absence.region.start}..{absence.region.end}"


def explain(case: Case) -> Why:
    given = {"s": case.s, "t": case.t}
    read = {n.name for n in walk(case.query.plan) if isinstance(n, Source)}
    feeds = {name: [Insert(e.payload, e.vs, e.ve) for e in events(given[name])] for name in read}
    columns, at = case.answer
    return rc.why(case.query, feeds, columns, at=at, close=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_it_rests_on(case: Case) -> None:
    why = explain(case)
    assert sorted(written(why, "s").split("; ")) == sorted(case.named.split("; "))
    assert sorted(written(why, "t").split("; ")) == sorted(case.named_t.split("; "))
    assert absences(why) == [part for part in case.away.split("; ") if part]
    assert why.biography is not None
    assert why.biography.final is not None, "all inputs are closed"
    assert str(why).startswith("[")


def test_there_is_a_case_for_every_kind_of_node() -> None:
    kinds = {type(node) for case in CASES for node in walk(case.query.plan)}
    asked = {kind for kind in node_kinds() if not issubclass(kind, Leaf | OfOnePart | OfAllParts)}
    made_by_spark = {"AlignByClock", "AdvanceTimeByClock", "Span"}
    keyed = {"RestateByKey", "ChangesByKey"}  # in test_why.py
    assert {kind.__name__ for kind in asked - kinds} <= made_by_spark | keyed
    assert all(lineage_of.dispatch(kind) is not lineage_of.dispatch(object) for kind in asked)
