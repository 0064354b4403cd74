"""How plans are cut: no exchange where events are together already, one where they are not."""

from __future__ import annotations

import pytest

import recension as rc
from recension import col

A = rc.source("a", {"site": "string", "user": "string", "bytes": "int64"})
B = rc.source("b", {"site": "string", "country": "string"})
PER_SITE = A.group_by("site").agg(n=rc.count())


def _shape(query: rc.Stream) -> list[str]:
    """Every fragment as what it reads, and how."""
    found: list[str] = []
    for line in query.fragments().splitlines():
        if line.startswith("fragment"):
            found.append("one: " if "one shard" in line else "all: ")
        elif "reads" in line:
            found[-1] += line.strip().removeprefix("reads ") + "; "
    return [shape.rstrip("; ") for shape in found]


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        (A.where(col("bytes") > 0), ["all: a by their whole payload"]),
        (PER_SITE, ["all: a by site"]),
        (PER_SITE.where(col("n") > 1).join(B, on="site"), ["all: a by site; b by site"]),
        (A.select(s=col("site"), x=col("bytes")).group_by("s").agg(n=rc.count()), ["all: a by site"]),
        (A.group_by(k=col("bytes") % 2).agg(n=rc.count()), ["all: a by k"]),
        (A.group_by("site", "user").agg(n=rc.count()).distinct(), ["all: a by site, user"]),
        (A.cleanse(), ["one: a to one shard"]),
        (A.align(0).group_by("site").agg(n=rc.count()), ["all: a by site"]),
        (
            A.group_by("site").apply(lambda g: g.where(col("bytes") > 0).distinct()),
            ["all: a by site, site', user, bytes"],
        ),
        (A.with_columns(d=rc.lifetime()).group_by("user").agg(d=rc.sum("d")), ["all: a by user"]),
        (A.where(rc.lifetime() > 3).group_by(k=col("bytes") % 2).agg(n=rc.count()), ["all: a by k"]),
        (A.with_columns(d=rc.lifetime()), ["all: a by their whole payload"]),
        (A.union(A.where(col("bytes") > 9)).group_by("user").agg(n=rc.count()), ["all: a by user"]),
    ],
)
def test_one_fragment(query: rc.Stream, shape: list[str]) -> None:
    assert _shape(query) == shape


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        (A.advance_time(5), ["all: a by their whole payload"]),
        (A.where(col("bytes") > 0).advance_time(5).group_by("site").agg(n=rc.count()), ["all: a by site"]),
        (A.align(3).group_by("user").agg(n=rc.count()), ["all: a by user"]),
        (A.align(), ["all: a by their whole payload"]),
        (A.finalize().group_by("user").agg(n=rc.count()), ["all: a by user"]),
        (PER_SITE.finalize().align(), ["all: a by site"]),
        (
            PER_SITE.advance_time(5),
            ["all: a by site", f"all: {PER_SITE.plan.label} by their whole payload"],
        ),
    ],
)
def test_steps_that_go_by_ctis_or_by_a_clock_are_where_their_readers_are(
    query: rc.Stream, shape: list[str]
) -> None:
    assert _shape(query) == shape


def test_a_step_with_state_that_several_read_runs_once() -> None:
    """Each by another key: else its state would be there twice, and what it drops counted twice."""
    late = A.advance_time(5)
    by_both = (
        late.group_by("site")
        .agg(n=rc.count())
        .union(late.group_by("site", "user").agg(n=rc.count()).select("site", "n"))
    )
    assert _shape(by_both)[0] == "all: a by their whole payload"


DROPPING = rc.source("d", {"site": "string"}, on_violation="drop")
COUNTING = rc.source("c", {"site": "string"}, external_ctis=True)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (A.cleanse(), "'cleanse' shows nothing before what starts first"),
        (A.finalize(5), "'finalize, remember 5' forgets by the latest time"),
        (COUNTING.agg(n=rc.count()), "'finalize, remember forever' counts the elements of all shards"),
        (
            DROPPING.advance_time(5),
            "decides what is late by the order of all rows, which is known only above a source",
        ),
        (A.advance_time(5, events=3), "decides what is late by the order of all rows"),
        (A.shift(5).advance_time(5), "decides what is late by the order of all rows"),
        (A.cleanse().align(5), "'align, block 5' waits for how far all rows have got"),
        (A.align(rc.wall_clock("5s")), "notes by one clock how far all rows have got"),
        (A.advance_time(by=B), "takes the ctis of another stream between its own rows"),
        (A.agg(n=rc.count()), "has no key"),
        (A.join(B.rename({"site": "s"}), how="cross"), "has no key"),
    ],
)
def test_what_is_in_one_shard_says_why(query: rc.Stream, why: str) -> None:
    because = [line for line in query.fragments().splitlines() if "in one shard because" in line]
    assert any(why in line for line in because), query.fragments()


def test_a_step_that_is_there_with_another_is_no_reason() -> None:
    because = [line for line in A.advance_time(5).cleanse().fragments().splitlines() if "because" in line]
    assert len(because) == 1
    assert "'cleanse'" in because[0]


def test_a_change_of_key_is_an_exchange() -> None:
    query = PER_SITE.join(B, on="site").group_by("country").agg(t=rc.sum("n"))
    assert _shape(query) == ["all: a by site; b by site", "all: inner join on site by country"]


@pytest.mark.parametrize(
    "query",
    [
        A.agg(n=rc.count()),
        A.agg(m=rc.mean("bytes"), t=rc.sum(col("bytes") * 0.5), speculate="ordered"),
        A.hopping(10, 5).agg(n=rc.count("user"), speculate="eager"),
        A.agg(n=rc.count(), top=rc.max("bytes"), speculate="eager"),
        A.to_points().tumbling(10).agg(top=rc.max("bytes"), speculate="eager"),
    ],
)
def test_an_aggregate_without_a_key_is_made_in_parts(query: rc.Stream) -> None:
    whole = f"partial {query.plan.label}"
    assert _shape(query) == ["all: a by their whole payload", f"one: {whole} to one shard"]


@pytest.mark.parametrize(
    "query",
    [
        A.agg(top=rc.max("bytes")),
        A.agg(top=rc.max("bytes"), m=rc.mean("bytes"), speculate="eager"),
        A.tumbling(10).agg(top=rc.max("bytes"), speculate="eager"),
        A.to_points().hopping(10, 5).agg(top=rc.max("bytes"), speculate="eager"),
        A.agg(s=rc.stddev("bytes"), speculate="eager"),
        A.count_window(3).agg(n=rc.count(), speculate="eager"),
    ],
)
def test_others_are_made_in_one_place(query: rc.Stream) -> None:
    assert _shape(query) == ["one: a to one shard"]


def test_a_key_of_very_different_numbers_is_made_in_parts_if_asked_for() -> None:
    query = A.group_by("site", odd=col("bytes") % 2).tumbling(10).agg(n=rc.count())
    assert query.fragments(skew="site") == (
        "fragment 1, in every shard\n"
        "   reads a by their whole payload\n"
        f"   gives partial {query.plan.label}\n"
        "fragment 2, in every shard\n"
        f"   reads partial {query.plan.label} by site, odd\n"
        f"   gives aggregate n = count() by site, odd, speculate perfect, tumbling windows of 10\n"
    )
    assert query.where(col("n") > 1).fragments(skew=["odd"]).count("partial") == 2
    # What is sharded by the key already stays where it is.
    joined = A.join(B, on="site").group_by("site").agg(n=rc.count())
    assert joined.fragments(skew="site").count("fragment") == 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (PER_SITE, "skew: no aggregate of the query is grouped by 'user'"),
        (
            A.group_by("user").agg(m=rc.max("bytes")),
            "skew: what is grouped by 'user' cannot be computed in parts: max and min are computed in parts",
        ),
        (
            A.group_by("user").agg(s=rc.quantile("bytes", 0.5)),
            r"skew: .* quantile\(bytes, 0.5\) needs all events",
        ),
        (A.group_by("user").count_window(2).agg(n=rc.count()), "skew: .* needs all events together"),
    ],
)
def test_what_cannot_be_made_in_parts_is_refused(query: rc.Stream, why: str) -> None:
    with pytest.raises(rc.RecensionError, match=why):
        query.fragments(skew="user")


def test_what_is_computed_from_a_lost_column_is_not_where_it_was() -> None:
    """The sites are no longer told apart by any column, so they have to move."""
    query = PER_SITE.select("n").distinct()
    assert _shape(query) == ["all: a by site", "all: select n by n"]


def test_a_key_that_is_computed_from_times_is_computed_before_the_shuffle() -> None:
    by_hour = A.group_by(hour=rc.start() // 60).agg(n=rc.count())
    assert _shape(by_hour) == [
        "all: a by their whole payload",
        "all: select hour = start() // 60 by hour",
    ]
    by_length = A.with_columns(d=rc.lifetime()).where(col("d") > 3).group_by(k=col("d") % 2).agg(n=rc.count())
    assert len(_shape(by_length)) == 2
