"""Errors that say what to write instead."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest

import recension as rc
from recension import col

s = rc.source("s", {"k": "string", "v": "int64", "x": "float64"})
timed = rc.source("z", {"v": "int64"}, times="timestamp[us, UTC]")
SECONDS = "is duration[us]; count its seconds, as in rc.lifetime().dt.total_seconds()"
CONDITION = "a condition must be true or false, but v is int64"
NUMBERS = "needs numbers, but k is string; if it holds numbers, cast it to float64 or int64"
DELTA = "; write a duration as in datetime.timedelta(minutes=10)"
TICKS = "; times are ticks here: write a duration as in rc.duration('10m')"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        *((lambda f=f: timed.agg(a=f(rc.lifetime())), SECONDS) for f in (rc.sum, rc.mean, rc.median)),
        (lambda: timed.agg(a=rc.time_weighted_mean(rc.lifetime())), SECONDS),
        (lambda: s.agg(a=rc.median("k")), NUMBERS),
        (lambda: s.agg(a=rc.time_weighted_mean("k")), NUMBERS),
        (lambda: s.agg(a=rc.quantile("v", "x")), "quantile: q lies between 0 and 1, not 'x'"),  # type: ignore[arg-type]
        (lambda: s.agg(a=rc.count(where="v")), CONDITION),
        *((lambda f=f: s.agg(a=f("x", where="v")), CONDITION) for f in (rc.sum, rc.min, rc.max, rc.first)),
        (lambda: s.select(a=rc.when(col("v")).then(1)), CONDITION),
        (lambda: timed.where(rc.lifetime() > "10m"), DELTA),
        (lambda: timed.with_lifetime(rc.start(), rc.start() + "10m"), DELTA),
        (lambda: timed.with_lifetime(rc.start(), rc.start() + 5), DELTA),
        (lambda: s.where(rc.lifetime() > "10m"), TICKS),
        (lambda: s.where(rc.lifetime() > dt.timedelta(1)), TICKS + ", or say in the source"),
        (lambda: s.select(a=col("start()")), "'start()' is no column: write rc.start()"),
        (lambda: s.select("end()"), "'end()' is no column: write rc.end()"),
    ],
)
def test_what_to_write_instead(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(rc.SchemaError, match=re.escape(said)):
        build()


def test_a_new_start_beyond_time_is_not_advised_to_be_a_float() -> None:
    early = s.with_lifetime(rc.start() - 10, rc.end())
    row = rc.Insert({"k": "a", "v": 1, "x": 0.5}, rc.BEGINNING + 3, 5)
    with pytest.raises(rc.RecensionError, match=r"with_lifetime: start\(\) - 10 does not fit .* and 10$"):
        rc.run(early, {"s": [row]})


def test_a_lifetime_that_nobody_reads_is_no_step() -> None:
    unread = s.with_columns(L=rc.lifetime())
    for query in (unread.select("k", "v"), unread.group_by("k").agg(n=rc.count())):
        lines = query.explain().splitlines()
        assert not [line for line in lines[:-1] if not line.strip("│└─ ")]
        assert "L" not in query.explain()
