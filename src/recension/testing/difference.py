"""How two histories differ, so that a person finds the cause: near misses are shown as pairs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from recension.core.difference import RELATIVE_TOLERANCE, difference
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.compared import Compared, PlainEvents, unify
from recension.testing.model import payload_key

Pair: TypeAlias = tuple[Event, Event]
MOST_LINES = 10


@dataclass(frozen=True, slots=True)
class EventDifference:
    """What an actual history lacks, has too much, or has slightly wrong; false when there is nothing."""

    other_lifetime: Sequence[Pair]
    other_payload: Sequence[Pair]
    missing: Sequence[Event]
    unexpected: Sequence[Event]

    def __bool__(self) -> bool:
        return bool(self.other_lifetime or self.other_payload or self.missing or self.unexpected)

    def __str__(self) -> str:
        sections = [
            ("other lifetime (expected -> actual)", [_describe_move(*pair) for pair in self.other_lifetime]),
            ("other payload (expected -> actual)", [_describe_change(*pair) for pair in self.other_payload]),
            ("missing", [f"{describe_lifetime(e)}  {describe_payload(e)}" for e in self.missing]),
            ("unexpected", [f"{describe_lifetime(e)}  {describe_payload(e)}" for e in self.unexpected]),
        ]
        found = [(title, lines) for title, lines in sections if lines]
        head = "the histories differ: " + ", ".join(f"{len(ls)} {t.split(' (')[0]}" for t, ls in found)
        return "\n".join([head, *(_section(title, lines) for title, lines in found)]) if found else "equal"


def compare_events(
    actual: Sequence[Event], expected: Sequence[Event], tolerance: float = RELATIVE_TOLERANCE
) -> EventDifference:
    """Compare two bags of events; floats are equal within a relative ``tolerance``."""
    return compare(PlainEvents(actual), PlainEvents(expected), tolerance)


def compare(actual: Compared, expected: Compared, tolerance: float = RELATIVE_TOLERANCE) -> EventDifference:
    """Compare two histories, by the judge of all histories (`core.difference`)."""
    found = difference(*unify(actual, expected), tolerance=tolerance)
    surplus, lacking = found.unexpected.to_events(), found.missing.to_events()
    started, surplus, lacking = _pair(surplus, lacking, lambda e: (e.vs, payload_key(e.payload)))
    moved, surplus, lacking = _pair(surplus, lacking, lambda e: payload_key(e.payload))
    changed, surplus, lacking = _pair(surplus, lacking, lambda e: (e.vs, e.ve))
    return EventDifference(started + moved, changed, _sort(lacking), _sort(surplus))


def _pair(
    actual: Sequence[Event], expected: Sequence[Event], key: Callable[[Event], Hashable]
) -> tuple[list[Pair], list[Event], list[Event]]:
    """Pairs (expected, actual) with one key, and what is left of both sides."""
    waiting: defaultdict[Hashable, list[Event]] = defaultdict(list)
    for event in reversed(actual):
        waiting[key(event)].append(event)
    pairs, lacking = [], []
    for event in expected:
        if candidates := waiting[key(event)]:
            pairs.append((event, candidates.pop()))
        else:
            lacking.append(event)
    return pairs, [event for events in waiting.values() for event in events], lacking


def _sort(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda e: (e.vs, e.ve, repr(e.payload)))


def describe_lifetime(event: Event) -> str:
    """``[vs, ve)`` with the ends of time as signs."""
    return f"[{_time(event.vs)}, {_time(event.ve)})"


def _time(t: int) -> str:
    return {FOREVER: "∞", BEGINNING: "-∞"}.get(t, str(t))


def describe_payload(event: Event) -> str:
    """The payload on one line."""
    return ", ".join(f"{name}={value!r}" for name, value in event.payload.items())


def _describe_move(expected: Event, actual: Event) -> str:
    return f"{describe_lifetime(expected)} -> {describe_lifetime(actual)}  {describe_payload(expected)}"


def _describe_change(expected: Event, actual: Event) -> str:
    return f"{describe_lifetime(expected)}  {describe_payload(expected)} -> {describe_payload(actual)}"


def _section(title: str, lines: list[str]) -> str:
    """Repeated lines are counted, long lists cut."""
    rows = [f"    {line}{f'  x{n}' if n > 1 else ''}" for line, n in Counter(lines).items()]
    rest = [f"    ... and {len(rows) - MOST_LINES} more"] if len(rows) > MOST_LINES else []
    return "\n".join([f"  {title}:", *rows[:MOST_LINES], *rest])
