"""Times of the examples: pandas has them as ticks, and the answers as timestamps in UTC."""

from __future__ import annotations

from collections.abc import Iterable

from recension.core.events import Event
from recension.core.time_kind import AWARE, of_kind


def in_utc(events: Iterable[Event]) -> list[Event]:
    """The same events, whose ticks are timestamps in UTC."""
    return [Event(event.payload, of_kind(event.vs, AWARE), of_kind(event.ve, AWARE)) for event in events]
