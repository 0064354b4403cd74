"""The same queries in one process and in workers: W1, W2 and W3 with 1,000 and a million keys.

    python -m benchmarks workers [--events N] [--workers N] [--repeats N]

The default row of the matrix, in 40 steps. Answers are read after each step, or all at the end (then the
session prepares a step while its workers compute the one before). Rates are events per second by the wall
clock, files and the start of workers included. Processor seconds are those of all processes; "work" is
how many more the workers take. Memory is the peak of the session and of all its workers, where memory that
they share since the fork counts in each. Each run is a process of its own; the median counts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks import matrix
from benchmarks.harness import Result
from benchmarks.peers.data import STEPS
from benchmarks.report import machine, save

EVENTS, QUICK, REPEATS = 2_000_000, 100_000, 3
CASES = [(workload, keys) for workload in ("W1", "W2", "W3") for keys in (1_000, 1_000_000)]


def main(arguments: list[str]) -> None:
    """Measure, print one table, save everything as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks workers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        workload, keys, workers, reads = asked.child
        print(json.dumps(_run(workload, int(keys), asked.events, int(workers), reads == "each step")))
        return
    out = Console() if sys.stdout.isatty() else Console(width=matrix.WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    found = _measure(asked.events, asked.workers, asked.repeats, out)
    out.print(f"saved as {save(found, Path('bench-results'))}")


def measured(folder: Path, out: Console, *, quick: bool = False) -> list[Result]:
    """For the table of all benchmarks."""
    return _measure(QUICK if quick else EVENTS, 2, 1 if quick else REPEATS, out)


def _measure(events: int, workers: int, repeats: int, out: Console) -> list[Result]:
    names = ("", "answers read", "1 process, M/s", f"{workers} workers, M/s", "ratio", "processor s", "work")
    table = Table(*names, "peak MB", title=f"{events:,} events in {STEPS} steps, by the wall clock")
    found: list[Result] = []
    for workload, keys in CASES:
        for reads in ("each step", "at the end"):
            one, many = (_repeat(workload, keys, events, n, reads, repeats) for n in (1, workers))
            if one.answer != many.answer:
                raise SystemExit(f"{many.name} found {many.answer}, not {one.answer}")
            rates = [events / _middle(it.seconds) for it in (one, many)]
            spent = [_middle(it.cpu_seconds) for it in (one, many)]
            table.add_row(
                *(f"{workload}, {keys:,} keys", reads, *(f"{rate / 1e6:.2f}" for rate in rates)),
                *(f"{rates[1] / rates[0]:.2f}", " / ".join(f"{s:.2f}" for s in spent)),
                *(f"{spent[1] / spent[0]:.2f}", f"{one.peak_mb:,.0f} / {many.peak_mb:,.0f}"),
            )
            found += [one, many]
    out.print(table)
    return found


def _repeat(workload: str, keys: int, events: int, workers: int, reads: str, repeats: int) -> Result:
    command = [sys.executable, "-m", "benchmarks", "workers", "--events", str(events)]
    command += ["--child", workload, str(keys), str(workers), reads]
    runs = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(repeats)
    ]
    name = f"{workload}, {keys:,} keys, {workers} workers, answers read {reads}"
    print(name, [round(run["seconds"], 2) for run in runs], file=sys.stderr, flush=True)
    seconds, spent = [run["seconds"] for run in runs], [run["cpu_seconds"] for run in runs]
    peak = max(run["peak_mb"] for run in runs)
    return Result("workers", name, events, runs[0]["answer"], seconds, spent, 0.0, peak)


def _middle(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def _run(workload: str, keys: int, events: int, workers: int, reads_each: bool) -> dict[str, Any]:
    """One run; everything is loaded before, as in a program that has made a query already."""
    with tempfile.TemporaryDirectory() as folder:
        size = events // len(matrix.SOURCES[workload])
        data = matrix._load(matrix.DEFAULT, matrix.Column(workload, keys, 0), size, Path(folder))
        rc.session(data.query)
        began, spent = time.perf_counter(), _spent()
        answer = _work(data, workers, reads_each)
        seconds, cpu = time.perf_counter() - began, _spent() - spent
    own, theirs = (resource.getrusage(who).ru_maxrss for who in _BOTH)
    peak = own + (workers * theirs if workers > 1 else 0)
    return {"answer": answer, "seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak / 1024}


_BOTH = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _spent() -> float:
    """Processor seconds of this process and of those that it had and that have ended."""
    used = [resource.getrusage(who) for who in _BOTH]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _work(data: Any, workers: int, reads_each: bool) -> int:
    """The number of answers that stand at the end."""
    seen = dict.fromkeys(data.steps, dt.datetime.min.replace(tzinfo=dt.UTC))
    answers, last_source = 0, list(seen)[-1]
    with rc.session(data.query, history_limit=0, workers=workers) as live:
        for name, rows, last in data.read():
            live.push(name, rows)
            seen[name] = max(seen[name], last)
            live.advance(name, seen[name] - matrix.LATENESS)
            if reads_each and name == last_source:
                answers += matrix._count(live.read())
        live.close()
        return answers + matrix._count(live.read())
