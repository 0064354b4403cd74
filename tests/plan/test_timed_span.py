"""Steps that read the times of events: their types, what is refused, where CTIs wait, what rewrites do."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension import col
from recension.core.errors import RecensionError
from recension.plan import nodes
from recension.plan.node import Node
from recension.plan.rewrites import optimize
from recension.plan.timed_span import TimedSpan

SCHEMA = {"k": "string", "x": "int64", "at": "timestamp[us, UTC]"}
s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
zoned = rc.source("z", SCHEMA, times="timestamp[us, UTC]")
inserts = rc.source("i", SCHEMA, properties=rc.Properties(is_insert_only=True))
UTC = pa.timestamp("us", "UTC")
HOUR = dt.timedelta(hours=1)


def types(stream: rc.Stream) -> list[pa.DataType]:
    return list(stream.select(a=rc.start(), b=rc.end(), c=rc.lifetime()).schema.types)


def test_times_are_ticks_unless_the_source_says_otherwise() -> None:
    assert types(s) == [pa.int64()] * 3
    assert types(zoned) == [UTC, UTC, pa.duration("us")]
    naive = pa.timestamp("us")
    by_column = rc.source("c", {"from": "timestamp[s]", "x": "int64"}, start="from")
    assert types(by_column) == [naive, naive, pa.duration("us")]
    assert types(rc.source("d", {"from": "int64"}, start="from")) == [pa.int64()] * 3
    assert types(s.join(zoned, on="k"))[0] == UTC
    assert types(s.with_lifetime("at", None, bound="1h"))[0] == UTC
    in_group = zoned.group_by("k").apply(lambda g: g.select(began=rc.start()))
    assert in_group.schema.field("began").type == UTC


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (
            lambda: s.join(t, where=rc.start() > 3),
            r"rc\.start\(\) cannot be used here; make it a column first",
        ),
        (
            lambda: s.agg(rc.top_k(2, by=rc.lifetime())),
            "yields rows, so it can only order them by one of their",
        ),
        (lambda: s.group_by(k=rc.start()), "there is a column 'k' already"),
        (lambda: s.with_lifetime("x", rc.end()), "nothing says how early x may be"),
        (lambda: s.with_lifetime(rc.lit(5), None), "nothing says how early 5 may be"),
        (lambda: s.with_lifetime(rc.min_horizontal(rc.start(), "x"), None), "nothing says how early"),
        (lambda: s.with_lifetime("k", None, bound=3), "start must be whole numbers.*but k is string"),
        (lambda: s.with_lifetime(rc.start(), "at"), "start must be timestamps.*; say in the source what its"),
        (lambda: s.with_lifetime("x", None, bound=-1), "bound is how far back a start may lie, not -1"),
        (lambda: s.with_lifetime(None, None), "start must be whole numbers"),
        (lambda: zoned.with_lifetime("x", None, bound=3), "start must be timestamps in UTC, but x is int64"),
        (lambda: rc.source("s", {"end()": "int64"}), r"'end\(\)' is how expressions call rc\.end\(\)"),
        (lambda: s.select(**{"start()": col("x")}), r"choose another name"),
        (lambda: rc.source("s", SCHEMA, times="float64"), "times are 'int64' ticks or timestamps"),
        (lambda: s.where(rc.lifetime() + "a"), "cannot compute"),
    ],
)
def test_what_is_refused_says_what_to_write(build: Any, why: str) -> None:
    with pytest.raises(RecensionError, match=why):
        build()


def step(stream: rc.Stream) -> TimedSpan:
    assert isinstance(stream.plan, TimedSpan)
    return stream.plan


@pytest.mark.parametrize(
    ("query", "waits"),
    [
        (s.with_columns(d=rc.lifetime()), True),
        (s.where(rc.end().is_null()), True),
        (s.with_columns(d=rc.start()), False),
        (inserts.with_columns(d=rc.lifetime()), False),
        (s.set_duration(5).with_columns(d=rc.lifetime()), False),
        (s.with_columns(d=rc.lifetime()).with_lifetime(rc.end(), rc.end() + 1), False),
        (s.with_columns(d=rc.lifetime(), e=col("x")).select("e", "d").with_lifetime(rc.end(), None), False),
        (
            s.with_columns(d=rc.lifetime()).where(col("d") > 3, rc.end() > 5).with_lifetime(rc.end(), None),
            False,
        ),
        (s.with_columns(d=rc.lifetime()).with_lifetime(rc.start(), rc.start() + 5), True),
        (s.with_lifetime(rc.start(), rc.min_horizontal(rc.end(), rc.start() + 5)), False),
        (s.with_lifetime(rc.start() // 10 * 10, rc.end() // 10 * 10 + 10), False),
        (s.with_lifetime(rc.start(), rc.coalesce(rc.end(), rc.start() + 5)), True),
        (s.with_lifetime(rc.start(), rc.end().fill_null(7)), True),
        (s.with_lifetime(rc.start(), rc.start() + rc.lifetime() // 2), True),
        (s.with_lifetime(rc.max_horizontal(rc.end(), rc.start() + 5), None), True),
        (s.with_lifetime(rc.min_horizontal(rc.end(), rc.start() + 5), None), True),
        (s.with_lifetime("x", rc.end() + 1, bound=3), False),
        (s.with_lifetime("x", rc.end() + col("x"), bound=3), True),
        (zoned.with_lifetime(rc.end() - HOUR, rc.end()), False),
    ],
)
def test_where_ctis_wait(query: rc.Stream, waits: bool) -> None:
    assert step(query).holds_ctis == waits
    assert ("ctis wait for the starts of events whose ends are not final" in query.explain()) == waits


def test_with_lifetime_of_the_events_own_times_is_no_other_step() -> None:
    assert s.with_lifetime(rc.start(), rc.end()).plan is s.plan


# Rewrites


def labels(stream: rc.Stream) -> list[str]:
    (plan,) = optimize([stream.plan])
    return [node.label for node in nodes.walk(plan)]


def test_a_filter_that_reads_times_stays() -> None:
    for below in (s.shift(3), s.to_points(), s.clip(by=t, on="k"), s.distinct(), s.union(t)):
        (plan,) = optimize([below.where(rc.start() > 3).plan])
        assert isinstance(plan, TimedSpan)


def test_a_filter_that_does_not_passes_unless_it_may_fail() -> None:
    timed = s.with_columns(d=rc.lifetime())
    assert labels(timed.where(col("x") > 1))[1] == "where x > 1"
    assert labels(timed.where(col("d") > 1))[-1] == "where d > 1"
    fragile = col("k").cast("int64") > 1
    assert labels(timed.where(fragile))[1] == "where k.cast('int64') > 1"
    assert labels(s.where(rc.lifetime() > 1).where(fragile))[-1] == "where k.cast('int64') > 1"
    assert labels(s.with_lifetime(rc.end(), None).where(fragile))[-1] == "where k.cast('int64') > 1"


def test_conditions_before_the_first_that_reads_times_go_down() -> None:
    query = s.shift(1).where((col("x") > 1) & (rc.lifetime() > 3) & (col("x") < 9))
    assert labels(query) == [
        "source s",
        "where x > 1",
        "shift by 1",
        "where end() - start() > 3; where x < 9",
    ]


def test_columns_that_nobody_reads_go() -> None:
    timed = s.with_columns(d=rc.lifetime(), e=rc.end(), f=col("x") + 1)
    assert labels(timed.select("d"))[-1].startswith("select d = end() - start()")
    moved = timed.with_lifetime(rc.start(), rc.start() + col("f")).select("k")
    (plan,) = optimize([moved.plan])
    assert plan.inputs[0].schema.names == ["k", "f"]
    assert set(plan.inputs[0].inputs[0].schema.names) == {"k", "x"}


def test_external_ctis_pass_only_where_the_start_alone_is_read() -> None:
    feed = rc.source("f", SCHEMA, external_ctis=True)

    def is_finalized(query: rc.Stream) -> bool:
        (plan,) = optimize([query.plan])
        return any(isinstance(node, nodes.Finalize) for node in nodes.walk(plan))

    assert not is_finalized(feed.where(rc.start() > 3))
    assert is_finalized(feed.where(rc.lifetime() > 3))
    assert is_finalized(feed.with_lifetime(rc.start() + 1, rc.end() + 1))


# In other places


def run(query: rc.Stream, *elements: Any, **given: Any) -> list[dict[str, Any]]:
    return rc.run(query, {"s": list(elements)}, **given).history().to_arrow().to_pylist()  # type: ignore[no-any-return]


def event(x: int, vs: int, ve: int = rc.FOREVER) -> rc.Insert:
    return rc.Insert({"k": "a", "x": x, "at": None}, vs, ve)


def test_in_allens_relations_and_in_windows() -> None:
    own = rc.interval(rc.start(), rc.end())
    rows = run(s.where(rc.overlaps(own, (rc.lit(5), rc.lit(20)))), event(1, 0, 9), event(2, 6, 7))
    assert [row["x"] for row in rows] == [1]
    longest = s.tumbling(10).agg(longest=rc.max(rc.lifetime()), n=rc.count())
    rows = run(longest, event(1, 0, 9), event(2, 6, 7), close=True)
    assert [(row["longest"], row["n"]) for row in rows] == [(9, 2)]


def test_steps_between_the_times_and_the_new_lifetime_are_one_step_with_it() -> None:
    timed = s.with_columns(d=rc.lifetime()).where(col("d") > 3).select(e=col("d") * 2)
    query = timed.where(rc.start() < 9, col("e") > 9).with_lifetime(rc.end(), rc.end() + col("e"))
    assert isinstance(query.plan.inputs[0], nodes.Source)
    rows = run(query, event(1, 0, 4), event(2, 0, 5), event(3, 9, 20), event(4, 2, 8), event(5, 3, 5))
    assert [(row["_vs"], row["_ve"], row["e"]) for row in rows] == [(5, 15, 10), (8, 20, 12)]


def test_an_event_beyond_its_bound_is_an_error() -> None:
    query = s.with_lifetime("x", None, bound=5)
    assert [row["_vs"] for row in run(query, event(3, 8))] == [3]
    with pytest.raises(
        RecensionError, match="starts at 9 would start at 3, which is more than bound=5 before"
    ):
        run(query, event(3, 9))


def test_times_must_be_what_the_source_says() -> None:
    given = {"z": [rc.Insert({"k": "a", "x": 1, "at": None}, 3, 5)]}
    with pytest.raises(RecensionError, match="the times are ticks, but those of source z"):
        rc.run(zoned, given)
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    late = [rc.Insert({"k": "a", "x": 1, "at": None}, noon)]
    bills = zoned.select(ran=rc.lifetime()).with_lifetime(rc.end(), rc.end() + HOUR)
    assert len(rc.run(bills, {"z": late}).history()) == 0
    ended = [rc.Insert({"k": "a", "x": 1, "at": None}, noon, noon + HOUR)]
    (row,) = rc.run(bills, {"z": ended}).history().to_arrow().to_pylist()
    assert (row["ran"], row["_vs"], row["_ve"]) == (HOUR, noon + HOUR, noon + 2 * HOUR)


def plan_of(stream: rc.Stream) -> Node:
    return stream.plan


def test_equal_queries_are_one_step() -> None:
    assert plan_of(s.where(rc.lifetime() > 3)) is plan_of(s.where(rc.end() - rc.start() > 3))


def test_ticks_taken_for_timestamps_are_refused_with_advice() -> None:
    with pytest.raises(RecensionError, match=r"times are ticks here: .*, as in times="):
        s.select(hours=rc.lifetime() / HOUR)


def test_changes_say_what_their_times_are() -> None:
    prices = rc.changes("p", {"k": "string"}, key="k", times="timestamp[us, UTC]")
    assert prices.select(ran=rc.lifetime()).schema.field("ran").type == pa.duration("us")
