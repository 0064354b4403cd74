"""Constants from measurements: what single operations must take for whole extents to take what they took.

An extent is timed while it fills, while it slides (one tuple comes, one goes) and when it is scanned, at a
grid of probabilities. The equations of the cost model are linear in the constants, so that these are the
least squares of the relative errors; no operation takes less than no time.

Source: coalescing rulings 30 and 31.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from recension.core.batch import Mask
from recension.operators.schemes.constants import Constants, Numbers

_NAMES: Final = [field.name for field in fields(Constants)]


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
        arrival, expiry, scan = _eager(timing) if timing.is_eager else _lazy(timing)
        measured = (
            (arrival, timing.filling),
            (arrival | expiry, timing.sliding),
            (scan, timing.scanning),
        )
        rows += [[terms.get(name, 0.0) / took for name in _NAMES] for terms, took in measured if took > 0]
    return np.array(rows)


def _eager(at: Timing) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
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


def _lazy(at: Timing) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
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
        x = _feasible(rows, wanted, free, x)
    return x


def _feasible(rows: Numbers, wanted: Numbers, free: Mask, x: Numbers) -> Numbers:
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
