"""Jobs of a grid: what they cost, how busy the sites are, what runs for too long, where it fails.

A job system does not send corrections of intervals. It states a job again, by its id, each time something
about it changes: it runs, it has ended, its accounting was wrong. The row with the highest number counts, in
whatever order rows come. A job that still runs has no end.

    python examples/jobs.py                 the first answers of every query
    python examples/jobs.py data            writes data/jobs.csv and data/sites.csv instead, for the command:
    recension run examples/jobs.py:bill -i jobs=data/jobs.csv -i sites=data/sites.csv

The jobs are made up: two months of them, at three sites.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
from engines import answer_or_write

import recension as rc
from recension import col

HOUR, DAY, TICK = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(microseconds=1)
FIRST, LAST = (dt.datetime(2024, month, 1, tzinfo=dt.UTC) for month in (3, 5))
ZONE = "Europe/Zurich"

jobs = rc.source(
    "jobs",
    {"job": "int64", "site": "string", "cores": "int64", "status": "string"},
    key="job",
    version="seq",
    start="began",
    end="finished",
    times="timestamp[us, UTC]",
)
sites = rc.table("sites", {"site": "string", "country": "string", "rate": "float64"})

# What a job has cost, at the moment it ends; and the bills of a month.
cost = (
    jobs.join(sites, on="site")
    .select("job", "country", cost=rc.lifetime() / HOUR * col("cores") * col("rate"))
    .with_lifetime(rc.end(), rc.end() + TICK)
)
bill = cost.group_by("country").tumbling("1mo", tz=ZONE).agg(jobs=rc.count(), cost=rc.sum("cost"))

# The cores in use at a site, day by day: the most, and the mean by how long so many were in use.
in_use = jobs.group_by("site").agg(cores=rc.sum("cores"))
load = (
    in_use.group_by("site")
    .tumbling("1d", tz=ZONE, until=LAST)
    .agg(peak=rc.max("cores"), mean=rc.time_weighted_mean("cores"))
)

# The jobs that run for more than two days, from then on.
overdue = jobs.with_lifetime(rc.start() + 2 * DAY, rc.end()).select("job", "site")

# The weeks in which more than a fifth of the jobs that ended at a site had failed.
failing = (
    jobs.with_lifetime(rc.end(), rc.end() + TICK)
    .group_by("site")
    .tumbling("1w", tz=ZONE)
    .agg(ended=rc.count(), failed=rc.count(where=col("status") == "failed") / rc.count())
    .having(col("failed") > 0.2)
)


def rows(count: int = 150, seed: int = 19) -> pd.DataFrame:
    """What the job system sends, out of order: jobs that begin, that end, that are corrected."""
    rng = np.random.default_rng(seed)
    began = pd.Timestamp(FIRST) + pd.to_timedelta(rng.integers(0, 61 * 96, count) * 15, unit="min")
    job = pd.DataFrame(
        {
            "job": np.arange(1, count + 1),
            "site": rng.choice(["CERN", "FNAL", "RAL"], count),
            "cores": 2 ** rng.integers(0, 6, count),
            "status": "running",
            "began": began,
            "finished": pd.Series(pd.NaT, range(count), began.dtype),
            "seq": 1,
        }
    )
    ran = pd.to_timedelta(np.ceil(rng.exponential(120, count)) * 15, unit="min")
    status = rng.choice(["done", "failed"], count, p=[0.85, 0.15])
    ended = job.assign(status=status, finished=began + ran, seq=2)[began + ran < LAST]
    wrong = ended.sample(frac=0.1, random_state=seed)  # the books say an hour more
    corrected = wrong.assign(finished=wrong["finished"] + HOUR, seq=3)
    return pd.concat([job, ended, corrected]).sample(frac=1, random_state=seed).reset_index(drop=True)


def rates() -> pd.DataFrame:
    """Where a site is, and what an hour of a core costs there."""
    return pd.DataFrame(
        {"site": ["CERN", "FNAL", "RAL"], "country": ["CH", "US", "UK"], "rate": [0.5, 0.25, 0.375]}
    )


if __name__ == "__main__":
    queries = {"cost": cost, "bill": bill, "load": load, "overdue": overdue, "failing": failing}
    answer_or_write(queries, {"jobs": rows(), "sites": rates()})
