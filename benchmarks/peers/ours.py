"""Recension: as its guide shows it, nothing declared; a push for each row group, answers read after each."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import recension as rc
from benchmarks.peers.clock import run

LATENESS = dt.timedelta(seconds=30)
LEVEL = {"eager": rc.MIDDLE, "final": None}[os.environ.get("PEER_LEVEL", "eager")]

feed = rc.source("feed", {"key": "string", "value": "float64"}, start="ts")
left, right = (
    rc.source(side, {"key": "string", "value": "float64"}, start="ts", end="until")
    for side in ("left", "right")
)
QUERIES = {
    "W1": feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value")),
    "W2": left.join(right, on="key"),
    "W3": feed.group_by("key").tumbling("10s").agg(n=rc.count(), s=rc.sum("value")),
}


def answer(workload: str, folder: Path, out: Path) -> pa.Table:
    """The history at the end."""
    query = QUERIES[workload]
    live = rc.session(query if LEVEL is None else query.consistency(LEVEL), history_limit=None)
    files = {name: pq.ParquetFile(folder / f"{name}.parquet") for name in live.sources}
    seen = dict.fromkeys(files, dt.datetime.min.replace(tzinfo=dt.UTC))
    for step in range(max(file.num_row_groups for file in files.values())):
        for name, file in files.items():
            rows = file.read_row_group(step)
            live.push(name, rows)
            seen[name] = max(seen[name], pc.max(rows["ts"]).as_py())
            live.advance(name, seen[name] - LATENESS)
        live.read()
    live.close()
    live.read()
    return _named(workload, live.history().to_arrow())


def _named(workload: str, found: Any) -> pa.Table:
    if workload == "W2":
        return found.rename_columns(
            {"_vs": "start", "_ve": "stop", "value": "left_value", "value_right": "right_value"}
        )
    return found.drop_columns("_ve").rename_columns({"_vs": "start"})


if __name__ == "__main__":
    run(answer)
