"""Bytewax: a dataflow over the rows, one at a time; windows by event time, rows later than 30 s dropped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing as win
from bytewax.testing import TestingSink, TestingSource, run_main

from benchmarks.peers.clock import run

_ALIGN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)  # a multiple of 10 s since 1970, as in every other peer


def answer(workload: str, folder: Path, out: Path) -> pa.Table:
    """W1 and W3; it has no join by overlap."""
    hop = dt.timedelta(seconds=2 if workload == "W1" else 10)
    found: list[Any] = []
    flow = Dataflow(workload)
    rows = op.input("rows", flow, TestingSource(_rows(folder), batch_size=10_000))
    clock = win.EventClock(
        ts_getter=lambda row: row[0],
        wait_for_system_duration=dt.timedelta(seconds=30),
        # Its watermark goes on with the machine's clock too: a replay of some seconds would drop late rows.
        now_getter=lambda: _ALIGN,
        to_system_utc=lambda _: None,
    )
    windower = win.SlidingWindower(length=dt.timedelta(seconds=10), offset=hop, align_to=_ALIGN)
    windows = win.fold_window("fold", rows, clock, windower, lambda: (0, 0.0), _add, _merge)
    op.output("out", windows.down, TestingSink(found))
    run_main(flow)
    keys, folded = zip(*found, strict=True)
    numbers, sums = zip(*folded, strict=True)
    return pa.table(
        {
            "key": keys,
            "start": pa.array([_ALIGN + number * hop for number in numbers], pa.timestamp("us", "UTC")),
            "n": [n for n, _ in sums],
            "s": [s for _, s in sums],
        }
    )


def _rows(folder: Path) -> Iterator[tuple[str, tuple[dt.datetime, float]]]:
    file = pq.ParquetFile(folder / "feed.parquet")
    for step in range(file.num_row_groups):
        table = file.read_row_group(step)
        ts, key, value = (table[name].to_pylist() for name in ("ts", "key", "value"))
        # No other object for UTC will do.
        instants = [t.replace(tzinfo=dt.timezone.utc) for t in ts]  # noqa: UP017
        yield from zip(key, zip(instants, value, strict=True), strict=True)


def _add(state: tuple[int, float], row: tuple[dt.datetime, float]) -> tuple[int, float]:
    return state[0] + 1, state[1] + row[1]


def _merge(state: tuple[int, float], other: tuple[int, float]) -> tuple[int, float]:
    return state[0] + other[0], state[1] + other[1]


if __name__ == "__main__":
    run(answer)
