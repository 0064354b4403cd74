"""Vintages of a figure: what was believed when, and how large the revisions were.

The growth of a quarter is published a month after its end, and revised one and two months later, and then
every September. An estimate holds from its publication until the next one of its quarter. So what was
believed at a time is what is true at that time.

    python examples/vintages.py              the first answers of every query, and two beliefs
    python examples/vintages.py data         writes data/gdp.csv instead, for the command:
    recension run examples/vintages.py:last -i gdp=data/gdp.csv

The figures are made up: four years of them.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
from engines import answer_or_write

import recension as rc
from recension import col

TICK = dt.timedelta(microseconds=1)
INSTANT, PERCENT = "timestamp[us, UTC]", "decimal128(4, 1)"

# What is believed of a quarter, from one vintage to the next.
estimates = rc.changes(
    "gdp",
    {"quarter": "string", "growth": PERCENT},
    key="quarter",
    version="vintage",
    start="published",
    times=INSTANT,
)

# An estimate meets the one that replaces it.
replaced = estimates.with_lifetime(rc.end(), rc.end() + TICK).rename({"growth": "before"})
revisions = replaced.join(estimates, on="quarter").with_columns(by=col("growth") - col("before"))

# The last revision of every quarter, until the next; and the revisions of each year.
last = revisions.edges(group_by="quarter")
by_year = revisions.tumbling("1y", tz="UTC").agg(
    revisions=rc.count(),
    up=rc.count(where=col("by") > 0),
    mean=rc.mean(col("by").abs()),
    largest=rc.arg_max("quarter", by=col("by").abs()),
)

# The same rows, as facts about the quarters: the session remembers when each came.
quarters = rc.source(
    "gdp",
    {"quarter": "string", "growth": PERCENT},
    key="quarter",
    version="vintage",
    start="began",
    end="ended",
    times=INSTANT,
)


def told(rows: pd.DataFrame) -> rc.Session:
    """A session that is told each vintage on the day it is published."""
    today = 0
    live = rc.session(quarters, clock=lambda: today, keep="3650d")
    for day, vintage in rows.groupby("published"):
        today = pd.Timestamp(day).value // 1000
        live.push("gdp", vintage)
    return live


def rows(years: int = 4, seed: int = 19) -> pd.DataFrame:
    """The vintages of every quarter, by the day of publication."""
    rng = np.random.default_rng(seed)
    began = pd.date_range("2020-01-01", periods=4 * years + 1, freq="QS", tz="UTC")
    found = []
    for begin, end in pairwise(began):
        monthly = [end + pd.DateOffset(months=n, days=27) for n in range(3)]
        autumns = [pd.Timestamp(year, 9, 30, tz="UTC") for year in range(end.year, began[-1].year)]
        growth = 5 + rng.integers(-8, 9)
        for vintage, day in enumerate(monthly + [day for day in autumns if day > monthly[-1]], start=1):
            growth += rng.integers(-3, 4)
            percent = Decimal(int(growth)) / 10
            found.append((f"{begin.year}Q{begin.quarter}", begin, end, percent, vintage, day))
    columns = ["quarter", "began", "ended", "growth", "vintage", "published"]
    return pd.DataFrame(found, columns=columns).sort_values("published", ignore_index=True)


if __name__ == "__main__":
    data = rows()
    answer_or_write({"estimates": estimates, "last": last, "by_year": by_year}, {"gdp": data})
