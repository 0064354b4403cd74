"""Users' functions of lifetimes, called with arrays whatever they were written for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from recension.core.errors import TimeError
from recension.core.ticks import BEGINNING, FOREVER, Ticks


@dataclass(frozen=True)
class Moments:
    """A function of ``vs`` and ``ve`` that gives one number for each event.

    Both ends of time are computed as Python integers, so that arithmetic on them saturates (ruling A7).
    """

    fn: Callable[[Any, Any], Any]
    per_event: bool = False

    def __call__(self, vs: Ticks, ve: Ticks) -> Ticks:
        """The function's values, one for each event."""
        endless = (ve == FOREVER) | (vs == BEGINNING)
        if self.per_event:
            return _saturated(
                [self.fn(*ends) for ends in zip(vs.tolist(), ve.tolist(), strict=True)], len(vs)
            )
        values = np.empty(len(vs), np.int64)
        finite = ~endless
        if finite.any():
            values[finite] = self.fn(vs[finite], ve[finite])
        if endless.any():
            exact = self.fn(vs[endless].astype(object), ve[endless].astype(object))
            values[endless] = _saturated(exact, int(endless.sum()))
        return values

    def __str__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)


@dataclass(frozen=True)
class Constant:
    """The same number of ticks for every event."""

    ticks: int

    def __call__(self, vs: Ticks, ve: Ticks) -> Ticks:
        """One number for each event."""
        return np.full(len(vs), self.ticks, np.int64)

    def __str__(self) -> str:
        return str(self.ticks)


def _saturated(values: Any, size: int) -> Ticks:
    exact = np.broadcast_to(np.asarray(values, object), (size,))
    return np.array([max(BEGINNING, min(int(value), FOREVER)) for value in exact], np.int64)


def moments(fn: Callable[[Any, Any], Any], which: Literal["start", "duration"]) -> Moments:
    """The function, tried out: on arrays if it can take them, else event by event.

    >>> import numpy as np
    >>> shorter = moments(lambda vs, ve: min(ve - vs, 5), "duration")
    >>> shorter.per_event, shorter(np.array([0, 7]), np.array([3, FOREVER]))
    (True, array([3, 5]))
    """
    if not callable(fn):
        raise TimeError(f"alter_lifetime: {which} is a function of vs and ve, not {fn!r}")
    for candidate in (Moments(fn), Moments(fn, per_event=True)):
        if _fits(candidate):
            return candidate
    raise TimeError(f"alter_lifetime: {which} must give a whole number for any vs and ve, such as 3 and 5")


def _fits(candidate: Moments) -> bool:
    """Does it give whole numbers on a sample, and on arrays the same as event by event?"""
    vs, ve = np.array([3, 10]), np.array([5, 20])
    try:
        sample = np.asarray([candidate.fn(3, 5), candidate.fn(10, 20)])
    except (TypeError, ValueError, AttributeError):
        sample = None  # It may be written for arrays only.
    try:
        given = sample if candidate.per_event else np.broadcast_to(np.asarray(candidate.fn(vs, ve)), (2,))
    except (TypeError, ValueError, AttributeError):
        return False
    if given is None or given.dtype.kind not in "iu":
        return False
    return sample is None or given.tolist() == sample.tolist()
