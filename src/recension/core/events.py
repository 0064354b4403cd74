"""Events as people and tests write them: one small frozen value per stream element.

Times may be ticks, datetimes, dates, ISO text, or times of pandas and NumPy. They are kept as ticks that know
how they were written (`Instant`). Engines never build these; they work on
:class:`~recension.core.batch.EventBatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import index
from typing import Any, TypeAlias

import numpy as np

from recension.core.errors import StreamError, TimeError
from recension.core.ticks import BEGINNING, FOREVER, TimeLike, instant
from recension.core.time_kind import (
    Instant,
    TimeKind,
    describe_time,
    describe_time_in_message,
    kind_of,
    merge_kinds,
)

Payload: TypeAlias = Mapping[str, Any]

_set = object.__setattr__  # elements are frozen, also for the functions that make them


def _describe_interval(vs: int, ve: int) -> str:
    return f"[{_describe_end(vs)}, {_describe_end(ve)})"


def _describe_end(t: int) -> str:
    return describe_time(t, t.kind) if isinstance(t, Instant) else describe_time_in_message(t)


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """A row of a history: a payload that is true during ``[vs, ve)``."""

    payload: Payload
    vs: int
    ve: int

    def __init__(self, payload: Payload, vs: TimeLike, ve: TimeLike = FOREVER) -> None:
        _set_payload(self, payload)
        _set_times(self, vs=vs, ve=ve)

    def __str__(self) -> str:
        return f"{_describe_interval(self.vs, self.ve)} {dict(self.payload)}"


@dataclass(frozen=True, slots=True, init=False)
class Insert:
    """A new event."""

    payload: Payload
    vs: int
    ve: int

    def __init__(self, payload: Payload, vs: TimeLike, ve: TimeLike = FOREVER) -> None:
        _set_payload(self, payload)
        _set_times(self, vs=vs, ve=ve)

    def __str__(self) -> str:
        return f"insert {_describe_interval(self.vs, self.ve)} {dict(self.payload)}"


@dataclass(frozen=True, slots=True, init=False)
class Retract:
    """The event ``(payload, vs, ve)`` now ends at ``new_ve``; ``new_ve == vs`` removes it."""

    payload: Payload
    vs: int
    ve: int
    new_ve: int

    def __init__(self, payload: Payload, vs: TimeLike, ve: TimeLike, new_ve: TimeLike) -> None:
        _set_payload(self, payload)
        _set_times(self, vs=vs, ve=ve, new_ve=new_ve)

    def __str__(self) -> str:
        lifetime = f"{_describe_interval(self.vs, self.ve)} -> {_describe_end(self.new_ve)}"
        return f"retract {lifetime} {dict(self.payload)}"


@dataclass(frozen=True, slots=True, init=False)
class Cti:
    """Nothing before ``t`` changes any more."""

    t: int

    def __init__(self, t: TimeLike) -> None:
        _set_times(self, t=t)

    def __str__(self) -> str:
        return f"cti {_describe_end(self.t)}"


@dataclass(frozen=True, slots=True, init=False)
class ExternalCti:
    """``count`` elements have their sync time in ``[vs, ve)``; only Finalize reads it."""

    vs: int
    ve: int
    count: int

    def __init__(self, vs: TimeLike, ve: TimeLike, count: int) -> None:
        _set_times(self, vs=vs, ve=ve)
        _set_count(self, count)

    def __str__(self) -> str:
        return f"external_cti {_describe_interval(self.vs, self.ve)} #{self.count}"


Element: TypeAlias = Insert | Retract | Cti | ExternalCti


def kind_of_element(element: Element | Event) -> TimeKind:
    """The kind of the times in an element."""
    if isinstance(element, Cti):
        return kind_of(element.t)
    kind = merge_kinds(kind_of(element.vs), kind_of(element.ve))
    return merge_kinds(kind, kind_of(element.new_ve)) if isinstance(element, Retract) else kind


def _kind(times: Iterable[int]) -> TimeKind:
    return reduce(merge_kinds, map(kind_of, times))


def _set_payload(frozen: object, payload: Payload) -> None:
    # Most are dicts, and asking an abstract class takes longer.
    if type(payload) is not dict and not isinstance(payload, Mapping):
        reason = f"{payload!r} is not a mapping of columns to values"
        raise StreamError(f"{type(frozen).__name__}: payload: {reason}")
    _set(frozen, "payload", payload)


def _set_count(frozen: object, count: int) -> None:
    """Set a number of elements. A negative one is for the checks of the stream, which have a policy."""
    is_number = hasattr(count, "__index__") and not isinstance(count, bool | np.bool_ | np.ndarray)
    if not is_number or abs(index(count)) > FOREVER:
        reason = f"{count!r} is not a whole number of elements"
        raise StreamError(f"{type(frozen).__name__}: count: {reason}")
    _set(frozen, "count", index(count))


def _set_times(frozen: object, **times: TimeLike) -> None:
    """Set the fields of an element that are times, of one kind."""
    for value in times.values():
        if type(value) is not int or not BEGINNING <= value <= FOREVER:
            break
    else:  # the usual case, and the quick one
        for name, value in times.items():
            _set(frozen, name, value)
        return
    given = {name: _time(frozen, name, value) for name, value in times.items()}
    try:
        _kind(given.values())
    except TimeError as why:
        fields = " and ".join(f"{name}={value!r}" for name, value in times.items())
        raise TimeError(f"{type(frozen).__name__}: {fields}: {why}") from None
    for name, value in given.items():
        _set(frozen, name, value)


def _time(frozen: object, name: str, value: TimeLike) -> int:
    try:
        return instant(value)
    except TimeError as why:
        advice = "; leave it out, or write rc.FOREVER, for no end" if value is None and name == "ve" else ""
        raise TimeError(f"{type(frozen).__name__}: {name}: {why}{advice}") from None
