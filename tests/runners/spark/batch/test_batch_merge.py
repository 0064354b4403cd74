"""A merge of histories: what they all are, or an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.runners.spark.batch.jobs import answers, batch, frame

import recension as rc
from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.denote.merge import merge
from recension.testing.assertions import assert_equivalent

SCHEMA = pa.schema([("p", pa.string()), ("x", pa.float64())])
HISTORY = [
    Event({"p": "a", "x": 1.5}, 1, 5),
    Event({"p": "a", "x": 1.5}, 1, 5),
    Event({"p": "a", "x": 1.5}, 1, FOREVER),
    Event({"p": None, "x": float("nan")}, 2, 3),
    Event({"p": "b", "x": None}, 2, 3),
]


def test_equal_histories_are_one(quick: Any) -> None:
    a, b, c = (rc.source(name, SCHEMA) for name in "abc")
    turned = b.select("x", "p")
    frames = {name: frame(quick, events, SCHEMA) for name, events in zip("abc", _told(), strict=True)}
    queries = [rc.merge(a, turned, c), rc.merge(a), rc.merge(a, b, case="R3", policy="ff", lag=3)]
    expected = merge(*_told())
    for events in answers([batch(quick, query, frames) for query in queries]):
        assert_equivalent(events, expected)


def _told() -> list[list[Event]]:
    return [HISTORY, HISTORY[::-1], HISTORY[2:] + HISTORY[:2]]


@pytest.mark.parametrize(
    ("other", "event"),
    [
        (HISTORY[1:], r"\[1, 5\) .*\"a\".* so many times: 2, 1"),
        ([*HISTORY, Event({"p": "c", "x": 0.0}, 7, FOREVER)], r"\[7, ∞\) .*\"c\".* so many times: 0, 1"),
    ],
)
def test_histories_that_differ_cannot_be_merged(quick: Any, other: list[Event], event: str) -> None:
    a, b = (rc.source(name, SCHEMA) for name in "ab")
    frames = {"a": frame(quick, HISTORY, SCHEMA), "b": frame(quick, other, SCHEMA)}
    # A filter above must not hide the difference.
    query = rc.merge(a, b).where(rc.col("p") == "none")
    with pytest.raises(PySparkException, match=f"merge first: the inputs stand for different.*{event}"):
        batch(quick, query, frames).collect()
    with pytest.raises(rc.RecensionError, match="different histories"):
        merge(HISTORY, other)
