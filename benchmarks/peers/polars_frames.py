"""Polars: all rows at once, lazily."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from benchmarks.peers.clock import run


def answer(workload: str, folder: Path, out: Path) -> pa.Table:
    """By one lazy query."""
    return (_joined(folder) if workload == "W2" else _windows(folder, workload)).collect().to_arrow()


def _windows(folder: Path, workload: str) -> pl.LazyFrame:
    # The grid begins with the first row, less the offset: the windows before it that hold it count too.
    every, offset = ("2s", "-8s") if workload == "W1" else ("10s", "0s")
    return (
        pl.scan_parquet(folder / "feed.parquet")
        .sort("ts")
        .group_by_dynamic("ts", every=every, period="10s", offset=offset, group_by="key")
        .agg(n=pl.len().cast(pl.Int64), s=pl.sum("value"))
        .rename({"ts": "start"})
        .with_columns(pl.col("start").dt.replace_time_zone(None))
    )


def _joined(folder: Path) -> pl.LazyFrame:
    left, right = (
        pl.scan_parquet(folder / f"{side}.parquet").rename({"value": f"{side}_value"})
        for side in ("left", "right")
    )
    overlap = left.join(right, on="key").filter(
        (pl.col("ts") < pl.col("until_right")) & (pl.col("ts_right") < pl.col("until"))
    )
    return overlap.select(
        "key",
        "left_value",
        "right_value",
        start=pl.max_horizontal("ts", "ts_right").dt.replace_time_zone(None),
        stop=pl.min_horizontal("until", "until_right").dt.replace_time_zone(None),
    )


if __name__ == "__main__":
    run(answer)
