"""The flights of two days: both engines say what pandas says once everything is known."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.examples.times import in_utc

from recension.core.events import Event
from recension.testing.assertions import assert_equivalent

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "flights.py"))
FEED = {"flights": EXAMPLE["feed"](days=2)}
HOUR = pd.Timedelta(hours=1)


def flown() -> pd.DataFrame:
    """Each flight from when it left to when it came, or should have; those cancelled never were."""
    f = EXAMPLE["_instants"](2, 1)
    f = f[f["left"].notna()]
    came = f["came"].where(f["came"] > f["left"], f["expected"])
    return f.assign(vs=f["left"].map(ticks), ve=came.map(ticks))


def ticks(instant: pd.Timestamp) -> int:
    return int(instant.value // 1000)


def under_way() -> list[Event]:
    hour, counted = ticks(pd.Timestamp(0, tz="UTC") + HOUR), dict[tuple[str, int], int]()
    for flight in flown().itertuples():
        for at in range(flight.vs // hour, -(-flight.ve // hour)):
            counted[flight.origin, at] = counted.get((flight.origin, at), 0) + 1
    return [
        Event({"origin": origin, "flights": n}, at * hour, (at + 1) * hour)
        for (origin, at), n in counted.items()
    ]


def at_once() -> list[Event]:
    f = flown()[["tailnum", "flight", "origin", "vs", "ve"]].dropna()
    both = f.merge(f, on="tailnum", suffixes=("", "_right"))
    both = both[(both["flight"] < both["flight_right"])]
    both = both.assign(vs=both[["vs", "vs_right"]].max(axis=1), ve=both[["ve", "ve_right"]].min(axis=1))
    names = EXAMPLE["at_once"].schema.names
    rows = both[both["vs"] < both["ve"]].to_dict("records")
    return [Event({name: row[name] for name in names}, row["vs"], row["ve"]) for row in rows]


MEANINGS = {"under_way": under_way, "at_once": at_once}


@pytest.mark.parametrize("name", MEANINGS)
def test_the_local_engine_arrives_at_what_happened(name: str) -> None:
    answers = EXAMPLE["ask"](EXAMPLE[name], FEED)
    assert answers.revised > 0
    assert_equivalent(answers.history, in_utc(MEANINGS[name]()))


@pytest.mark.parametrize("name", [pytest.param("under_way", marks=pytest.mark.soak), "at_once"])
def test_so_does_spark(spark: Any, name: str) -> None:
    found = EXAMPLE["ask"](EXAMPLE[name], FEED, "spark")
    assert found.revised > 0
    assert_equivalent(found.history, in_utc(MEANINGS[name]()))
