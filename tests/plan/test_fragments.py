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
        (A.union(A.where(col("bytes") > 9)).group_by("user").agg(n=rc.count()), ["all: a by user"]),
    ],
)
def test_one_fragment(query: rc.Stream, shape: list[str]) -> None:
    assert _shape(query) == shape


def test_a_change_of_key_is_an_exchange() -> None:
    query = PER_SITE.join(B, on="site").group_by("country").agg(t=rc.sum("n"))
    assert _shape(query) == ["all: a by site; b by site", "all: inner join on site by country"]


def test_an_aggregate_without_a_key_is_made_in_two_steps_if_that_is_exact() -> None:
    whole = "partial aggregate n = count(), speculate eager"
    eager = A.agg(n=rc.count(), speculate="eager")
    assert _shape(eager) == ["all: a by their whole payload", f"one: {whole} to one shard"]
    alone = [
        A.agg(m=rc.mean("bytes"), speculate="eager"),
        A.hopping(10, 5).agg(n=rc.count(), speculate="eager"),
        A.agg(n=rc.count()),
    ]
    assert [_shape(query) for query in alone] == [["one: a to one shard"]] * len(alone)


def test_what_is_computed_from_a_lost_column_is_not_where_it_was() -> None:
    """The sites are no longer told apart by any column, so they have to move."""
    query = PER_SITE.select("n").distinct()
    assert _shape(query) == ["all: a by site", "all: select n by n"]
