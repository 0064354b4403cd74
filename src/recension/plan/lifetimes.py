"""Ways to alter lifetimes, each with what it does to the properties of a stream.

Rulings D1–D7: a retraction that leaves the output's end where it was is not passed on; a full retraction
always removes; lifetimes that become empty are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from recension.core.errors import TimeError
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.plan.properties import Properties


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
            return _saturate([self.fn(*ends) for ends in zip(vs.tolist(), ve.tolist(), strict=True)], len(vs))
        values = np.empty(len(vs), np.int64)
        finite = ~endless
        if finite.any():
            values[finite] = self.fn(vs[finite], ve[finite])
        if endless.any():
            exact = self.fn(vs[endless].astype(object), ve[endless].astype(object))
            values[endless] = _saturate(exact, int(endless.sum()))
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


def _saturate(values: Any, size: int) -> Ticks:
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


@dataclass(frozen=True)
class Lifetime(ABC):
    """A rule that gives each event a lifetime computed from its own."""

    @abstractmethod
    def derive(self, of: Properties) -> Properties:
        """What holds of the output, given what holds of the input."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Shift(Lifetime):
    """Both ends moved by ``delta``."""

    delta: int

    def derive(self, of: Properties) -> Properties:
        """Everything moves together, CTIs too."""
        return of

    def __str__(self) -> str:
        return f"shift by {self.delta}"


@dataclass(frozen=True)
class SetDuration(Lifetime):
    """The moving window: every event lives for ``duration`` from its start."""

    duration: int

    def __post_init__(self) -> None:
        require_positive(self.duration, "set_duration", "a lifetime")

    def derive(self, of: Properties) -> Properties:
        """Starts stay. Of the retractions only removals remain, and their sync time is the start."""
        return _with_duration(of, self.duration)

    def __str__(self) -> str:
        return f"set duration to {self.duration}"


@dataclass(frozen=True)
class ToPoints(Lifetime):
    """Every event for the one tick at its start."""

    def derive(self, of: Properties) -> Properties:
        """As a moving window of one tick."""
        return _with_duration(of, 1)

    def __str__(self) -> str:
        return "to points"


@dataclass(frozen=True)
class Extend(Lifetime):
    """The end moved by ``delta``, which may be negative."""

    delta: int

    def derive(self, of: Properties) -> Properties:
        """Inserts keep their starts, but a retraction's sync time moves by ``delta`` among inserts that stay.

        So order survives without retractions only. CTIs pass unchanged unless ends move back.
        """
        duration = None if of.constant_duration is None else of.constant_duration + self.delta
        return replace(
            of,
            is_ordered=of.is_perfect,
            has_deterministic_ties=of.has_deterministic_ties and of.is_insert_only,
            constant_duration=duration if duration is not None and duration > 0 else None,
            is_point=duration == 1,
            cti_frequency=of.cti_frequency if of.is_insert_only and self.delta >= 0 else None,
        )

    def __str__(self) -> str:
        return f"extend by {self.delta}"


@dataclass(frozen=True)
class Hop(Lifetime):
    """The start moved back to a multiple of ``hop``, then a life of ``size`` (ruling D6)."""

    size: int
    hop: int

    def __post_init__(self) -> None:
        require_positive(self.size, "hop_lifetime", "a size")
        require_positive(self.hop, "hop_lifetime", "a hop")

    def derive(self, of: Properties) -> Properties:
        """Starts that were different become equal: no longer strict, no longer a key.

        Ties then come in the order of the starts they had, which is fixed only if those came in order.
        """
        return Properties(
            is_insert_only=of.is_insert_only,
            is_ordered=of.is_ordered,
            has_deterministic_ties=of.has_deterministic_ties and of.is_ordered,
            constant_duration=self.size,
        )

    def __str__(self) -> str:
        return f"hop every {self.hop}, live for {self.size}"


@dataclass(frozen=True)
class Inserts(Lifetime):
    """Every event from its start, for ever."""

    def derive(self, of: Properties) -> Properties:
        """As a moving window without end: only removals remain."""
        return replace(of, is_shrink_only=True, constant_duration=None, is_point=False)

    def __str__(self) -> str:
        return "inserts: from the start, for ever"


@dataclass(frozen=True)
class Deletes(Lifetime):
    """Every event from its end, for ever; what never ends gives nothing (ruling D7)."""

    def derive(self, of: Properties) -> Properties:
        """Ends follow starts only where all lifetimes are equally long; every retraction removes."""
        if of.constant_duration is None:
            return Properties(is_insert_only=of.is_insert_only, is_shrink_only=True)
        in_step = of.is_insert_only
        return Properties(
            is_insert_only=of.is_insert_only,
            is_ordered=of.is_ordered and in_step,
            is_strictly_increasing=of.is_strictly_increasing,
            has_deterministic_ties=of.has_deterministic_ties and in_step,
            has_key=of.has_key,
            is_shrink_only=True,
        )

    def __str__(self) -> str:
        return "deletes: from the end, for ever"


@dataclass(frozen=True)
class Custom(Lifetime):
    """The general form: the start and the duration as functions of ``vs`` and ``ve``.

    Without ``start`` events keep theirs, without ``duration`` their length; a duration may be constant.
    """

    start: Moments | None = None
    duration: Moments | Constant | None = None

    def __post_init__(self) -> None:
        if isinstance(self.duration, Constant):
            require_positive(self.duration.ticks, "alter_lifetime", "a duration")

    def derive(self, of: Properties) -> Properties:
        """An insert gives at most one insert. Starts that stay keep their order, as far as inserts go."""
        constant = self.duration.ticks if isinstance(self.duration, Constant) else None
        if self.start is not None:
            return Properties(is_insert_only=of.is_insert_only, constant_duration=constant)
        return Properties(
            is_insert_only=of.is_insert_only,
            is_ordered=of.is_perfect,
            is_strictly_increasing=of.is_strictly_increasing,
            has_deterministic_ties=of.has_deterministic_ties and of.is_insert_only,
            has_key=of.has_key,
            constant_duration=constant,
        )

    def __str__(self) -> str:
        given = (("start", self.start), ("duration", self.duration))
        return "alter " + ", ".join(f"{which} to {rule}" for which, rule in given if rule is not None)


def _with_duration(of: Properties, duration: int) -> Properties:
    return replace(of, is_shrink_only=True, constant_duration=duration, is_point=duration == 1)


def require_positive(ticks: int, verb: str, what: str) -> None:
    """Raise unless the duration is at least one tick."""
    if ticks <= 0:
        raise TimeError(f"{verb}: {what} must be 1 tick or more, not {ticks} ticks")
