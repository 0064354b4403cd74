"""The consistency spectrum over whole queries: what depends on the level, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lmerge.scripts import examples
from tests.properties.plans import Plan, plans

import recension as rc
from recension.core.events import Cti, Element, Insert, Retract
from recension.runners.finite import push_inputs
from recension.testing.assertions import assert_equivalent, assert_valid
from recension.testing.model import reconstitute
from recension.testing.strategies import SCHEMA, histories, physical_streams

QUERIES: list[Callable[[Any], Any]] = [
    lambda s: s.where(rc.col("v") >= 0),
    lambda s: s.group_by("k").agg(n=rc.count()),
    lambda s: s.join(s.shift(1), on="k").distinct(),
]
LEVELS = [rc.STRONG, rc.MIDDLE, rc.Level(1, rc.FOREVER), rc.Level(4, rc.FOREVER, "ordered")]


def run(query: rc.Stream, stream: list[Element], size: int) -> rc.Result:
    return rc.run(query, {"s": stream}, batch_size=size)


def sync(e: Element) -> int:
    assert isinstance(e, Insert | Retract)
    return min(e.ve, e.new_ve) if isinstance(e, Retract) else e.vs


@pytest.mark.parametrize("level", LEVELS, ids=str)
@given(st.data(), st.sampled_from(QUERIES), st.sampled_from([1, 3, 100]))
def test_with_an_endless_memory_the_level_does_not_matter_in_the_end(
    level: rc.Level, data: st.DataObject, query: Callable[[Any], Any], size: int
) -> None:
    stream = data.draw(physical_streams(data.draw(histories())))
    plain = query(rc.source("s", SCHEMA))
    at_level = run(plain.consistency(level), stream, size)
    assert_valid(at_level.elements())
    assert_equivalent(at_level.elements(), run(plain, stream, size).elements())


@given(st.data(), plans(), st.sampled_from([1, 3, 100]))
def test_strong_output_is_ordered(data: st.DataObject, plan: Plan, size: int) -> None:
    """Of whatever plan: sync times never fall, and the history is that of the plan."""
    s, t = (rc.source(name, SCHEMA) for name in ("s", "t"))
    query = plan.build(s, t).consistency(rc.STRONG)
    inputs = {name: data.draw(physical_streams(data.draw(histories(max_size=5)))) for name in ("s", "t")}
    session = rc.session(out=query, s=s, t=t, batch_size=size)
    for _ in push_inputs(session, inputs, batch_size=size, close=True):
        pass
    out = session.read("out").elements()
    assert query.properties.is_ordered
    assert all(a <= b for a, b in pairwise(sync(e) for e in out if not isinstance(e, Cti)))
    assert_valid(out)
    assert_equivalent(out, plan.meaning(*(reconstitute(inputs[name]) for name in ("s", "t"))))


@pytest.mark.parametrize("speculate", ["perfect", "ordered"])
@pytest.mark.parametrize("grouped", [False, True])
@settings(max_examples=examples(40))
@given(st.data(), st.sampled_from([(4, 4, 0), (5, 2, 1), (2, 3, 0)]), st.sampled_from([1, 3, 100]))
def test_aligned_windows_turn_perfect_input_into_perfect_output(
    speculate: str, grouped: bool, data: st.DataObject, windows: tuple[int, int, int], size: int
) -> None:
    s: Any = rc.source("s", SCHEMA, properties=rc.Properties(is_insert_only=True, is_ordered=True))
    length, hop, offset = windows
    hopping = (s.group_by("k") if grouped else s).hopping(length, hop, offset=offset, until=30)
    query = hopping.agg(n=rc.count(), top=rc.max("v"), speculate=speculate)
    stream = data.draw(physical_streams(data.draw(histories()), insert_only=True, ordered=True))
    out = [e for e in run(query, stream, size).elements() if not isinstance(e, Cti)]
    assert all(isinstance(e, Insert) for e in out)
    assert all(a <= b for a, b in pairwise(map(sync, out)))
    assert query.properties.is_perfect


@given(st.data(), st.integers(0, 5), st.sampled_from([0, 2, rc.FOREVER]))
def test_with_a_finite_memory_what_is_missing_is_counted(
    data: st.DataObject, remember: int, block: int
) -> None:
    stream = [Insert(e.payload, e.vs, e.ve) for e in data.draw(histories())]
    query = rc.source("s", SCHEMA).consistency(block=block, remember=remember)
    out = rc.run(query, {"s": stream}, batch_size=2, close=True)
    assert_valid(out.elements())
    assert len(out.history()) + sum(m.dropped for m in out.metrics) == len(stream)


def test_both_go_below_the_first_stateful_step() -> None:
    s = rc.source("s", {"k": "string", "v": "int64"})
    query = s.where(rc.col("v") > 0).group_by("k").agg(n=rc.count()).consistency(rc.STRONG, remember=9)
    titles = [line.strip(" │└─") for line in query.explain(rewrite=False).splitlines() if "─ " in line]
    assert titles[1:] == ["align, block forever", "where v > 0", "finalize, remember 9", "source s"]


def test_a_level_given_before_stays() -> None:
    s = rc.source("s", {"k": "string"})
    twice = s.consistency(rc.WEAK).distinct().consistency(rc.STRONG).explain()
    assert [line.strip(" └─") for line in twice.splitlines() if "─ " in line] == [
        "distinct",
        "finalize, remember 0",
        "source s",
    ]
    assert (
        s.agg(n=rc.count())
        .consistency(rc.MIDDLE)
        .explain()
        .startswith("aggregate n = count(), speculate eager")
    )


def steps_in(query: rc.Stream) -> list[str]:
    lines = [line.strip(" │├└─") for line in query.explain(rewrite=False).splitlines()]
    about = ("columns:", "known:", "chosen:", "lifetimes:", "warning:")
    return [line for line in lines if not line.startswith(about)]


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        (lambda s: s.advance_time(9).consistency(rc.WEAK), ["finalize, remember 0", "advance", "source"]),
        (lambda s: s.advance_time(9).consistency(block=5), ["align, block 5", "advance", "source"]),
        (
            lambda s: s.advance_time(9).agg(n=rc.count()).consistency(rc.STRONG, remember=5),
            ["align", "aggregate", "align, block forever", "finalize, remember 5", "advance", "source"],
        ),
        (
            lambda s: s.advance_time(9).where(rc.col("v") > 0).distinct().consistency(block=3, remember=5),
            ["distinct", "align, block 3", "where", "finalize, remember 5", "advance", "source"],
        ),
        (
            lambda s: s.finalize(5).agg(n=rc.count()).consistency(block=7),
            ["aggregate", "align, block 7", "finalize, remember 5", "source"],
        ),
        (
            lambda s: s.align(5).agg(n=rc.count()).consistency(rc.WEAK),
            ["aggregate", "align, block 5", "finalize, remember 0", "source"],
        ),
        (
            lambda s: s.distinct().align(5).consistency(block=3, remember=1),
            ["align, block 5", "distinct", "finalize, remember 1", "source"],
        ),
        (
            lambda s: s.distinct().advance_time(9).consistency(block=3),
            ["advance", "distinct", "align, block 3", "source"],
        ),
        (
            lambda s: s.advance_time(by=rc.source("t", SCHEMA)).consistency(block=3, remember=1),
            ["align, block 3", "finalize, remember 1", "advance", "source s", "source t"],
        ),
    ],
)
def test_what_was_not_given_is_put_in(query: Callable[[Any], Any], steps: list[str]) -> None:
    found = steps_in(query(rc.source("s", SCHEMA)))
    assert len(found) == len(steps)
    assert all(title.startswith(step) for title, step in zip(found, steps, strict=True)), found


def test_a_level_above_advanced_time_drops_what_is_late() -> None:
    s = rc.source("s", {"x": "int64"})
    late: list[Element] = [Insert({"x": 1}, 50, 60), Insert({"x": 2}, 2, 9)]
    out = rc.run(s.advance_time(1000).consistency(rc.WEAK), {"s": late}, batch_size=1)
    assert [str(e) for e in out.elements() if isinstance(e, Insert)] == ["insert [50, 60) {'x': 1}"]
    assert sum(m.dropped for m in out.metrics) == 1


def test_a_group_has_a_level_of_its_own() -> None:
    """What is late in a group is late by what the group has seen."""
    s = rc.source("s", {"k": "string"})
    query = s.group_by("k").apply(lambda g: g.consistency(rc.WEAK))
    feed: list[Element] = [Insert({"k": k}, vs, 9) for k, vs in (("a", 5), ("b", 3), ("a", 4), ("b", 3))]
    out = rc.run(query, {"s": feed}, batch_size=1)
    assert [(e.payload["k"], e.vs) for e in out.elements() if isinstance(e, Insert)] == [
        ("a", 5),
        ("b", 3),
        ("b", 3),
    ]
    assert sum(m.dropped for m in out.metrics) == 1


def test_a_level_above_groups_that_have_one() -> None:
    s = rc.source("s", {"k": "string", "v": "int64"})
    weak = s.group_by("k").apply(lambda g: g.agg(n=rc.count()).consistency(rc.WEAK))
    found = steps_in(weak.consistency(rc.MIDDLE, block=3, remember=7))
    assert found[1] == (
        "by group k, each by itself: finalize, remember 0, then aggregate n = count(), speculate eager"
    )
    assert found[2:] == ["select group k = k, k, v", "source s"]
    later = s.group_by("k").apply(lambda g: g.cleanse()).consistency(remember=7)
    assert steps_in(later)[-2:] == ["finalize, remember 7", "source s"]
