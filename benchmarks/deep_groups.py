"""What a batch of 1,000 changes costs in one group, by how many events are alive in it: always the same.

Run as ``python -m benchmarks.deep_groups [LIVE ...]``, with sizes in live events. Two feeds:

    open      events without an end: in every batch 50 come and 50 of the others end, each at its own time,
              450 short events come and 450 short ones of the batch before are shortened;
    spread    ends all over the future: in every batch 900 of them move by some ticks, and 100 short events
              come.

So a change meets at most 100 end points, however many events are alive. Every batch comes with a CTI. Times
are processor time of one core. The last column is the ratio of a median to that of the first size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import recension as rc

BATCHES, LOAD, TICKS, REACH = 40, 100_000, 50, 10
SOURCE: Final = rc.source("s", {"id": "int64", "x": "float64"})
QUERIES: Final[dict[str, rc.Stream]] = {
    "max": SOURCE.agg(y=rc.max("x")),
    "min, eager": SOURCE.agg(y=rc.min("x"), speculate="eager"),
    "first": SOURCE.agg(y=rc.first("x")),
    "last": SOURCE.agg(y=rc.last("x")),
    "quantile": SOURCE.agg(y=rc.quantile("x", 0.9)),
    "n_unique": SOURCE.agg(y=rc.n_unique("x")),
    "top 3": SOURCE.agg(rc.top_k(3, by="x")),
    "max, tumbling": SOURCE.tumbling(TICKS).agg(y=rc.max("x")),
    "max, hopping": SOURCE.hopping(4 * TICKS, TICKS).agg(y=rc.max("x")),
    "quantile, tumbling": SOURCE.tumbling(TICKS).agg(y=rc.quantile("x", 0.9)),
    "first, tumbling": SOURCE.tumbling(TICKS).agg(y=rc.first("x")),
}
IN_SPREAD: Final = ("max", "min, eager", "quantile")
"""An end that moves changes ties since the start of the event; so order-sensitive queries meet more there."""
Times = npt.NDArray[np.int64]


class Open:
    """Events without an end come and go, and short ones come and are shortened."""

    def __init__(self, live: int) -> None:
        self._rng, self.now = np.random.default_rng(3), live
        self._ids, self._vs, self._x = np.arange(live), np.arange(live), self._rng.random(live)
        self._short: pa.Table | None = None

    def load(self) -> pa.Table:
        """All events that are alive before the first batch."""
        return _rows("insert", self._vs, np.full(len(self._vs), rc.FOREVER), None, self._ids, self._x)

    def take(self) -> tuple[pa.Table, int]:
        """A batch and the CTI after it."""
        rng, at = self._rng, self.now + np.arange(TICKS)
        gone, endless = rng.choice(len(self._vs), TICKS, replace=False), np.full(TICKS, rc.FOREVER)
        parts = [_rows("retract", self._vs[gone], endless, at, self._ids[gone], self._x[gone])]
        self._ids[gone], self._vs[gone], self._x[gone] = at, at, rng.random(TICKS)
        parts.append(_rows("insert", at, endless, None, at, self._x[gone]))
        if self._short is not None:
            vs, ve = (self._short[name].to_numpy() for name in ("_vs", "_ve"))
            parts.append(_rows("retract", vs, ve, ve - 1, self._short["id"], self._short["x"]))
        vs = np.repeat(at, 9)
        self._short = _rows("insert", vs, vs + 4, None, np.arange(len(vs)), rng.random(len(vs)))
        self.now += TICKS
        return pa.concat_tables([*parts, self._short]), self.now - TICKS


class Spread:
    """Events whose ends are all over the future, and move a little."""

    def __init__(self, live: int) -> None:
        self._rng, self.now = np.random.default_rng(3), live
        self._vs, self._x = np.arange(live), self._rng.random(live)
        self._ve = live + 10 * REACH * TICKS + self._rng.integers(0, 2 * live, live)

    def load(self) -> pa.Table:
        """All events that are alive before the first batch."""
        return _rows("insert", self._vs, self._ve, None, self._vs, self._x)

    def take(self) -> tuple[pa.Table, int]:
        """A batch and the CTI after it."""
        rng, size = self._rng, 900
        moved = rng.choice(np.flatnonzero(self._ve > self.now + 2 * REACH), size, replace=False)
        old = self._ve[moved]
        new = old + rng.integers(1, REACH, size) * rng.choice([-1, 1], size)
        out = _rows("retract", self._vs[moved], old, new, moved, self._x[moved])
        self._ve[moved] = new
        vs = self.now + rng.integers(0, len(self._vs), 100)
        fresh = _rows("insert", vs, vs + REACH, None, -vs, rng.random(100))
        self.now += REACH
        return pa.concat_tables([out, fresh]), self.now - REACH


FEEDS: Final[dict[str, Callable[[int], Open | Spread]]] = {"open": Open, "spread": Spread}


def _rows(kind: str, vs: Times, ve: Times, new_ve: Times | None, ids: object, x: object) -> pa.Table:
    ends = pa.nulls(len(vs), pa.int64()) if new_ve is None else pa.array(new_ve)
    kinds = pa.array([kind] * len(vs))
    return pa.table({"_kind": kinds, "_vs": vs, "_ve": ve, "_new_ve": ends, "id": ids, "x": x})


def measure(query: rc.Stream, feed: Open | Spread, batches: int = BATCHES) -> list[float]:
    """Load the events and time batches, in milliseconds."""
    session, loaded, start = rc.session(query, history_limit=0), feed.load(), feed.now
    for at in range(0, len(loaded), LOAD):
        session.push("s", loaded.slice(at, LOAD))
        session.advance("s", min(at + LOAD, start))
        session.read()

    def step() -> float:
        rows, cti = feed.take()
        began = time.process_time()
        session.push("s", rows)
        session.advance("s", cti)
        session.read()
        return 1e3 * (time.process_time() - began)

    for _ in range(max(1, batches // 8)):
        step()
    return [step() for _ in range(batches)]


def main() -> None:
    """Print a row for every query, feed and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deep_groups", description=__doc__)
    parser.add_argument("live", nargs="*", type=int, default=[10_000, 100_000, 1_000_000], metavar="LIVE")
    parser.add_argument("--only", default="", metavar="QUERY", help="only queries with this in their name")
    parser.add_argument("--batches", type=int, default=BATCHES)
    asked = parser.parse_args()
    table = Table("query", "feed", "live events", "median, ms", "most, ms", "ratio")
    for name, query in QUERIES.items():
        for feed in [feed for feed in FEEDS if feed == "open" or name in IN_SPREAD]:
            first: float | None = None
            for live in asked.live if asked.only in name else []:
                spent = measure(query, FEEDS[feed](live), asked.batches)
                median = float(np.median(spent))
                first = first or median
                figures = map("{:.1f}".format, (median, max(spent), median / first))
                table.add_row(name, feed, f"{live:,}", *figures)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
