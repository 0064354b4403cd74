"""One element pushed and its answer read: what a small service waits for. And how long it takes to start.

The query is W1 (a hopping window per key) as the guide writes it: text keys, floats, timestamps, nothing
declared, eager answers. How many keys there are must not matter.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite

if TYPE_CHECKING:
    from recension.runners.local import Session

START = datetime(2026, 1, 1, tzinfo=UTC)
_STARTS: dict[str, list[str]] = {
    "import recension": ["-c", "import recension"],
    "import recension as rc; rc.source": ["-c", "import recension as rc; rc.source"],
    "recension --help": ["-m", "recension.cli", "--help"],
}


@dataclass
class Service:
    """A session that has seen all keys, and what comes next."""

    live: Session
    elements: list[Any]


def _start(keys: int, size: int, _: Path) -> Service:
    import recension as rc

    schema = {"key": "string", "value": "float64"}
    feed = rc.source("feed", schema, start="ts")
    query = feed.group_by("key").hopping("10s", "2s").agg(n=rc.count(), s=rc.sum("value"), speculate="eager")
    live = rc.session(query)
    at = np.arange(keys)
    times = pa.array(at % 1000, pa.int64()).cast(pa.timestamp("us"))
    start = pa.scalar(int(START.timestamp() * 1e6))
    table = {
        "ts": pa.compute.add(times.cast(pa.int64()), start).cast(pa.timestamp("us", "UTC")),
        "key": [f"key {i}" for i in at],
        "value": at * 0.1,
    }
    live.push("feed", pa.table(table))
    live.read()
    rng = np.random.default_rng(3)
    chosen = rng.integers(0, keys, size).tolist()
    steps = [START + timedelta(milliseconds=i) for i in range(size)]
    elements = [
        rc.Insert({"key": f"key {key}", "value": 0.1}, step, step + timedelta(microseconds=1))
        for key, step in zip(chosen, steps, strict=True)
    ]
    return Service(live, elements)


def _push_each(service: Service) -> int:
    """Push every element by itself; were there answers? (How many depends on what was pushed before.)"""
    answers = 0
    for element in service.elements:
        service.live.push("feed", [element])
        answers += sum(len(batch) for batch in service.live.read().batches)
    return int(answers > 0)


def notes() -> list[str]:
    """The best of some starts, in seconds of processor time."""
    return [f"{name}: {_time_start(arguments):.2f} s" for name, arguments in _STARTS.items()]


def _time_start(arguments: list[str], repeats: int = 5) -> float:
    """Bytecode is kept between starts, as where a package is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


SUITE = Suite(
    "small_pushes",
    "One element pushed and its answer read (W1, text keys, floats, eager): pushes a second of one core",
    tuple(
        Measurement(f"{keys:,} keys", partial(_start, keys), _push_each, sizes=(1_000,), target=2_000)
        for keys in (100, 10_000, 100_000)
    ),
)
