"""What a batch of 1,000 events with random keys costs, by how much state is live: it should cost the same.

Run as ``python -m benchmarks.scale [LIVE ...]``, with sizes in live events. There
are two live events a key.
Every batch comes with a CTI, as many events expire as come, and one element in ten is a retraction. Times
are processor time of one core. Where a window ends for all groups at once, a batch puts out a row for each of
them: the cost of a batch is therefore also given by what goes in and out. The last column is the ratio of a
median to that of the first size.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import recension as rc

BATCH, BATCHES, LOAD = 1_000, 200, 50_000
COLUMNS: Final = {"k": "int64", "x": "float64"}
SOURCE, OTHER = rc.source("s", COLUMNS), rc.source("t", COLUMNS)
TEXTS: Final = rc.source("s", COLUMNS | {"k": "string"})
AS_TEXTS: Final = "text keys and timestamps"
QUERIES: Final[dict[str, Callable[[int], rc.Stream]]] = {
    "count and sum by key": lambda _: SOURCE.group_by("k").agg(n=rc.count(), total=rc.sum("x")),
    "the same, eager": lambda _: SOURCE.group_by("k").agg(n=rc.count(), t=rc.sum("x"), speculate="eager"),
    f"the same, {AS_TEXTS}": lambda _: TEXTS.group_by("k").agg(n=rc.count(), total=rc.sum("x")),
    "max by key": lambda _: SOURCE.group_by("k").agg(top=rc.max("x")),
    "tumbling, eager": lambda live: (
        SOURCE.group_by("k").tumbling(live // 4).agg(n=rc.count(), t=rc.sum("x"), speculate="eager")
    ),
    "tumbling": lambda live: SOURCE.group_by("k").tumbling(live // 4).agg(n=rc.count(), t=rc.sum("x")),
    "hopping, eager": lambda live: (
        SOURCE.group_by("k").hopping(live // 4, live // 8).agg(n=rc.count(), speculate="eager")
    ),
    "hopping": lambda live: SOURCE.group_by("k").hopping(live // 4, live // 8).agg(n=rc.count()),
    "distinct": lambda _: SOURCE.select("k").distinct(),
    "edges": lambda _: SOURCE.edges(group_by="k"),
    "coalesce": lambda _: SOURCE.coalesce(on="k"),
    "join": lambda _: SOURCE.join(OTHER, on="k"),
    "merge, R3": lambda _: rc.merge(SOURCE, OTHER, case="R3"),
}


@dataclass(frozen=True)
class Cost:
    """Events a second while state is built up; of batches after that milliseconds and elements out."""

    intake: float
    batches: list[float]
    out: list[int]

    def percentile(self, share: float) -> float:
        """The time that so many in a hundred batches take at most."""
        return float(np.percentile(self.batches, share))

    def most_for_elements(self) -> float:
        """The most that a batch takes for each 1,000 elements that go in or out."""
        return max(1e3 * ms / (BATCH + out) for ms, out in zip(self.batches, self.out, strict=True))


class Feed:
    """An event a tick, which lives for ``live`` ticks; every tenth one is cut short when it is half over."""

    def __init__(self, live: int) -> None:
        self._live, self._rng, self._now = live, np.random.default_rng(3), 0
        self._seen: deque[pa.Table] = deque()

    def take(self, size: int) -> tuple[pa.Table, int]:
        """The next events, with retractions of earlier ones; and the CTI that follows."""
        vs = np.arange(self._now, self._now + size)
        key, x = self._rng.integers(0, max(1, self._live // 2), size), self._rng.random(size)
        fresh = _rows("insert", vs, vs + self._live, None, key, x)
        self._seen.append(fresh.take(np.arange(0, size, 10)))
        self._now += size
        return pa.concat_tables([fresh, *self._due()]), self._now - size

    def _due(self) -> list[pa.Table]:
        """Retractions of remembered events that have reached half of their age: they end now."""
        due = []
        while self._seen:
            first = self._seen.popleft()
            vs, ve = (first[name].to_numpy() for name in ("_vs", "_ve"))
            count = int(np.searchsorted(vs + self._live // 2, self._now))
            old = first.slice(0, count)
            ends = np.full(count, self._now)
            due.append(_rows("retract", vs[:count], ve[:count], ends, old["k"], old["x"]))
            if count < len(vs):
                self._seen.appendleft(first.slice(count))
                break
        return due


def _rows(kind: str, vs: object, ve: object, new_ve: object, key: object, x: object) -> pa.Table:
    size = len(pa.array(vs))
    ends = pa.nulls(size, pa.int64()) if new_ve is None else pa.array(new_ve)
    kinds = pa.array([kind] * size, pa.string())
    return pa.table({"_kind": kinds, "_vs": vs, "_ve": ve, "_new_ve": ends, "k": key, "x": x})


def _with_texts(rows: pa.Table) -> pa.Table:
    """The same with text keys, and microseconds as ticks."""
    kinds = dict.fromkeys(("_vs", "_ve", "_new_ve"), pa.timestamp("us", "UTC")) | {"k": pa.string()}
    return rows.cast(pa.schema([(name, kinds.get(name, rows[name].type)) for name in rows.column_names]))


def measure(query: rc.Stream, live: int, batches: int = BATCHES, *, has_texts: bool = False) -> Cost:
    """Build the state up, let it turn over for a while, and time batches; all sources get the same."""
    session, feed = rc.session(query, history_limit=0), Feed(live)

    def step(size: int) -> tuple[float, int]:
        rows, cti = feed.take(size)
        rows = _with_texts(rows) if has_texts else rows
        t = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=cti) if has_texts else cti
        began = time.process_time()
        for source in session.sources:
            session.push(source, rows)
            session.advance(source, t)
        answer = session.read()
        return 1e3 * (time.process_time() - began), sum(map(len, answer.batches))

    load = min(LOAD, max(BATCH, live // 4))
    spent = sum(step(load)[0] for _ in range(-(-live // load)))
    for _ in range(batches // 4):
        step(BATCH)
    timed = [step(BATCH) for _ in range(batches)]
    return Cost(1e3 * -(-live // load) * load / spent, [ms for ms, _ in timed], [out for _, out in timed])


def main() -> None:
    """Print a row for every query and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("live", nargs="*", type=int, default=[100_000, 1_600_000], metavar="LIVE")
    parser.add_argument("--query", action="append", choices=list(QUERIES), help="only this one (repeatable)")
    parser.add_argument("--batches", type=int, default=BATCHES, help="how many are timed")
    asked, out = parser.parse_args(), Console(width=150)
    times = "median, ms", "99 %, ms", "most, ms", "most for 1,000 in and out"
    table = Table("query", "live events", "taken in, M/s", *times, "most rows out", "ratio")
    for name in asked.query or QUERIES:
        first: float | None = None
        for live in asked.live:
            cost = measure(QUERIES[name](live), live, asked.batches, has_texts=AS_TEXTS in name)
            median = cost.percentile(50)
            first = first or median
            figures = median, cost.percentile(99), max(cost.batches), cost.most_for_elements()
            texts = [f"{cost.intake / 1e6:.2f}", *map("{:.1f}".format, figures), f"{max(cost.out):,}"]
            table.add_row(name, f"{live:,}", *texts, f"{median / first:.1f}")
    out.print(table)


if __name__ == "__main__":
    main()
