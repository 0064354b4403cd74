"""The files of W1, W2 and W3: everybody reads the same, in order of arrival, a row group a step.

Text keys, floats, timestamps; 1,000 keys, 20 % of the rows late by up to 30 seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECOND, STEPS, KEYS = 1_000_000, 40, 1000
LATENESS, BEGIN = 30 * SECOND, 1_772_000_000 * SECOND
STAMP = pa.timestamp("us", "UTC")


def write(folder: Path, events: int, steps: int = STEPS) -> None:
    """`feed` for W1 and W3; `left` and `right`, half as many events each, for W2."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("feed", "left", "right"):
        table = make_table(name, events)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=-(-table.num_rows // steps))


def make_table(name: str, events: int, keys: int = KEYS) -> pa.Table:
    """The rows of `feed`, or of a side of the join."""
    if name == "feed":
        rows = _rows(events, 7, 1000, keys)
    else:
        seed = ("left", "right").index(name)
        rows = _rows(events // 2, seed, 100, keys)
        rng = np.random.default_rng([3, seed])
        rows["until"] = rows["ts"] + rng.integers(SECOND, 60 * SECOND, len(rows["ts"]))
    return pa.table(
        {name: pa.array(c).cast(STAMP) if c.dtype == np.int64 else pa.array(c) for name, c in rows.items()}
    )


def _rows(events: int, seed: int, rate: int, keys: int) -> dict[str, Any]:
    """In order of arrival."""
    rng = np.random.default_rng(seed)
    ts = BEGIN + np.sort(rng.integers(0, max(1, events // rate) * SECOND, events))
    arrival = ts + np.where(rng.random(events) < 0.2, rng.integers(0, LATENESS, events), 0)
    names = np.char.add("key-", rng.integers(0, keys, events).astype(str))
    return {
        "ts": ts[np.argsort(arrival, kind="stable")],
        "key": names,
        "value": np.round(rng.random(events) * 100, 6),
    }
