"""Measures what window extents take on this machine, so that schemes are chosen by its own costs.

The extents are those that queries run on: the lazy one that queries share, and eager ones. Each is timed
while it fills, while it slides, and at a scan, for a grid of probabilities; only processor time counts.

Source: temporal coalescing §7.3; coalescing ruling 31.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, inserts
from recension.operators.base import Operator
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.sharing import Keeper, Owner, Reader
from recension.operators.extents.windows import RangeWindow
from recension.operators.schemes.constants import Constants
from recension.operators.schemes.fitting import Timing, error, fit
from recension.operators.schemes.sample import readings

GRID: Final = (0.05, 0.35, 0.65, 0.95)
_READINGS: Final = pa.schema([(name, pa.int64()) for name in ("g", "v", "w", "x")])
_ANSWERS: Final = pa.schema([(name, pa.int64()) for name in ("g", "v", "valid_start", "valid_end")])
_QUERY: Final = CoalescingQuery(["g"], ["v"])
_GROUPS: Final = 4
_NANO: Final = 1e9


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: readings in a window and in a batch, and how often; the least time counts."""

    held: int = 4096
    batch: int = 512
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants, and how far on average the timings are from what these explain."""

    constants: Constants
    error: float
    timings: tuple[Timing, ...]


def calibrate(effort: Effort | None = None, notify: Callable[[float], None] | None = None) -> Calibration:
    """Measure; ``notify`` is told how much of it is done."""
    effort, found = effort or Effort(), []
    cases = [(is_eager, cp, oop) for cp in GRID for oop in GRID for is_eager in (True, False)]
    for done, (is_eager, cp, oop) in enumerate(cases):
        runs = [_timed(is_eager, cp, oop, effort, seed) for seed in range(effort.repeats)]
        least = (min(run[part] for run in runs) for part in range(3))
        found.append(Timing(is_eager, cp, oop, effort.held, *least))
        if notify is not None:
            notify((done + 1) / len(cases))
    constants = fit(found)
    return Calibration(constants, error(found, constants), tuple(found))


def _timed(is_eager: bool, cp: float, oop: float, effort: Effort, seed: int) -> tuple[float, float, float]:
    """Nanoseconds a reading: while filling, while sliding, and at a scan of a full window."""
    # The one slide there is comes when two windows have passed.
    window = RangeWindow(effort.held, 4 * effort.held)
    batches = list(_batches(cp, oop, effort, seed))
    half = len(batches) // 2
    update, scan = _extent(is_eager, window)
    filling = _took(lambda: [update.on_batch(0, batch) for batch in batches[:half]])
    sliding = _took(lambda: _slide(update, batches[half:], effort.held))
    scanning = _took(lambda: scan(4 * effort.held + 1))
    arrived = sum(map(len, batches)) / 2
    return filling / arrived, sliding / arrived, scanning / effort.held


def _extent(is_eager: bool, window: RangeWindow) -> tuple[Operator, Callable[[int], object]]:
    """What takes readings in, and what is asked for an answer at a time."""
    if is_eager:
        owner = Owner(_ANSWERS, _READINGS, _QUERY, window)
        return owner, lambda t: owner.on_cti(0, t)
    keeper, reader = Keeper(_READINGS, window), Reader(_ANSWERS, _QUERY, window)
    return keeper, lambda t: reader.show(keeper.view_at(t))


def _slide(update: Operator, batches: Iterable[EventBatch], held: int) -> None:
    for batch in batches:
        update.on_batch(0, batch)
        update.on_cti(0, int(batch.vs.max()) - held)


def _batches(cp: float, oop: float, effort: Effort, seed: int) -> Iterator[EventBatch]:
    """Two windows of readings, the last of them right before the slide at four windows' length."""
    times, groups, values = readings(2 * effort.held, cp, oop, _GROUPS, seed=seed)
    times = times + 2 * effort.held + 1
    columns = (groups, values, np.arange(len(times)), groups * values)
    payload = pa.record_batch([pa.array(column) for column in columns], schema=_READINGS)
    for start in range(0, len(times), effort.batch):
        part = slice(start, start + effort.batch)
        yield inserts(times[part], times[part] + 1, payload.slice(start, effort.batch))


def _took(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * _NANO
