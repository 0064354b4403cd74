"""Real runs of the study: what extents hold, and what it takes to update and to scan them.

200,000 readings, one a tick, with three time-varying and three grouping attributes (3, 5 and 7 groups) of
four bytes each, go through an eager extent of one query, or the lazy one that queries share, with all
attributes. A window holds so many ticks and so many readings. Memory is the most that is held after any
batch; only processor time counts.

Source      Temporal Coalescing on Window Extents, §7.1 and §7.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.coalescing import GROUPS, SCHEMA, VALUES
from recension.core.batch import EventBatch, inserts
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.sharing import Keeper, LazyReader, Owner
from recension.operators.extents.windows import RangeWindow

_INTERVAL: Final = [pa.field(name, pa.int64()) for name in ("valid_start", "valid_end")]
_NEVER: Final = 1 << 40
_LATENESS: Final = 200

QUERIES: Final = tuple(
    CoalescingQuery(group_by, on)
    for on, group_by in (
        (("h",), ("ep",)),
        (("t",), ("md",)),
        (("v",), ("lt",)),
        (("h", "t"), ("ep", "md")),
        (("t", "v"), ("md", "lt")),
        (("h", "t", "v"), ("ep", "md", "lt")),
    )
)
"""Q1 to Q6 of §7.3."""


@dataclass(frozen=True)
class Effort:
    """How many readings, how many of them in a window and a batch, and the steps of probabilities."""

    size: int = 200_000
    window: int = 10_000
    steps: int = 11

    @property
    def probabilities(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """From 0 to 1."""
        return np.linspace(0, 1, self.steps)


FULL: Final = Effort()
QUICK: Final = Effort(size=6_000, window=1_000, steps=3)


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes held, nanoseconds to take a reading in and let one go, and nanoseconds a reading to scan."""

    memory: float
    update: float
    scan: float


@cache
def measured(effort: Effort, number: int, cp: float, oop: float, *, is_eager: bool) -> Cost:
    """A run of query ``number``, whose readings coalesce with probability ``cp``."""
    query, updating, scans, most = QUERIES[number], 0.0, [], 0
    never = RangeWindow(effort.window, _NEVER)
    extent = _owner(query, never) if is_eager else Keeper(SCHEMA, never)
    for batch in _batches(effort, query, cp, oop):
        held_from = int(batch.vs.max()) - effort.window

        def update(batch: EventBatch = batch, held_from: int = held_from) -> None:
            extent.on_batch(0, batch)
            extent.on_cti(0, held_from)

        updating += _took(update)
        most = max(most, extent.state_bytes())
        scans.append(_scan(extent, query, effort) / extent.state_rows())
    return Cost(most, updating / effort.size, float(np.median(scans)))


def _owner(query: CoalescingQuery, window: RangeWindow) -> Owner:
    answers = pa.schema([*(SCHEMA.field(name) for name in query.columns), *_INTERVAL])
    return Owner(answers, SCHEMA, query, window)


def _scan(extent: Owner | Keeper, query: CoalescingQuery, effort: Effort) -> float:
    """The answer of one slide, from a copy, which is due now."""
    now, window = extent.watermark + 1, RangeWindow(effort.window, 1)
    if isinstance(extent, Owner):
        owner = _owner(query, window)
        owner.restore(extent.snapshot())
        return _took(lambda: owner.on_cti(0, now))
    keeper, reader = Keeper(SCHEMA, window), LazyReader(_owner(query, window).schema, query, window)
    keeper.restore(extent.snapshot())
    return _took(lambda: reader.show(keeper.view_at(now)))


def _took(work: Callable[[], object]) -> float:
    started = time.process_time_ns()
    work()
    return float(time.process_time_ns() - started)


def _batches(effort: Effort, query: CoalescingQuery, cp: float, oop: float) -> list[EventBatch]:
    """In order of arrival; the query's attributes change together, with probability 1 - cp, in each group."""
    size, random = effort.size, np.random.default_rng(8)
    groups = {name: random.integers(0, count, size).astype(np.int32) for name, count in GROUPS.items()}
    group = np.zeros(size, np.int64)
    for name in query.group_by:
        group = group * GROUPS[name] + groups[name]
    by_group = np.argsort(group, kind="stable")
    value = np.empty(size, np.int32)
    value[by_group] = np.cumsum(random.random(size) >= cp)
    others = {name: random.integers(0, 1000, size).astype(np.int32) for name in VALUES}
    columns = {**groups, **others, **dict.fromkeys(query.on, value)}
    late = np.where(random.random(size) < oop, random.integers(1, _LATENESS, size), 0)
    order = np.argsort(np.arange(size) + late, kind="stable")
    payload = pa.record_batch([pa.array(columns[name][order]) for name in SCHEMA.names], schema=SCHEMA)
    whole = inserts(order + 1, order + 2, payload)
    return [whole.slice(at, min(at + effort.window, size)) for at in range(0, size, effort.window)]
