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


def write(folder: Path, events: int) -> None:
    """`feed` for W1 and W3; `left` and `right`, half as many events each, for W2."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "feed.parquet", _rows(events, 7, 1000))
    for seed, side in enumerate(("left", "right")):
        rows = _rows(events // 2, seed, 100)
        rng = np.random.default_rng([3, seed])
        rows["until"] = rows["ts"] + rng.integers(SECOND, 60 * SECOND, len(rows["ts"]))
        _write(folder / f"{side}.parquet", rows)


def _rows(events: int, seed: int, rate: int) -> dict[str, Any]:
    """In order of arrival."""
    rng = np.random.default_rng(seed)
    ts = BEGIN + np.sort(rng.integers(0, max(1, events // rate) * SECOND, events))
    arrival = ts + np.where(rng.random(events) < 0.2, rng.integers(0, LATENESS, events), 0)
    keys = np.char.add("key-", rng.integers(0, KEYS, events).astype(str))
    return {
        "ts": ts[np.argsort(arrival, kind="stable")],
        "key": keys,
        "value": np.round(rng.random(events) * 100, 6),
    }


def _write(file: Path, rows: dict[str, Any]) -> None:
    table = pa.table(
        {name: pa.array(c).cast(STAMP) if c.dtype == np.int64 else pa.array(c) for name, c in rows.items()}
    )
    pq.write_table(table, file, row_group_size=-(-table.num_rows // STEPS))
