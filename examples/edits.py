"""Edits of an encyclopedia: who worked for how long, who was busiest, whose work was undone.

An edit is a moment. Some come late, and some are hidden later, by a row that says so of the edit's number:
then they have never been, and sessions, ranks and reverts are corrected.

    python examples/edits.py                 the first answers of every query
    python examples/edits.py data            writes data/edits.csv instead, for the command:
    recension run examples/edits.py:busiest -i edits=data/edits.csv

The edits are made up: a week of them, around a change of clocks.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
from engines import answer_or_write

import recension as rc
from recension import col

ZONE = "America/New_York"

edits = rc.source(
    "edits",
    {"edit": "int64", "user": "string", "page": "string", "bytes": "int64", "undoes": "int64"},
    key="edit",
    version="seq",
    deleted="hidden",
    start="at",
    times="timestamp[us, UTC]",
).set_duration(1)

# What an editor did without a break of an hour; and what took more than two hours.
visits = (
    edits.group_by("user")
    .sessions("1h")
    .agg(edits=rc.count(), pages=rc.n_unique("page"), bytes=rc.sum("bytes"))
)
long = visits.where(rc.lifetime() > dt.timedelta(hours=2))

# The three busiest editors of each day in New York.
busiest = edits.group_by("user").tumbling("1d", tz=ZONE).agg(edits=rc.count()).agg(rc.top_k(3, by="edits"))

# Edits that somebody else undid within a day, at the moment of that; and whose they were, week by week.
reverts = edits.where(~col("undoes").is_null()).select(edit="undoes", by="user")
undone = edits.drop("undoes").set_duration("1d").join(reverts, on="edit", where=col("user") != col("by"))
unlucky = undone.group_by("user").tumbling("1w", tz=ZONE).agg(undone=rc.count()).having(rc.count() > 1)


def rows(visits: int = 60, seed: int = 19) -> pd.DataFrame:
    """What the encyclopedia sends, some of it late: edits, reverts, and edits that are hidden."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 8, visits)
    begins = pd.Timestamp("2024-03-07", tz="UTC") + pd.to_timedelta(rng.integers(0, 7 * 1440, visits), "min")
    user = rng.choice(["ann", "bob", "cay", "dan", "eve", "fay"], visits)
    each = np.repeat(np.arange(visits), size)
    pauses = pd.Series(rng.integers(1, 50, len(each))).groupby(each).cumsum()
    table = pd.DataFrame({"user": user[each], "at": begins[each] + pd.to_timedelta(pauses, unit="min")})
    table = table.drop_duplicates().sort_values(["at", "user"], ignore_index=True)
    number = np.arange(1, len(table) + 1)
    # One edit in six undoes one of the last five.
    undoes = pd.Series(number - rng.integers(1, 6, len(table)), dtype="Int64")
    table = table.assign(
        edit=number,
        page=rng.choice(["Oslo", "Rome", "Kyiv", "Lima"], len(table)),
        bytes=rng.integers(-200, 500, len(table)),
        undoes=undoes.where((rng.random(len(table)) < 1 / 6) & (undoes > 0)),
        hidden=False,
        seq=1,
    )
    hidden = table.sample(frac=0.05, random_state=seed).assign(hidden=True, seq=2)
    every = pd.concat([table, hidden]).sample(frac=1, random_state=seed)
    return every[["edit", "user", "page", "bytes", "undoes", "at", "hidden", "seq"]].reset_index(drop=True)


if __name__ == "__main__":
    queries = {"visits": visits, "long": long, "busiest": busiest, "undone": undone, "unlucky": unlucky}
    answer_or_write(queries, {"edits": rows()})
