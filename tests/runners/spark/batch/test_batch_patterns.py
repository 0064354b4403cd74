"""Joins by start and patterns as batch jobs: every kind, and keys that are null, NaN or minus nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runners.spark.batch.jobs import answers, batch, frame
from tests.runners.spark.batch.test_batch_joins import SCHEMA, _events

import recension as rc
from recension import col, denote
from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.assertions import assert_equivalent

s, t = rc.source("s", SCHEMA), rc.source("t", SCHEMA)
ENDS = [Event({"k": 1.5, "v": 1}, BEGINNING, 0), Event({"k": 1.5, "v": 2}, FOREVER - 2, FOREVER)]


def more(p: Any) -> bool:
    return p["v"] is not None and p["v_right"] is not None and bool(p["v"] > p["v_right"])


def rises(p: Any) -> bool:
    return p["a_v"] is not None and p["b_v"] is not None and bool(p["a_v"] < p["b_v"])


def test_they_are_what_they_mean(quick: Any) -> None:
    left, right = _events(1) + ENDS, _events(2) + ENDS
    frames = {"s": frame(quick, left, SCHEMA), "t": frame(quick, right, SCHEMA)}
    columns: dict[str, Any] = {"right_columns": ("k", "v"), "left_columns": ("k", "v")}
    queries, meanings = [], []
    for how in ("inner", "left", "full", "semi", "anti"):
        for starts, closed, on in (((-1, 3), "both", "k"), ((0, 4), "left", ()), ((-3, 1), "neither", "k")):
            queries.append(s.join(t, on=on, how=how, starts=starts, closed=closed))  # type: ignore[arg-type]
            meanings.append(denote.interval_join(left, right, starts, closed, on, None, how, **columns))  # type: ignore[arg-type]
        if how != "full":  # where a key is a float, a condition cannot be seen from both sides
            queries.append(s.join(t, on="k", how=how, starts=(0, 4), where=col("v") > col("v_right")))
            meanings.append(denote.interval_join(left, right, (0, 4), "both", "k", more, how, **columns))
    queries += [
        rc.unless(s, t, within=4, on="k"),
        rc.unless(s, t, within=4, on="k", where=col("v") > col("v_right")),
    ]
    meanings += [denote.unless(left, right, 4, "k"), denote.unless(left, right, 4, "k", more)]
    parts = {"a": s, "b": t, "c": s.where(col("v") > 1)}
    known = {"a": left, "b": right, "c": denote.where(left, lambda p: p["v"] is not None and p["v"] > 1)}
    two, of_two = {"a": s, "b": t}, {"a": left, "b": right}
    queries += [
        rc.sequence(parts, within=6, on="k", most=1),
        rc.sequence(two, within=6, on=[], absent=parts["c"], where=col("a_v") < col("b_v")),
        rc.all_of(two, within=4, on="k"),
        rc.at_least(2, parts, within=3, on="k"),
    ]
    meanings += [
        denote.sequence(known, 6, "k"),
        denote.sequence(of_two, 6, (), known["c"], rises),
        denote.all_of(of_two, 4, "k"),
        denote.at_least(2, known, 3, "k"),
    ]
    found = answers([batch(quick, query, frames) for query in queries])
    for answer, meant in zip(found, meanings, strict=True):
        assert_equivalent(answer, meant)


def test_what_is_dropped_depends_on_arrival(quick: Any) -> None:
    query = rc.sequence({"a": s, "b": t}, within=6, on="k", most=5, on_limit="drop")
    with pytest.raises(RecensionError, match="on_limit='drop' drops depends on arrival"):
        batch(quick, query, {name: frame(quick, [], SCHEMA) for name in "st"})
