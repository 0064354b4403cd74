"""State larger than memory: the rate and the memory of a session with and without a bound.

Run as ``python -m benchmarks.memory [EVENTS] [MEMORY ...]``. Every event stays live; there are two a key, and
keys are text. When all are there, batches of 1,000 random keys follow. Each bound gets a process of its own.
Times are processor time of one core. Private memory is what the system cannot take back; the peak has pages
of files too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import recension as rc

LOAD, BATCH, BATCHES = 1 << 16, 1_000, 100


def main() -> None:
    """A row for each bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("events", nargs="?", type=int, default=3_000_000)
    parser.add_argument("memory", nargs="*")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(_measure(given.events, given.memory[0] if given.memory else None)))
        return
    names = ("memory", "events/s", "a batch, ms", "99th %", "private MB", "peak MB", "in files MB")
    table = Table(*names)
    for bound in [None, *(given.memory or ["256MB"])]:
        command = [sys.executable, "-m", "benchmarks.memory", str(given.events), *([bound] if bound else [])]
        found = json.loads(subprocess.run([*command, "--child"], stdout=subprocess.PIPE, check=True).stdout)
        table.add_row(bound or "not bounded", *(f"{value:,.1f}" for value in found))
    Console().print(table)


def _measure(events: int, bound: str | None) -> list[float]:
    source = rc.source("s", {"k": "string", "v": "float64"})
    query = source.group_by("k").agg(n=rc.count(), total=rc.sum("v"))
    live = rc.session(query, history_limit=0, memory=bound)
    rng, private, spent = np.random.default_rng(0), 0, list[float]()

    def push(start: int, size: int) -> float:
        nonlocal private
        rows = _rows(rng, start, size, events)
        began = time.process_time()
        live.push("s", rows)
        live.advance("s", start)
        live.read()
        took = time.process_time() - began
        private = max(private, _status("RssAnon"))
        return took

    intake = sum(push(start, LOAD) for start in range(0, events, LOAD))
    for number in range(BATCHES):
        spent.append(1000 * push(events + LOAD + number * BATCH, BATCH))
    use = live.memory()
    files = 0 if use is None else use.spilled_bytes
    rate = (events // LOAD + 1) * LOAD / intake
    middle, high = np.percentile(spent, [50, 99])
    return [rate, float(middle), float(high), private / 1e6, _status("VmHWM") / 1e6, files / 1e6]


def _rows(rng: Any, start: int, size: int, events: int) -> pa.Table:
    vs = np.arange(start, start + size)
    keys = np.char.mod("key-%09d", rng.integers(0, events // 2, size))
    return pa.table(
        {"_kind": ["insert"] * size, "_vs": vs, "_ve": vs + 4 * events, "k": keys, "v": rng.random(size)}
    )


def _status(name: str) -> int:
    """What the system says of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


if __name__ == "__main__":
    main()
