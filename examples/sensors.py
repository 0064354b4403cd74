"""Regions of similar humidity, and the longest heat of a day: two queries on a network of sensors.

Sensors send readings, some of them late. What a region's air was like, and for how long, is known only once
equal readings are one fact with a maximal lifetime.

    python examples/sensors.py             both queries on the local engine
    python examples/sensors.py batch       the same as Spark SQL

Source: Temporal Coalescing on Window Extents over Data Streams, Examples 1 and 2.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import recension as rc
from recension import col

MINUTE = 60_000_000

readings = rc.source("readings", {"region": "int64", "humidity": "int64", "temperature": "int64"})

# Example 1: at every minute, any two regions of similar humidity for 4 minutes or longer in the past 60.
humid = readings.coalesce(on="humidity", group_by="region", window=rc.range("60m", slide="1m"))
others = humid.rename({"region": "other", "humidity": "other_humidity"})
both = rc.intersect(rc.valid(), rc.valid("_right"))
alike = (col("other_humidity") - col("humidity")).is_between(-1, 1)
similar = humid.join(
    others, where=(col("region") < col("other")) & alike & (rc.duration(both) >= rc.duration("4m"))
).select("region", "other", since=both.start, until=both.end)

# Example 2: at every hour, the longest time each region was above 100 degrees in the past 24 hours.
heat = readings.select("region", hot=col("temperature") > 100)
spells = heat.coalesce(on="hot", group_by="region", window=rc.range("24h", slide="1h")).where(col("hot"))
longest = (
    spells.with_columns(lasted=col("valid_end") - col("valid_start"))
    .group_by("region")
    .agg(longest=rc.max("lasted"))
)


def arrivals(count: int, every: int, regions: int = 3, seed: int = 5) -> pa.Table:
    """So many readings of each region, so many minutes apart, a fifth of them late; then the end."""
    rng = np.random.default_rng(seed)
    number, region = np.divmod(np.arange(count * regions), regions)
    at = number * every * MINUTE
    late = np.where(rng.random(len(at)) < 0.2, rng.integers(1, 6 * every, len(at)) * MINUTE, 0)
    order = np.argsort(at + late, kind="stable")
    drift = np.cumsum(rng.integers(-1, 2, (count, regions)) * (rng.random((count, regions)) < 0.3), axis=0)
    warm = 100 + 8 * np.sin(number * every / 300 + region) + rng.integers(-1, 2, len(at))
    told = {
        "_kind": np.full(len(at), "insert"),
        "_vs": at[order],
        "_ve": at[order] + 1,
        "region": region[order],
        "humidity": (40 + drift.reshape(-1))[order],
        "temperature": warm.astype(np.int64)[order],
    }
    end = {"_kind": ["cti"], "_vs": [rc.FOREVER], "_ve": [None]} | {
        name: [None] for name in ("region", "humidity", "temperature")
    }
    table = pa.table(told)
    return pa.concat_tables([table, pa.table(end, schema=table.schema)])


def _show(query: rc.Stream, table: pa.Table, engine: str) -> None:
    if engine == "batch":
        spark = rc.spark.session()
        rc.spark.batch(spark, query, {"readings": spark.createDataFrame(table)}).orderBy("_vs").show(8)
        return
    answer = rc.run(query, {"readings": table})
    rows = answer.history().to_arrow().sort_by("_vs").slice(0, 8).to_pylist()
    print(*rows, sep="\n")


if __name__ == "__main__":
    engine = sys.argv[1] if len(sys.argv) > 1 else "local"
    print("regions of similar humidity, minute by minute")
    _show(similar, arrivals(count=60, every=1), engine)
    print("the longest heat of the past 24 hours, hour by hour")
    _show(longest, arrivals(count=200, every=10), engine)
