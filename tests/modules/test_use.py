"""Modules where queries put them: in groups, beside aggregates, without columns, at levels."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.modules.family import CUTS, MODULES, Listed, Spans, Sum, Top

import recension as rc
from recension.testing.assertions import assert_equivalent
from recension.testing.model import StreamModel

S: Any = rc.source("s", {"k": "string", "v": "int64"})
EVENTS = [rc.Insert({"k": "ab"[i % 2], "v": i}, i, i + 1 + 3 * (i % 3)) for i in range(12)]


def _run(query: Any, **how: Any) -> list[rc.Event]:
    return rc.run(query, {"s": EVENTS}, close=True, **how).history().to_events()


class Count(rc.Aggregate):
    """Of nothing in particular."""

    inputs = {}
    result = "int64"

    def compute(self, payloads: Any) -> int:
        return len(payloads)


def test_a_module_that_reads_nothing() -> None:
    for windowed in (S.tumbling(4), S.snapshot(), S.count_window(3), S.group_by("k").hopping(6, 2)):
        assert_equivalent(_run(windowed.agg(n=Count())), _run(windowed.agg(n=rc.count())))
    bare: Any = rc.source("s", {})
    counted = rc.run(bare.tumbling(4).agg(n=Count()), {"s": [rc.Insert({}, 1, 2)] * 3}, close=True)
    assert counted.history().to_events() == [rc.Event({"n": 3}, 0, 4)]


def test_a_group_by_itself_is_the_same_as_by_its_key() -> None:
    inside = S.group_by("k").apply(lambda g: g.tumbling(5).apply(Top(k=1)))
    assert_equivalent(_run(inside), _run(S.group_by("k").tumbling(5).apply(Top(k=1))))
    inside = S.group_by("k").apply(lambda g: g.snapshot().agg(a=Spans(v="v")))
    assert_equivalent(_run(inside), _run(S.group_by("k").agg(a=Spans(v="v"))))


def test_beside_the_aggregates_of_the_library() -> None:
    named = {
        "n": rc.count(),
        "s": rc.sum("v"),
        "m": rc.mean("v"),
        "top": rc.max("v"),
        "q": rc.quantile("v", 0.5),
        "first": rc.first("v"),
        "last": rc.last(rc.col("v") * 2),
        "all": rc.collect("v"),
    }
    for windowed in (S.hopping(6, 4), S.snapshot(), S.group_by("k").count_window(2, by="end")):
        apart, together = windowed.agg(**named), windowed.agg(**named, x=Sum())
        assert_equivalent(_run(together.drop("x")), _run(apart))


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_ties_hold_ctis_up_beside_a_module_as_they_do_apart(cut: Any) -> None:
    batches: list[list[Any]] = [
        [
            rc.Insert({"k": "a", "v": 5}, 1, 12),
            rc.Insert({"k": "a", "v": 2}, 1, 14),
            rc.Insert({"k": "b", "v": 3}, 8, 9),
        ],
        [rc.Insert({"k": "a", "v": 4}, 9, 20), rc.Cti(11)],
        [rc.Retract({"k": "a", "v": 2}, 1, 14, 11)],
        [rc.Retract({"k": "a", "v": 5}, 1, 12, 16), rc.Cti(17)],
        [rc.Cti(rc.FOREVER)],
    ]
    windowed = cut.build(S.group_by("k"))
    firsts = {"first": rc.first("v"), "all": rc.collect("v")}
    apart, together = (
        _played(query, batches)
        for query in (windowed.agg(**firsts), windowed.agg(**firsts, x=Sum()).drop("x"))
    )
    assert together.ctis == apart.ctis
    assert_equivalent(together.events(), apart.events())


class _Played(StreamModel):
    """What a query put out, and where its CTIs were after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.ctis: list[list[rc.Cti]] = []


def _played(query: Any, batches: list[list[Any]]) -> _Played:
    live, played = rc.session(query), _Played()
    for batch in batches:
        live.push("s", batch)
        out = live.read().elements()
        played.ctis.append([e for e in out if isinstance(e, rc.Cti)])
        for element in out:
            played.take(element)
    return played


def test_beside_a_plain_function() -> None:
    median = rc.aggregate(np.median, "v")
    for windowed in (S.hopping(6, 4), S.group_by("k").snapshot()):
        together = windowed.agg(m=median, x=Sum())
        assert_equivalent(_run(together.drop("x")), _run(windowed.agg(m=median)))
        assert together.plan is windowed.agg(m=median, x=Sum()).plan
    assert "median(values=v)" in S.tumbling(5).agg(m=median, x=Sum()).explain()


def test_one_module_serves_many_schemas() -> None:
    doubled = S.tumbling(4).agg(a=Listed(v=rc.col("v") * 2))
    other: Any = rc.source("s", {"k": "string", "w": "int64"})
    moved = [rc.Insert({"k": e.payload["k"], "w": 2 * e.payload["v"]}, e.vs, e.ve) for e in EVENTS]
    found = rc.run(other.tumbling(4).agg(a=Listed(v="w")), {"s": moved}, close=True).history().to_events()
    assert_equivalent(found, _run(doubled))


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_what_is_known_to_take_nothing_back_answers_alike(cut: Any) -> None:
    dice = random.Random(7)
    starts = [dice.randrange(25) for _ in range(30)]
    events = [
        rc.Insert({"k": dice.choice("ab"), "v": dice.randrange(3)}, t, t + dice.choice([1, 4, 9]))
        for t in starts
    ]
    known = rc.source("s", S.schema, properties=rc.Properties(is_insert_only=True))
    for module in MODULES:
        found, expected = (
            rc.run(
                windowed.apply(module) if module.yields_rows else windowed.agg(a=module()),
                {"s": events},
                batch_size=11,
                close=True,
            ).history()
            for windowed in (cut.build(source.group_by("k")) for source in (known, S))
        )
        assert_equivalent(found, expected)


def test_levels_reach_modules() -> None:
    query = S.tumbling(5).agg(a=Sum()).consistency(rc.MIDDLE)
    assert "speculate eager" in query.explain()
    assert_equivalent(_run(query), _run(S.tumbling(5).agg(a=Sum())))


def test_what_is_computed_again_is_as_what_is_kept() -> None:
    batches = [
        EVENTS[6:],
        [rc.Retract(EVENTS[7].payload, 7, EVENTS[7].ve, 7)],
        EVENTS[:6],
        [rc.Cti(rc.FOREVER)],
    ]
    outputs = []
    for recompute in (False, True):
        for query in (
            S.hopping(6, 3).apply(Top, recompute=recompute),
            S.hopping(6, 3).agg(a=Sum(), b=Spans(), n=rc.count(), recompute=recompute),
        ):
            session = rc.session(query)
            for batch in batches:
                session.push("s", batch)
            outputs.append([str(e) for e in session.read().elements()])
    assert outputs[:2] == outputs[2:]
