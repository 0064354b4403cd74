"""Partitions of a source in a batch: each nets out by itself, and what was sent twice counts once."""

from __future__ import annotations

from typing import Any

import pytest

import recension as rc

COLUMNS = "_kind string, _vs long, _ve long, _new_ve long, k string, p int, o long, r string, q long"
SOURCE = rc.source("s", {"k": "string"}, partition="p", order="o", run="r", sequence="q", idle="5m")
UNNUMBERED = rc.source("s", {"k": "string"}, partition="p", order="o")


def _run(spark: Any, source: Any, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    padded = [(*row, *[None] * (9 - len(row))) for row in rows]
    found = rc.spark.batch(spark, source, {"s": spark.createDataFrame(padded, COLUMNS)})
    return sorted(map(tuple, found.collect()))


@pytest.mark.slow
def test_the_history_is_that_of_all_partitions(spark: Any) -> None:
    rows = [
        ("insert", 1, 5, None, "a", 0, 1, "x", 1),
        ("insert", 1, 5, None, "a", 1, 1, "x", 1),
        ("retract", 1, 5, 3, "a", 1, 2, "x", 2),
        ("cti", 9, None, None, None, 1, 3, "x", 3),
        ("insert", 1, 5, None, "b", 0, 2, "x", 2),
        # Sent again, once at the same offset.
        ("insert", 1, 5, None, "a", 0, 3, "x", 1),
        ("insert", 1, 5, None, "b", 0, 2, "x", 2),
        # Another run numbers anew.
        ("insert", 1, 5, None, "c", 0, 4, "y", 1),
    ]
    assert _run(spark, SOURCE, *rows) == [(1, 3, "a"), (1, 5, "a"), (1, 5, "b"), (1, 5, "c")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            [("insert", 1, 5, None, "a", 0, 1), ("retract", 1, 5, 3, "a", 1, 2)],
            "s: partition 1: retracts an event that is not in it, but in partition 0",
        ),
        (
            [("insert", 1, 5, None, "a", 0, 1), ("insert", 1, 5, None, "b", 0, 1)],
            "s: partition 0, o 1: does not come after what its partition has sent: order 1 twice",
        ),
        ([("insert", 1, 5, None, "a", None, 1)], "s: p is null"),
    ],
)
def test_what_is_refused(spark: Any, rows: list[tuple[Any, ...]], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        _run(spark, UNNUMBERED, *rows)
