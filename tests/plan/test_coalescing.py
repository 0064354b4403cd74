"""Edges, as-of joins and coalescing as they are written: schemas, properties, refusals, where they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import recension as rc
from recension import Properties, col
from recension.core.errors import SchemaError
from recension.plan.fragments import cut
from recension.plan.node import Node
from recension.plan.nodes import Coalesce, CoalesceExtent, Edges, GroupApply, Where
from recension.plan.rewrites import optimize

ORDERED = Properties(is_insert_only=True, is_ordered=True)


def source(known: Properties | None = None) -> rc.Stream:
    columns = {"k": "string", "x": "int64", "y": "float64", "z": "string"}
    return rc.source("s", columns, properties=known)


def test_schemas() -> None:
    s = source()
    assert s.edges("k").schema == s.schema
    assert s.coalesce("x", "k").schema.names == ["k", "x"]
    assert s.coalesce(["x", "k"], ["k"]).schema.names == ["k", "x"]
    window = s.coalesce("x", "k", window=rc.range(5, slide=1))
    assert window.schema.names == ["k", "x", "valid_start", "valid_end"]
    assert s.as_of(s.select("k", w="x"), on="k").schema.names == ["k", "x", "y", "z", "w"]


def test_properties() -> None:
    assert source().edges("k").properties == Properties(has_key=True)
    edges = source(ORDERED).edges("k").properties
    assert edges == Properties(has_key=True, is_ordered=True, is_shrink_only=True)
    assert source(ORDERED).coalesce("x").properties == Properties(has_key=True)
    by_time = source(ORDERED).coalesce("x", window=rc.range(9, slide=3)).properties
    assert by_time.is_perfect
    assert by_time.constant_duration == 3
    by_rows = source(ORDERED).coalesce("x", window=rc.rows(9)).properties
    assert by_rows == Properties(has_key=True, is_ordered=True, is_shrink_only=True)
    assert not source().coalesce("x", window=rc.range(9, slide=3)).properties.is_insert_only


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (lambda s: s.edges("nope"), "there is no column 'nope'"),
        (lambda s: s.coalesce([]), "name the columns that make facts equal"),
        (lambda s: s.coalesce("nope"), "there is no column 'nope'"),
        (lambda s: s.coalesce("x", equivalence="rising"), "an equivalence is 'equal', 'increasing'"),
        (lambda s: s.coalesce("z", equivalence=rc.within(1)), "only numbers lie within a bound"),
        (lambda s: s.coalesce("x", equivalence=rc.within(-1)), "a bound is 0 or more, not -1"),
        (lambda s: s.coalesce("x", scheme="lazy"), "needs a window"),
        (lambda s: s.coalesce("x", window=rc.rows(2), scheme="both"), "scheme is 'auto', 'eager' or 'lazy'"),
        (lambda s: s.coalesce("x", window=5), "a window is rc.range"),
        (lambda s: s.coalesce("x", window=rc.rows(0)), "counts one reading or more, not 0"),
        (lambda s: s.coalesce("x", window=rc.range(5, slide=0)), "a slide of 1 tick or more"),
        (lambda s: s.coalesce("x", equivalence=rc.within()), "give one bound"),
        (lambda s: s.as_of(s, on="k", how="anti"), "how is 'inner' or 'left'"),
        (
            lambda s: s.rename({"x": "valid_end"}).coalesce("valid_end", window=rc.rows(2)),
            "two columns would be named 'valid_end'",
        ),
    ],
)
def test_mistakes_are_told_where_they_are_made(written: Callable[[rc.Stream], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        written(source())


def keys(node: Node) -> list[str]:
    found = node.needs()
    assert found is not None
    return [name for name, _ in found[0]]


def test_what_must_be_together() -> None:
    s = source()
    assert keys(s.edges("k").plan) == ["k"]
    assert keys(s.coalesce("x", "k").plan) == ["k", "x"]
    assert keys(s.coalesce("x", "k", "increasing").plan) == ["k"]
    assert keys(s.coalesce("x", "k", window=rc.range(5, slide=1)).plan) == ["k"]
    assert keys(s.coalesce("x", "k", window=rc.rows(5)).plan) == []
    by_group = s.group_by("k").apply(lambda g: g.coalesce("x", window=rc.rows(5)))
    (fragment,) = cut(optimize([by_group.plan]))
    assert not fragment.is_single


def test_tuple_windows_of_a_group_count_its_own_readings() -> None:
    found = source().group_by("k").apply(lambda g: g.coalesce("x", window=rc.rows(5))).plan.inputs[0]
    assert isinstance(found, GroupApply)
    in_time = source().group_by("k").apply(lambda g: g.coalesce("x", window=rc.range(5, slide=1)))
    assert isinstance(in_time.plan.inputs[0], CoalesceExtent)


@pytest.mark.parametrize("kind", [Edges, Coalesce, CoalesceExtent])
def test_filters_on_groups_go_below(kind: type[Node]) -> None:
    s, like = source(), {"window": rc.range(5, slide=1)} if kind is CoalesceExtent else {}
    step = s.edges("k") if kind is Edges else s.coalesce("x", "k", **like)  # type: ignore[arg-type]
    (root,) = optimize([step.where(col("k") == "a").plan])
    assert isinstance(root, kind)
    (kept,) = optimize([step.where(col("x") == 1).plan])
    assert isinstance(kept, Where)


def test_explain_says_what_was_chosen() -> None:
    told = source().coalesce("x", "k", window=rc.range("60m", slide="1m"), scheme="lazy").explain()
    assert "coalesce x by k, range 3600000000 slide 60000000" in told
    assert "lazy: an extent of raw readings, coalesced as it is scanned" in told
