"""Ways to alter lifetimes: where the output starts and ends, and how far a CTI carries.

A CTI ``t`` may pass as ``start(t)`` (ruling D5) only if a change of the input's end to or from ``x``
changes the output at or above ``start(x)`` or not at all (ruling D4); each rule says why it does.
All arithmetic saturates (ruling A7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from recension.core.errors import TimeError
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add, floor

# Of vs and ve; a single number stands for as many equal ones.
Moments: TypeAlias = Callable[[Ticks, Ticks], Any]


@dataclass(frozen=True)
class Lifetime(ABC):
    """Output starts and ends as functions of input starts and ends; an end not after the start is "never"."""

    keeps_retractions: ClassVar[bool] = False
    """Does a retraction become a retraction or nothing, never an insert?"""
    may_leave_time: ClassVar[bool] = False
    """Is "never" what lies beyond the ends of time, and nothing else?"""

    @abstractmethod
    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        """Where the output starts."""

    @abstractmethod
    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        """Where it ends."""

    def cti(self, t: int) -> int | None:
        """The output CTI that a CTI at ``t`` allows; None: none yet."""
        at = np.array([t], np.int64)
        return int(self.start(at, at)[0])

    def feedback(self, t: int) -> int | None:
        """Some ``f`` such that an input that ends before ``f`` gives an output that ends before ``t``."""
        return None


@dataclass(frozen=True)
class Shift(Lifetime):
    """Both ends moved by ``delta``. D4: an end ``x`` becomes ``x + delta``, which is ``start(x)`` itself."""

    delta: int

    keeps_retractions = True
    may_leave_time = True

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return add(vs, self.delta)

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return add(ve, self.delta)

    def feedback(self, t: int) -> int | None:
        return _subtract(t, self.delta)


@dataclass(frozen=True)
class SetDuration(Lifetime):
    """A life of ``duration`` from the start. D4: the input's end does not matter."""

    duration: int

    keeps_retractions = True

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return vs

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return add(vs, self.duration)

    def feedback(self, t: int) -> int | None:
        """What ends before ``t - duration`` has started before it."""
        return _subtract(t, self.duration)


class ToPoints(SetDuration):
    """A life of one tick, as `SetDuration`."""

    def __init__(self) -> None:
        super().__init__(1)


class Inserts(SetDuration):
    """From the start for ever, as `SetDuration`: only removals matter."""

    def __init__(self) -> None:
        super().__init__(FOREVER)


@dataclass(frozen=True)
class Deletes(Lifetime):
    """From the end for ever; what never ends gives nothing (ruling D7).

    D4: an end that moves from ``x`` to ``y`` removes an event starting at ``x`` and adds one at ``y``.
    """

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return ve

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return np.full(len(ve), FOREVER)


@dataclass(frozen=True)
class Extend(Lifetime):
    """The end moved by ``delta``. D4: ``x + delta`` is at or above ``x``, unless ends move back.

    Then an end ``x`` changes the output at ``max(vs, x + delta)``, so that a CTI is moved back with the ends.
    """

    delta: int

    @property
    def keeps_retractions(self) -> bool:  # type: ignore[override]
        return self.delta >= 0

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return vs

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return add(ve, self.delta)

    def cti(self, t: int) -> int | None:
        return int(add(np.array([t], np.int64), min(self.delta, 0))[0])

    def feedback(self, t: int) -> int | None:
        return _subtract(t, self.delta)


@dataclass(frozen=True)
class Hop(Lifetime):
    """The start moved back to a multiple of ``hop``, then a life of ``size`` (ruling D6).

    D4: the input's end does not matter, and flooring never reverses two starts.
    """

    size: int
    hop: int

    keeps_retractions = True

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return floor(vs, self.hop)

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return add(floor(vs, self.hop), self.size)


@dataclass(frozen=True)
class Custom(Lifetime):
    """Start and duration by functions of the arrays ``vs`` and ``ve``; without them both stay as they are.

    D4 cannot be seen from a function, so CTIs are held until the end of time.
    """

    given_start: Moments | None = None
    given_duration: Moments | None = None

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return vs if self.given_start is None else _ticks(self.given_start(vs, ve), len(vs))

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        given = _length(vs, ve) if self.given_duration is None else self.given_duration(vs, ve)
        return add(self.start(vs, ve), _ticks(given, len(vs)))

    def cti(self, t: int) -> int | None:
        return None


def _subtract(t: int, delta: int) -> int:
    """``t - delta``, saturated."""
    return max(BEGINNING, min(FOREVER, t - delta))


def _length(vs: Ticks, ve: Ticks) -> Ticks:
    """``ve - vs``, saturated; an event that never ends is endless whatever its start."""
    length = ve - vs
    return np.where((length < 0) | (ve == FOREVER), np.int64(FOREVER), length)


def _ticks(given: Any, size: int) -> Ticks:
    found = np.asarray(given)
    if found.dtype.kind not in "iu" or found.shape not in ((), (size,)):
        raise TimeError(
            f"a function of lifetimes gave {found.dtype}{list(found.shape)}, not {size} int64 ticks"
        )
    return np.broadcast_to(found.astype(np.int64), size)
