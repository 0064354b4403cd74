"""Measures what window extents cost on this machine, so that schemes are chosen by its own costs.

The extents are those that queries run on: the lazy one that queries share, and eager ones. Each is timed
while it fills, while it slides (one tuple comes, one goes) and at a scan, for a grid of probabilities; only
processor time counts. The readings are made to coalesce and to come late with those probabilities.

The equations of the cost model are linear in the constants. So the constants are the least squares of the
relative errors, none of them below zero.

Source: temporal coalescing §7.1 and §7.3; coalescing rulings 30 and 31, section 9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, inserts
from recension.core.ticks import Ticks
from recension.operators.base import Operator
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.sharing import Keeper, LazyReader, Owner
from recension.operators.extents.windows import RangeWindow
from recension.operators.schemes.constants import Constants, Numbers

GRID: Final = (0.05, 0.35, 0.65, 0.95)
_READINGS: Final = pa.schema([(name, pa.int64()) for name in ("g", "v", "w", "x")])
_ANSWERS: Final = pa.schema([(name, pa.int64()) for name in ("g", "v", "valid_start", "valid_end")])
_QUERY: Final = CoalescingQuery(["g"], ["v"])
_GROUPS: Final = 4
_NANO: Final = 1e9
_NAMES: Final = [field.name for field in fields(Constants)]


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
    """Measure; ``notify`` is called with the part that is done."""
    effort, found = effort or Effort(), []
    cases = [(is_eager, cp, oop) for cp in GRID for oop in GRID for is_eager in (True, False)]
    for done, (is_eager, cp, oop) in enumerate(cases):
        runs = [_time_extent(is_eager, cp, oop, effort, seed) for seed in range(effort.repeats)]
        least = (min(run[part] for run in runs) for part in range(3))
        found.append(Timing(is_eager, cp, oop, effort.held, *least))
        if notify is not None:
            notify((done + 1) / len(cases))
    constants = fit(found)
    return Calibration(constants, error(found, constants), tuple(found))


def _time_extent(
    is_eager: bool, cp: float, oop: float, effort: Effort, seed: int
) -> tuple[float, float, float]:
    """Nanoseconds a reading: while filling, while sliding, and at a scan of a full window."""
    # The one slide there is comes when two windows have passed.
    window = RangeWindow(effort.held, 4 * effort.held)
    batches = list(_batches(cp, oop, effort, seed))
    half = len(batches) // 2
    update, scan = _extent(is_eager, window)
    filling = _measure(lambda: [update.on_batch(0, batch) for batch in batches[:half]])
    sliding = _measure(lambda: _slide(update, batches[half:], effort.held))
    scanning = _measure(lambda: scan(4 * effort.held + 1))
    arrived = sum(map(len, batches)) / 2
    return filling / arrived, sliding / arrived, scanning / effort.held


def _extent(is_eager: bool, window: RangeWindow) -> tuple[Operator, Callable[[int], object]]:
    """What takes readings in, and what is asked for an answer at a time."""
    if is_eager:
        owner = Owner(_ANSWERS, _READINGS, _QUERY, window)
        return owner, lambda t: owner.on_cti(0, t)
    keeper, reader = Keeper(_READINGS, window), LazyReader(_ANSWERS, _QUERY, window)
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


def _measure(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * _NANO


@dataclass(frozen=True, slots=True)
class Timing:
    """What an extent took at some probabilities: for a tuple that comes while it fills, or while it slides.

    And for a scan, divided by the tuples held, whatever the scheme.
    """

    is_eager: bool
    cp: float
    oop: float
    held: int
    filling: float
    sliding: float
    scanning: float


def fit(timings: Sequence[Timing]) -> Constants:
    """The constants that explain the timings best."""
    rows = _rows(timings)
    found = least_squares(rows, np.ones(len(rows)))
    return Constants(**dict(zip(_NAMES, found.tolist(), strict=True)))


def error(timings: Sequence[Timing], constants: Constants) -> float:
    """How far timings are from what constants explain, as a part of them, on average."""
    known = np.array([getattr(constants, name) for name in _NAMES])
    return float(np.abs(_rows(timings) @ known - 1).mean())


def _rows(timings: Sequence[Timing]) -> Numbers:
    """For every time measured how often each operation is in it, divided by the time."""
    rows = []
    for timing in timings:
        arrival, expiry, scan = _eager_terms(timing) if timing.is_eager else _lazy_terms(timing)
        measured = (
            (arrival, timing.filling),
            (arrival | expiry, timing.sliding),
            (scan, timing.scanning),
        )
        rows += [[terms.get(name, 0.0) / took for name in _NAMES] for terms, took in measured if took > 0]
    return np.array(rows)


def _eager_terms(at: Timing) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """How often each operation is done for a tuple that comes, one that goes, and one held in a scan."""
    apart, least = 1 - at.cp, max(at.cp, 1 / at.held)
    arrival = {
        "insert": apart,
        "merge": at.cp,
        "merge_late": at.oop * at.cp**2,
        "split": at.oop * apart,
        "split_late": at.oop**2 * apart / least,
    }
    return arrival, {"detach": at.cp, "delete": apart}, {"read": apart, "stamp": at.cp}


def _lazy_terms(at: Timing) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    return {"lazy_insert": 1.0, "find": at.oop}, {"lazy_delete": 1.0}, {"read": 1.0, "coalesce": at.cp}


def least_squares(rows: Numbers, wanted: Numbers) -> Numbers:
    """The x of no negative number with ``rows @ x`` nearest to ``wanted`` (Lawson and Hanson's method)."""
    size = rows.shape[1]
    free, x = np.zeros(size, np.bool_), np.zeros(size)
    for _ in range(3 * size):
        pull = np.where(free, -np.inf, rows.T @ (wanted - rows @ x))
        if free.all() or pull.max() <= 1e-9:
            break
        free[int(pull.argmax())] = True
        x = _solve_feasibly(rows, wanted, free, x)
    return x


def _solve_feasibly(rows: Numbers, wanted: Numbers, free: Mask, x: Numbers) -> Numbers:
    """The best with these numbers free, going only as far as none becomes negative, and fixing those at 0."""
    while True:
        best = np.zeros(len(x))
        best[free] = np.linalg.lstsq(rows[:, free], wanted, rcond=None)[0]
        falling = free & (best <= 0)
        if not falling.any():
            return best
        step = float((x[falling] / (x[falling] - best[falling])).min())
        x = x + step * (best - x)
        free &= x > 1e-15
        x = np.where(free, x, 0.0)


class GeneratedReadings(NamedTuple):
    """In the order of arrival: when, of which group, and what."""

    times: Ticks
    groups: Index
    values: Index


def readings(
    size: int, cp: float, oop: float, groups: int = 1, block: int = 64, seed: int = 0
) -> GeneratedReadings:
    """Groups take turns; a reading is as the one before it in its group with probability ``cp``.

    Time goes in blocks of so many readings of each group. Late readings of a block come after all others of
    it, in any order; the last reading of each group in a block is never late, so that late ones are.
    """
    rnd, span = np.random.default_rng(seed), block * groups
    times = np.arange(size, dtype=np.int64)
    group = times % groups
    change = (rnd.random(size) >= cp).astype(np.int64)
    values = np.empty(size, np.int64)
    for each in range(groups):
        values[each::groups] = np.cumsum(change[each::groups])
    place = times % span
    late = (rnd.random(size) < oop) & (place < span - groups)
    arrival = times // span * (2 * span) + np.where(late, span + rnd.permutation(size) % span, place)
    order = np.argsort(arrival, kind="stable")
    return GeneratedReadings(times[order], group[order], values[order])
