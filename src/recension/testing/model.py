"""A model of a stream in plain Python: what it means and whether it is valid, one element at a time.

`OpenClose` says what open and close elements (LMerge TR, Example 3) stand for. The model shares nothing with
`core.history` and `core.validity`, so that tests can check them against it. The checks come in the order of
rulings A1–A4 and LMerge 4: is the element well formed, does it respect the last CTI, does a retraction name
an event that is there?
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Payload, Retract
from recension.core.ticks import BEGINNING, FOREVER

_Row: TypeAlias = tuple[int, int, Hashable]


class StreamModel:
    """Takes a stream's elements in turn; knows the history so far and what may not come next."""

    def __init__(self, *, orphans: bool = True) -> None:
        self.cti = BEGINNING
        self._orphans = orphans
        self._live: Counter[_Row] = Counter()
        self._payloads: dict[Hashable, Payload] = {}

    def fault(self, element: Element) -> str | None:
        """Why no valid stream may go on with this element; ``None`` if it may."""
        match element:
            case Insert():
                return self._insert_fault(element)
            case Retract():
                return self._retract_fault(element)
            case ExternalCti(vs, ve):
                return "ends before it has begun" if ve <= vs else None
            case Cti():
                return None

    def _insert_fault(self, e: Insert) -> str | None:
        if e.ve <= e.vs:
            return "ends before it has begun"
        return f"breaks an earlier cti ({self.cti})" if e.vs < self.cti else None

    def _retract_fault(self, e: Retract) -> str | None:
        if e.ve <= e.vs:
            return "ends before it has begun"
        if e.new_ve < e.vs:
            return "goes to an end before the start"
        if e.new_ve == e.ve:
            return "changes nothing"
        if min(e.ve, e.new_ve) < self.cti:
            return f"breaks an earlier cti ({self.cti})"
        return "retracts an event that is not there" if self._orphans and not self.holds(e) else None

    def holds(self, e: Insert | Retract | Event) -> bool:
        """Is an event with this lifetime and payload there?"""
        return self._live[e.vs, e.ve, payload_key(e.payload)] > 0

    def take(self, element: Element) -> None:
        """Let the element take effect, whether `fault` finds one in it or not."""
        match element:
            case Insert(payload, vs, ve):
                self._count(payload, vs, ve, 1)
            case Retract(payload, vs, ve, new_ve):
                self._count(payload, vs, ve, -1)
                if new_ve != vs:
                    self._count(payload, vs, new_ve, 1)
            case Cti(t):
                self.cti = max(self.cti, t)
            case ExternalCti():
                pass

    def _count(self, payload: Payload, vs: int, ve: int, change: int) -> None:
        key = payload_key(payload)
        self._payloads.setdefault(key, payload)
        self._live[vs, ve, key] += change

    def events(self) -> list[Event]:
        """The history so far, by lifetime."""
        rows = sorted(self._live.elements(), key=lambda row: row[:2])
        return [Event(self._payloads[key], vs, ve) for vs, ve, key in rows]


def reconstitute(elements: Iterable[Element]) -> list[Event]:
    """The canonical history of a stream; an error names a retraction of an event that is not there."""
    model = StreamModel()
    for at, element in enumerate(elements, start=1):
        if isinstance(element, Retract) and not model.holds(element):
            raise StreamError(f"retracts an event that is not there: {element}", row=at)
        model.take(element)
    return model.events()


def payload_key(payload: Payload) -> Hashable:
    """A hashable stand-in: equal payloads have equal keys, and a column that is absent is null."""
    return tuple((name, _value_key(payload[name])) for name in sorted(payload) if payload[name] is not None)


def _value_key(value: Any) -> Hashable:
    if isinstance(value, bool):
        return ("bool", value)  # True == 1 in Python, but not in a column
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None  # NaN equals NaN in a payload
    if isinstance(value, dict):
        return payload_key(value)
    if isinstance(value, list | tuple):
        return tuple(_value_key(item) for item in value)
    return value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Open:
    """An event with this payload begins; its end is not known yet."""

    payload: Payload
    vs: int


@dataclass(frozen=True, slots=True)
class Close:
    """The event with this payload that was opened last ends at ``ve``, whatever end it had."""

    payload: Payload
    ve: int


Written: TypeAlias = Element | Open | Close


class OpenClose:
    """Turns open and close into inserts and retractions; everything else passes."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Insert] = {}
        self._cti = BEGINNING

    def translate(self, written: Written) -> Element:
        """The element meant. A close of nothing, of something final, or before its start is an error."""
        match written:
            case Open(payload, vs):
                return self._remember(Insert(payload, vs))
            case Close(payload, ve):
                return self._close(payload, ve)
            case Cti(t):
                self._cti = max(self._cti, t)
        return written

    def _close(self, payload: Payload, ve: int) -> Element:
        event = self._last.get(payload_key(payload))
        if event is None or event.ve < self._cti or self._cti == FOREVER:
            raise StreamError(f"closes an event that is not open, or whose end is final: {dict(payload)}")
        if ve < event.vs:
            raise StreamError(f"closes an event before its start: {dict(payload)}")
        revised = self._remember(Insert(payload, event.vs, ve))
        # What was closed at its start is gone; a later close brings it back.
        return revised if event.ve == event.vs else Retract(payload, event.vs, event.ve, ve)

    def _remember(self, event: Insert) -> Insert:
        self._last[payload_key(event.payload)] = event
        return event
