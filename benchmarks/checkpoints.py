"""What storing a shard's state costs in a micro-batch, by how much state is live: it should cost the same.

Run as ``python -m benchmarks.checkpoints [LIVE ...]``, with sizes in live events. It is the work of two
shards without Spark: micro-batches of 10,000 events, two live events a key, as many expire as come, and one
element in ten is a retraction. The shards' engines are in two workers that take turns at random: a visit is a
hit, or a miss, and then the engine first takes over what it missed. Times are processor time.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import recension as rc
from benchmarks.scale import Feed
from recension.runners.local import Session
from recension.runners.spark.stream.chunks import Head, load_since, save

BATCH, BATCHES, LOAD, SHARDS = 10_000, 40, 50_000, 2
SOURCE, OTHER = (rc.source(name, {"k": "int64", "x": "float64"}) for name in ("s", "t"))
QUERIES: Final = {
    "count and sum by key": SOURCE.group_by("k").agg(n=rc.count(), total=rc.sum("x")),
    "distinct": SOURCE.select("k").distinct(),
    "max by key": SOURCE.group_by("k").agg(top=rc.max("x")),
    "cleanse": SOURCE.cleanse(),
    "merge R3": rc.merge(SOURCE, OTHER, case="R3"),
    "merge R4": rc.merge(SOURCE, OTHER, case="R4"),
}


class Bytes(dict[str, bytes]):
    """A store in memory."""

    def put(self, name: str, value: bytes) -> None:
        self[name] = value

    def remove(self, name: str) -> None:
        self.pop(name, None)


@dataclass
class Costs:
    """Milliseconds by stage, and what was written."""

    stages: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    written: list[int] = field(default_factory=list)
    pieces: int = 0
    head: int = 0

    def median(self, stage: str) -> float:
        """The median of a stage, of the visits that had it."""
        return float(np.median(self.stages[stage])) if self.stages[stage] else float("nan")


class Shard:
    """A shard's state, and its engine in each of two workers."""

    def __init__(self, query: rc.Stream) -> None:
        self._workers = [(rc.session(query, history_limit=0), "") for _ in range(2)]
        self._store = Bytes()
        self._head: Head | None = None

    def visit(self, worker: int, rows: pa.Table, cti: int, costs: Costs | None) -> None:
        """One micro-batch in a worker."""
        session, token = self._workers[worker]
        marks = [time.process_time()]
        is_miss = self._head is not None and token != self._head.token
        if self._head is not None and is_miss:
            self._catch_up(session, self._head, token)
        marks.append(time.process_time())
        for source in session.sources:
            session.push(source, rows)
            session.advance(source, cti)
        session.read()
        marks.append(time.process_time())
        self._head, written = save(self._store, session.parts(), self._head, "", 0)
        marks.append(time.process_time())
        self._workers[worker] = session, self._head.token
        if costs is not None:
            load, kernel, store = np.diff(marks) * 1e3
            costs.stages["kernel"].append(kernel)
            costs.stages["store"].append(store)
            costs.stages["take over"] += [load] if is_miss else []
            costs.stages["miss" if is_miss else "hit"].append(load + kernel + store)
            costs.stages["all"].append(load + kernel + store)
            costs.written.append(written)
            costs.pieces, costs.head = len(self._head.pieces), len(self._store["head"])

    def _catch_up(self, session: Session, head: Head, token: str) -> None:
        since = head.version_of(token) or 0
        session.restore_state(load_since(self._store, head, session.parts(), since))


def measure(query: rc.Stream, live: int) -> Costs:
    """Build up the state in one worker, then let both take turns."""
    feed, shards, costs = Feed(live), [Shard(query) for _ in range(SHARDS)], Costs()
    dice = np.random.default_rng(5)
    load = min(LOAD, max(BATCH, live // 4))
    for _ in range(-(-live // load)):
        _spread(shards, [0] * SHARDS, feed.take(load), None)
    for number in range(BATCHES + 10):
        workers = [number % 2] * SHARDS if number < 10 else dice.integers(0, 2, SHARDS).tolist()
        _spread(shards, workers, feed.take(BATCH), costs if number >= 10 else None)
    return costs


def _spread(
    shards: list[Shard], workers: list[int], given: tuple[pa.Table, int], costs: Costs | None
) -> None:
    rows, cti = given
    of = rows["k"].to_numpy() % SHARDS
    for number, shard in enumerate(shards):
        shard.visit(workers[number], rows.filter(pa.array(of == number)), cti, costs)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("live", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--only", default="", help="queries whose name begins with this")
    given = parser.parse_args()
    sizes = given.live
    table = Table(
        "query", "live", "kernel", "store", "take over", "hit", "miss", "max", "KB", "pieces", "ratio"
    )
    for name, query in QUERIES.items():
        if not name.startswith(given.only):
            continue
        first = 0.0
        for live in sizes:
            costs = measure(query, live)
            first = first or costs.median("all")
            stages = [f"{costs.median(s):.1f}" for s in ("kernel", "store", "take over", "hit", "miss")]
            worst, kept = f"{max(costs.stages['all']):.0f}", f"{np.median(costs.written) / 1e3:.0f}"
            ratio = f"{costs.median('all') / first:.2f}"
            table.add_row(name, f"{live:,}", *stages, worst, kept, str(costs.pieces), ratio)
            print(f"{name} {live:,}: {stages} max {worst} ms, {kept} KB, head {costs.head} B, ratio {ratio}")
    Console(width=160).print("a visit of a shard, milliseconds", table)


if __name__ == "__main__":
    main()
