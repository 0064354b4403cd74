"""Open and close elements (LMerge TR, Example 3), and what they stand for, an element at a time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Insert, Payload, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.walk import payload_key


@dataclass(frozen=True, slots=True)
class Open:
    """An event with this payload begins; its end is not known yet."""

    payload: Payload
    vs: int


@dataclass(frozen=True, slots=True)
class Close:
    """The event with this payload that was opened last ends at ``ve``, whatever was said before."""

    payload: Payload
    ve: int


Written: TypeAlias = Element | Open | Close


class OpenClose:
    """Turns open and close into inserts and retractions, in plain Python; everything else passes."""

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
