"""Open and close elements (LMerge TR, Example 3), and what they stand for, an element at a time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from recension.core.errors import StreamError
from recension.core.events import Element, Insert, Payload, Retract
from recension.core.ticks import FOREVER
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
    """Turns open and close into inserts and retractions; everything else passes."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Insert] = {}

    def translate(self, written: Written) -> Element | None:
        """The element meant, or ``None`` for a close that repeats what is known."""
        match written:
            case Open(payload, vs):
                return self._remember(Insert(payload, vs))
            case Close(payload, ve):
                return self._close(payload, ve)
            case _:
                return written

    def _close(self, payload: Payload, ve: int) -> Element | None:
        event = self._last.get(payload_key(payload))
        if event is None:
            raise StreamError(f"closes an event that is not open: {dict(payload)}")
        if ve == event.ve:
            return None
        self._remember(Insert(payload, event.vs, ve))
        return Retract(payload, event.vs, event.ve, ve)

    def _remember(self, event: Insert) -> Insert:
        key = payload_key(event.payload)
        earlier = self._last.get(key)
        if event.ve == FOREVER and earlier is not None and earlier.ve == FOREVER:
            raise StreamError(f"opens an event that is open already: {dict(event.payload)}")
        self._last[key] = event
        return event
