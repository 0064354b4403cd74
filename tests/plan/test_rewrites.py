"""Each rewrite, where it applies and where it must not: seen in the plan's shape."""

from __future__ import annotations

import narwhals as nw
import pytest

import recension as rc
from recension import col
from recension.plan import nodes
from recension.plan.node import Node
from recension.plan.rewrites import optimize
from recension.plan.rewrites.fuse_spans import fuse_spans
from recension.plan.rewrites.prune_columns import prune_columns
from recension.plan.rewrites.push_filters import narrow_joins, push_filters

s = rc.source("s", {"k": "string", "x": "int64", "y": "float64"})
t = rc.source("t", {"k": "string", "x": "int64", "z": "int64"})
positive = col("x") > 0
fragile = col("k").cast(nw.Int64) > 0  # has no value where k is not a number


def shape(node: Node) -> str:
    """The labels of a plan in one line: a step, then what it reads."""
    if not node.inputs:
        return node.label
    return f"{node.label} <- " + (
        shape(node.inputs[0]) if len(node.inputs) == 1 else f"({' | '.join(map(shape, node.inputs))})"
    )


def pushed(stream: rc.Stream) -> str:
    return shape(push_filters([stream.plan])[0])


def narrowed(stream: rc.Stream) -> str:
    return shape(narrow_joins([stream.plan])[0])


def pruned(stream: rc.Stream) -> str:
    return shape(prune_columns([stream.plan])[0])


def fused(stream: rc.Stream) -> str:
    return shape(fuse_spans([stream.plan])[0])


# Filters


@pytest.mark.parametrize(
    ("stream", "plan"),
    [
        (s.set_duration(5).where(positive), "set duration to 5 <- where x > 0 <- source s"),
        (
            s.extend(-5).shift(1).where(positive).to_points(),
            "to points <- shift by 1 <- extend by -5 <- where x > 0 <- source s",
        ),
        (
            s.clip(by=t, on="k").where(positive),
            "clip on k <- (where x > 0 <- source s | source t)",
        ),
        (
            s.select("k", twice=col("x") * 2).where(col("twice") > 3),
            "select k, twice = x * 2 <- where x * 2 > 3 <- source s",
        ),
        (s.rename({"x": "y", "y": "x"}).where(positive), "select k, y = x, x = y <- where y > 0 <- source s"),
        (
            s.select("k").union(t.select("k")).where(col("k") == "a"),
            "union <- (select k <- where k == 'a' <- source s | select k <- where k == 'a' <- source t)",
        ),
        (s.distinct().where(positive), "distinct <- where x > 0 <- source s"),
        (
            s.shift(1).where(positive).where(col("y") > 1),
            "shift by 1 <- where (x > 0) & (y > 1) <- source s",
        ),
    ],
)
def test_filters_go_down(stream: rc.Stream, plan: str) -> None:
    assert pushed(stream) == plan


@pytest.mark.parametrize(
    ("stream", "plan"),
    [
        # An aggregate's answer depends on all events of the snapshot.
        (
            s.group_by("k").agg(n=rc.count()).where(col("n") > 1),
            "where n > 1 <- aggregate n = count() by k, speculate perfect <- source s",
        ),
        # Nobody knows what a user's function does to a column.
        (
            s.map(lambda row: row, {"x": "int64"}, per_row=True).where(positive),
            "where x > 0 <- map each row by <lambda> <- source s",
        ),
        # Distinct makes one event of 0.0 and -0.0, and a filter can tell them apart.
        (s.distinct().where(col("y") > 0), "where y > 0 <- distinct <- source s"),
        # A filter that may fail on some rows is not shown rows it was never meant to see.
        (
            s.extend(-5).where(fragile),
            "where k.cast('int64') > 0 <- extend by -5 <- source s",
        ),
        (
            s.where(positive).where(fragile).shift(1),
            "shift by 1 <- where k.cast('int64') > 0 <- where x > 0 <- source s",
        ),
    ],
)
def test_filters_stay_where_they_must(stream: rc.Stream, plan: str) -> None:
    assert pushed(stream) == plan


def test_filters_go_to_both_sides_of_an_inner_join() -> None:
    joined = s.join(t, on="k").where(
        (col("y") > 1) & (col("x_right") > 2) & (col("k") != "a") & (col("x") < col("z"))
    )
    assert pushed(joined) == (
        "where x < z <- inner join on k <- ("
        "where (y > 1) & (k != 'a') <- source s | where (x > 2) & (k != 'a') <- source t)"
    )


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_filters_on_left_columns_go_to_the_left_of_any_join(how: nodes.How) -> None:
    assert pushed(s.join(t, on="k", how=how).where(positive)) == (
        f"{how} join on k <- (where x > 0 <- source s | source t)"
    )


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_filters_on_keys_go_to_both_sides_of_any_join(how: nodes.How) -> None:
    assert pushed(s.join(t, on="k", how=how).where(col("k") == "a")) == (
        f"{how} join on k <- (where k == 'a' <- source s | where k == 'a' <- source t)"
    )


def test_filters_on_right_columns_stay_above_a_left_join() -> None:
    """Below it they would turn matches into rows of nulls."""
    assert pushed(s.join(t, on="k", how="left").where(col("z") > 0)) == (
        "where z > 0 <- left join on k <- (source s | source t)"
    )


def test_filters_on_float_keys_go_to_the_left_only() -> None:
    """0.0 matches -0.0, and a filter can tell them apart; the pair shows the left one."""
    u = rc.source("u", {"y": "float64"})
    assert pushed(s.join(u, on="y").where(1 / col("y") > 0)) == (
        "inner join on y <- (where 1 / y > 0 <- source s | source u)"
    )


def test_fragile_filters_stay_above_a_join() -> None:
    assert pushed(s.join(t, on="k").where(fragile)) == (
        "where k.cast('int64') > 0 <- inner join on k <- (source s | source t)"
    )


def test_filters_do_not_split_what_others_read() -> None:
    """Pushed into the join, each filter would need a join of its own."""
    joined = s.join(t, on="k")
    both = joined.where(positive).union(joined.where(col("x") < -5))
    assert pushed(both) == (
        "union <- (where x > 0 <- inner join on k <- (source s | source t)"
        " | where x < -5 <- inner join on k <- (source s | source t))"
    )
    rewritten = push_filters([both.plan])[0]
    assert rewritten.inputs[0].inputs[0] is rewritten.inputs[1].inputs[0]


def test_filters_do_not_split_what_another_query_reads() -> None:
    shifted = s.shift(1)
    filtered, whole = push_filters([shifted.where(positive).plan, shifted.plan])
    assert shape(filtered) == "where x > 0 <- shift by 1 <- source s"
    assert filtered.inputs[0] is whole


def test_one_sided_conditions_leave_the_join() -> None:
    where = (col("x") > 1) & (col("x_right") > 2) & (col("x") > col("z"))
    assert narrowed(s.join(t, on="k", where=where)) == (
        "inner join on k where x > z <- (where x > 1 <- source s | where x > 2 <- source t)"
    )
    assert narrowed(s.join(t, on="k", where=where, how="semi")) == (
        "semi join on k where x > z <- (where x > 1 <- source s | where x > 2 <- source t)"
    )


@pytest.mark.parametrize("how", ["left", "anti"])
def test_a_left_event_that_fails_its_condition_is_one_without_a_match(how: nodes.How) -> None:
    where = (col("x") > 1) & (col("x_right") > 2)
    assert narrowed(s.join(t, on="k", where=where, how=how)) == (
        f"{how} join on k where x > 1 <- (source s | where x > 2 <- source t)"
    )


# Columns


@pytest.mark.parametrize(
    ("stream", "plan"),
    [
        (
            s.set_duration(5).agg(total=rc.sum("x")),
            "aggregate total = sum(x), speculate perfect <- set duration to 5 <- select x <- source s",
        ),
        (
            s.join(t, on="k").select("y"),
            "select y <- inner join on k <- (select k, y <- source s | select k <- source t)",
        ),
        (
            s.join(t, on="k", how="anti").select("x"),
            "select x <- anti join on k <- (select k, x <- source s | select k <- source t)",
        ),
        (
            s.clip(by=t, on="k").select("y"),
            "select y <- clip on k <- (select k, y <- source s | select k <- source t)",
        ),
        (
            s.select("k", "x").union(t.select("x", "k")).select("x"),
            "select all <- union <- "
            "(select all <- select x <- source s | select all <- select x <- source t)",
        ),
        (
            s.group_by("k").agg(n=rc.count(), top=rc.max("x"), mean=rc.mean("y")).select("k", "top"),
            "select all <- aggregate top = max(x) by k, speculate perfect <- select k, x <- source s",
        ),
        (
            s.with_columns(a=col("x") + 1, b=col("y") + 1).select("b"),
            "select all <- select b = y + 1 <- select y <- source s",
        ),
    ],
)
def test_unread_columns_go(stream: rc.Stream, plan: str) -> None:
    assert pruned(stream) == plan


@pytest.mark.parametrize(
    "stream",
    [
        s.distinct().select("k"),  # fewer columns would make more payloads equal
        s.agg(f=rc.first("x")),  # ties go by the whole payload
        s.agg(f=rc.collect("x")),
        s.agg(rc.top_k(1, by="x")).select("x"),
        s.map(lambda row: {"n": 1}, {"n": "int64"}, per_row=True),
    ],
)
def test_whole_payloads_stay_whole(stream: rc.Stream) -> None:
    costly = [
        node for node in nodes.walk(prune_columns([stream.plan])[0]) if not isinstance(node, nodes.Project)
    ]
    assert costly[1].inputs == (s.plan,)


def test_a_count_keeps_one_narrow_column() -> None:
    assert pruned(s.agg(n=rc.count())) == ("aggregate n = count(), speculate perfect <- select x <- source s")


def test_a_clash_keeps_its_left_column_for_the_name_it_gives() -> None:
    assert pruned(s.join(t, on="k").select("x_right")) == (
        "select x_right <- inner join on k <- (select k, x <- source s | select k, x <- source t)"
    )


def test_every_reader_gets_the_columns_it_needs() -> None:
    narrow, wide = prune_columns([s.shift(1).select("x").plan, s.shift(1).agg(m=rc.max("y")).plan])
    assert shape(narrow) == "select x <- shift by 1 <- select x, y <- source s"
    assert narrow.inputs[0] is wide.inputs[0]


# One pass


@pytest.mark.parametrize(
    ("stream", "plan"),
    [
        (s.where(positive).where(fragile), "span where x > 0; where k.cast('int64') > 0 <- source s"),
        (s.where(positive).select("k"), "span where x > 0; select k <- source s"),
        (
            s.select("k", a=col("x") + 1).select("k", b=col("a") * 2),
            "select k, b = (x + 1) * 2 <- source s",
        ),
        (
            s.with_columns(a=col("x") + 1).where(col("y") > 0).drop("x", "y"),
            "span where y > 0; select k, a = x + 1 <- source s",
        ),
        (s.select("k", "x", "y"), "source s"),
        (s.rename({"x": "a"}).rename({"a": "x"}), "source s"),
        (s.select("y", "x", "k").where(positive).select("k", "x", "y"), "where x > 0 <- source s"),
    ],
)
def test_neighbours_become_one_pass(stream: rc.Stream, plan: str) -> None:
    assert fused(stream) == plan


def test_nothing_is_computed_twice() -> None:
    squared = s.select(a=col("x") + 1).select(b=col("a") * col("a"))
    assert fused(squared) == "select b = a * a <- select a = x + 1 <- source s"


def test_a_step_with_other_readers_is_not_fused() -> None:
    filtered = s.where(positive)
    both = filtered.select("k").join(filtered.select("k", "x"), on="k")
    assert fused(both) == (
        "inner join on k <- (select k <- where x > 0 <- source s | select k, x <- where x > 0 <- source s)"
    )
    hidden = filtered.select("k", "x", "y").select("k").join(filtered.select("k", "x"), on="k")
    assert fused(hidden) == fused(both)


def test_all_rewrites_together() -> None:
    query = (
        s.with_columns(double=col("y") * 2)
        .set_duration(10)
        .join(t, on="k", where=(col("z") > 0) & (col("double") > 1))
        .where((col("k") != "") & (col("x") > col("x_right")))
        .group_by("k")
        .agg(total=rc.sum("double"))
    )
    assert shape(optimize([query.plan])[0]) == (
        "aggregate total = sum(double) by k, speculate perfect <- where x > x_right <- inner join on k <- ("
        "set duration to 10 <- span where (y * 2 > 1) & (k != ''); select k, x, double = y * 2 <- source s"
        " | span where (z > 0) & (k != ''); select k, x <- source t)"
    )
