"""A query on each group: how keys travel through it, and what may be written in it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import recension as rc
from recension import col
from recension.core.events import Event
from recension.plan.each_group import GroupApply
from recension.plan.fragments import cut, describe_fragments
from recension.plan.node import walk
from recension.testing import assert_equivalent

source = rc.source("s", {"k": "string", "v": "int64"})
EVENTS = [rc.Insert({"k": "a", "v": 1}, 0, 9), rc.Insert({"k": "b", "v": 2}, 3, 6)]


def answer(query: rc.Stream) -> list[Event]:
    """What the query makes of the events."""
    return rc.run(query, {"s": EVENTS}, close=True).history().to_events()


@pytest.mark.parametrize(
    "doubled",
    [
        lambda batch: pa.table({"w": pc.multiply(batch["v"], 2)}),
        lambda batch: {"w": pc.multiply(batch["v"], 2)},
        lambda batch: [{"w": 2 * v} for v in batch["v"].to_pylist()],
        lambda batch: pa.record_batch([pc.multiply(batch["v"], 2)], ["w"]),
    ],
    ids=["table", "mapping", "rows", "batch"],
)
def test_keys_pass_beside_a_function_of_batches(doubled: Callable[[Any], Any]) -> None:
    query = source.group_by("k").apply(lambda g: g.map(doubled, {"w": "int64"}, per_row=False))
    expected = [Event({"k": "a", "w": 2}, 0, 9), Event({"k": "b", "w": 4}, 3, 6)]
    assert_equivalent(answer(query), expected)


def test_a_function_is_named_as_if_nothing_passed_beside_it() -> None:
    def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {"w": 2 * row["v"]}

    query = source.group_by("k").apply(lambda g: g.map(doubled, {"w": "int64"}))
    assert "map each row by doubled" in query.explain()


def test_keys_may_be_computed() -> None:
    query = source.group_by(odd=col("v") % 2).apply(lambda g: g.shift(1).agg(n=rc.count()))
    assert query.schema.names == ["odd", "n"]
    assert_equivalent(answer(query), [Event({"odd": 1, "n": 1}, 1, 10), Event({"odd": 0, "n": 1}, 4, 7)])


def test_a_column_named_like_a_travelling_key() -> None:
    query = source.rename({"v": "group k"}).group_by("k").apply(lambda g: g.agg(rc.top_k(1, by="group k")))
    assert query.schema.names == ["k", "group k", "rank"]
    expected = [Event({"k": "a", "group k": 1, "rank": 1}, 0, 9)]
    expected += [Event({"k": "b", "group k": 2, "rank": 1}, 3, 6)]
    assert_equivalent(answer(query), expected)


def test_the_stream_itself_from_outside_is_the_same_for_every_group() -> None:
    total = source.agg(total=rc.sum("v"))
    query = source.group_by("k").apply(lambda g: g.select("v").join(total, how="cross"))
    expected = [
        Event({"k": "a", "v": 1, "total": 1}, 0, 3),
        Event({"k": "a", "v": 1, "total": 3}, 3, 6),
        Event({"k": "a", "v": 1, "total": 1}, 6, 9),
        Event({"k": "b", "v": 2, "total": 3}, 3, 6),
    ]
    assert_equivalent(answer(query), expected)


def test_an_aggregate_of_every_group_is_the_grouped_aggregate() -> None:
    applied = source.group_by("k").apply(lambda g: g.count_window(1).agg(n=rc.count()))
    assert_equivalent(answer(applied), answer(source.group_by("k").count_window(1).agg(n=rc.count())))


METHODS: dict[str, Callable[[Any], Any]] = {
    "where": lambda g: g.where(col("v") > 0),
    "select": lambda g: g.select("v"),
    "with_columns": lambda g: g.with_columns(w=col("v") + 1),
    "rename": lambda g: g.rename({"v": "w"}),
    "drop": lambda g: g.drop("k"),
    "map": lambda g: g.map(lambda row: {"v": row["v"]}, {"v": "int64"}, per_row=True),
    "union": lambda g: g.union(g.shift(1)),
    "distinct": lambda g: g.distinct(),
    "alter_lifetime": lambda g: g.alter_lifetime(duration=lambda vs, ve: 2),
    "with_lifetime": lambda g: g.with_columns(d=rc.lifetime()).with_lifetime(rc.start(), rc.end() + 1),
    "shift": lambda g: g.shift(1),
    "set_duration": lambda g: g.set_duration(2),
    "extend": lambda g: g.extend(2),
    "to_points": lambda g: g.to_points(),
    "inserts": lambda g: g.inserts(),
    "deletes": lambda g: g.deletes(),
    "hop_lifetime": lambda g: g.hop_lifetime(4, 2),
    "clip": lambda g: g.clip(by=g),
    "join": lambda g: g.join(g, on="v"),
    "edges": lambda g: g.edges(),
    "as_of": lambda g: g.as_of(g.select("v")),
    "coalesce": lambda g: g.coalesce("v", window=rc.rows(2)),
    "agg": lambda g: g.agg(n=rc.count()),
    "having": lambda g: g.agg(n=rc.count()).having(rc.sum("v") > 1),
    "filter": lambda g: g.filter(rc.col("v") > 1),
    "tumbling": lambda g: g.tumbling(5).agg(n=rc.count()),
    "hopping": lambda g: g.hopping(5, 2).agg(n=rc.count()),
    "snapshot": lambda g: g.snapshot().agg(n=rc.count()),
    "sessions": lambda g: g.sessions(2).agg(n=rc.count()),
    "count_window": lambda g: g.count_window(1).agg(n=rc.count()),
    "group_by": lambda g: g.group_by("v").agg(n=rc.count()),
    "cleanse": lambda g: g.cleanse(),
    "consistency": lambda g: g.consistency(rc.WEAK),
    "align": lambda g: g.align(2),
    "finalize": lambda g: g.finalize(2),
    "advance_time": lambda g: g.advance_time(2),
    "due": lambda g: g.due(by=g),
}
SEEING = {"schema", "properties", "explain", "fragments", "describe", "plan"}


def test_every_method_of_a_stream_is_tried() -> None:
    public = {name for name in dir(rc.Stream) if not name.startswith("_")}
    assert public - SEEING == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_any_method_may_be_used_on_a_group(name: str) -> None:
    """What it gives for all groups is what it gives for each of them alone."""
    alone = [
        Event({"k": k} | {n: v for n, v in event.payload.items() if n != "k"}, event.vs, event.ve)
        for k in "ab"
        for event in answer(METHODS[name](source.where(col("k") == k)))
    ]
    assert_equivalent(answer(source.group_by("k").apply(METHODS[name])), alone)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda g: g.cleanse().union(source), "union would show source s"),
        (lambda g: rc.merge(g, source), "merge first would show source s"),
        (lambda g: source.clip(by=g.align(2)), "clip would show source s"),
        (lambda g: source.join(g, on="k", how="anti"), "anti join on k would show source s"),
        (lambda g: source.advance_time(by=g), "would show source s"),
        (lambda g: source.cleanse(), "the result, cleanse, does not come from the group"),
        (
            lambda g: source.group_by("v").apply(
                lambda h: h.finalize(2).join(g.select("v"), how="cross").finalize()
            ),
            "not part of the group, in every group",
        ),
    ],
)
def test_what_every_group_would_show_even_without_events_is_refused(
    query: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(rc.SchemaError, match=reason):
        source.group_by("k").apply(query)


def by_group(query: Callable[[Any], Any]) -> list[str]:
    """The steps that run group by group."""
    applied = source.group_by("k").apply(query)
    found = [node for node in walk(applied.plan) if isinstance(node, GroupApply)]
    return [step.label for node in found for step in node.steps]


def test_only_what_must_runs_group_by_group() -> None:
    assert by_group(lambda g: g.align(2).distinct().agg(n=rc.count())) == []
    assert by_group(lambda g: rc.merge(g, g.align())) == []
    assert by_group(lambda g: g.agg(n=rc.count()).cleanse().shift(1)) == []
    assert by_group(lambda g: g.where(col("v") > 0).finalize().select("v")) == ["finalize, remember forever"]
    assert by_group(lambda g: g.join(g.finalize(2), on="v")) == ["finalize, remember 2"]
    assert by_group(lambda g: rc.merge(g, g, case="R0")) == ["merge first"]
    advanced = by_group(lambda g: g.distinct().advance_time(2).shift(1).agg(n=rc.count()).shift(1))
    assert [label.split()[0] for label in advanced] == ["advance", "shift", "aggregate"]
    counted = by_group(lambda g: g.cleanse().agg(n=rc.count()))
    assert [label.split()[0] for label in counted] == ["cleanse", "aggregate"]


def test_explain_says_what_runs_group_by_group() -> None:
    text = source.group_by("k").apply(lambda g: g.finalize(2)).explain()
    assert "by group k, each by itself: finalize, remember 2" in text
    assert "chosen: runs group by group" in text


def test_groups_are_spread_over_shards() -> None:
    def placed(query: Callable[[Any], Any]) -> list[str]:
        return describe_fragments(cut([source.group_by("k").apply(query).plan])).splitlines()[:2]

    other = rc.source("t", {"v": "int64"})
    apart = ["fragment 1, in every shard", "   reads s by k"]
    assert placed(lambda g: g.cleanse()) == apart
    assert placed(lambda g: g.align()) == apart
    assert placed(lambda g: g.agg(n=rc.count()).finalize(2)) == apart
    together = ["fragment 1, in one shard", "   reads s to one shard"]
    assert placed(lambda g: g.advance_time(by=other)) == together


def test_a_query_on_groups_can_be_pickled() -> None:
    plan = source.group_by("k").apply(lambda g: g.advance_time(2).agg(n=rc.count())).plan
    assert pickle.loads(pickle.dumps(plan)) is plan
