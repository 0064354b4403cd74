"""A query on each group: how keys travel through it, and what may be written in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import recension as rc
from recension import col
from recension.core.events import Event
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
    query = source.group_by("k").apply(lambda g: g.select("v").join(total))
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
