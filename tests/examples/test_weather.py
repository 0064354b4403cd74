"""The weather of six days: both engines say what pandas says once all readings are there."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.examples.times import in_utc

from recension.core.events import Event
from recension.core.ticks import FOREVER
from recension.testing.assertions import assert_equivalent

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "weather.py"))
DAYS, DAY = 6, 86_400_000_000
FEED = {"readings": EXAMPLE["feed"](DAYS)}
FIRST = EXAMPLE["FIRST"].value // 1000


def readings() -> pd.DataFrame:
    """In the order of their times, each with that of the next of its station."""
    rows = FEED["readings"].to_pandas()
    rows = rows[rows["_kind"] == "insert"].assign(vs=lambda r: r["_vs"].astype("int64"))
    rows = rows.sort_values(["station", "vs"])
    following = rows["vs"].groupby(rows["station"]).shift(-1).astype("Int64")
    return rows.assign(ve=following.fillna(FOREVER).astype("int64"))


def frost() -> list[Event]:
    rows = readings()
    cold = rows["temp"] <= EXAMPLE["FREEZING"]
    begins = (cold != cold.shift()) | (rows["station"] != rows["station"].shift())
    spells = rows.assign(spell=begins.cumsum())[cold].groupby(["station", "spell"])
    ends = spells.agg(vs=("vs", "min"), ve=("ve", "max")).reset_index()
    return [Event({"station": row.station}, row.vs, row.ve) for row in ends.itertuples()]


def daily() -> list[Event]:
    found = []
    for station, rows in readings().groupby("station"):
        for start in range(FIRST, FIRST + DAYS * DAY, DAY):
            lasted = (rows["ve"].clip(upper=start + DAY) - rows["vs"].clip(lower=start)).clip(lower=0)
            mean = float((rows["temp"] * lasted).sum() / lasted.sum())
            found.append(Event({"station": station, "mean": mean}, start, start + DAY))
    return found


def test_the_local_engine_arrives_at_what_the_readings_say() -> None:
    for query, meaning in ((EXAMPLE["frost"], frost()), (EXAMPLE["daily"](DAYS), daily())):
        answers = EXAMPLE["ask"](query, FEED)
        assert answers.revised > 0
        assert_equivalent(answers.history, in_utc(meaning))


@pytest.mark.parametrize(
    ("query", "meaning"),
    [(EXAMPLE["frost"], frost), pytest.param(EXAMPLE["daily"](DAYS), daily, marks=pytest.mark.soak)],
    ids=["frost", "daily"],
)
def test_so_does_spark(spark: Any, query: Any, meaning: Any) -> None:
    found = EXAMPLE["ask"](query, FEED, "spark")
    assert_equivalent(found.history, in_utc(meaning()))
