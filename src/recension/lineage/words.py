"""Events, times and regions in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TimeKind, describe_time
from recension.denote.lineage import EachEvent, EqualEvents, Lineage, Region
from recension.denote.order import value_order
from recension.plan.node import Node
from recension.plan.nodes import Source

SHOWN: Final = 5


class StepWords:
    """How the events of a step's inputs are named; those of a source go by its name."""

    def __init__(self, node: Node, lineages: Mapping[Node, Lineage], kind: TimeKind) -> None:
        self._sources = [_source_of(child, lineages) for child in node.inputs]
        self._kind = kind

    def names(self, events: Sequence[Event]) -> str:
        """Some events in a few words."""
        return name_events(events)

    def count(self, port: int, events: Sequence[Event], what: str = "event") -> str:
        """How many events of an input.

        A source's name is taken for a plural if it looks like one.
        """
        source = self._sources[port]
        if what == "event" and source is not None and source.endswith("s") and len(events) != 1:
            return f"{len(events) or 'no'} {source}"
        of = f" of {source}" if source is not None else ""
        return f"{len(events) or 'no'} {what}{'' if len(events) == 1 else 's'}{of}"

    def lifetime(self, event: Event) -> str:
        """When an event lives."""
        return describe_lifetime(event.vs, event.ve, self._kind)


def _source_of(node: Node, lineages: Mapping[Node, Lineage]) -> str | None:
    """The source whose events these are, each by itself changed at most."""
    while isinstance(lineages.get(node), EachEvent | EqualEvents) and len(node.inputs) == 1:
        (node,) = node.inputs
    return node.name if isinstance(node, Source) else None


def describe_lifetime(vs: int, ve: int, kind: TimeKind) -> str:
    """A lifetime as people read it.

    >>> describe_lifetime(9, FOREVER, None)
    '[9, ∞)'
    """
    return f"[{describe_time(vs, kind)}, {describe_time(ve, kind)})"


def describe_event(event: Event, kind: TimeKind) -> str:
    """An event with all that it says."""
    return f"{describe_lifetime(event.vs, event.ve, kind)} {describe_columns(event.payload)}"


def describe_columns(payload: Mapping[str, Any]) -> str:
    """Columns and their values.

    >>> describe_columns({"site": "Oslo", "mean": 2.0})
    'site Oslo, mean 2'
    """
    return ", ".join(f"{name} {_text(value)}" for name, value in payload.items()) or "without columns"


def name_events(events: Sequence[Event]) -> str:
    """Events in a few words: by the columns in which they differ, one alone by all its columns.

    >>> ann, bob = ({"user": name, "site": "Oslo"} for name in ("ann", "bob"))
    >>> name_events([Event(ann, 0), Event(bob, 1)]), name_events([Event(ann, 0)])
    ('ann, bob', 'user ann, site Oslo')
    """
    if not events:
        return "none"
    first = events[0].payload
    columns = [name for name in first if len({value_order(e.payload[name]) for e in events}) > 1]
    if not columns:
        return f"{len(events)} × {describe_columns(first)}" if len(events) > 1 else describe_columns(first)
    names = [" ".join(_text(e.payload[column]) for column in columns[:2]) for e in events[:SHOWN]]
    more = f" and {len(events) - SHOWN} more" if len(events) > SHOWN else ""
    return ", ".join(names) + more


def describe_absence(source: str, region: Region, kind: TimeKind) -> str:
    """That there is nothing else, such as ``no other event of s with k = a from 3 to 9``."""
    where = " and ".join(f"{name} = {_text(value)}" for name, value in region.where)
    text = f"no other event of {source}{f' with {where}' if where else ''}"
    if region.start > BEGINNING and region.end < FOREVER:
        return f"{text} from {describe_time(region.start, kind)} to {describe_time(region.end, kind)}"
    if region.start > BEGINNING:
        return f"{text} since {describe_time(region.start, kind)}"
    return text if region.end == FOREVER else f"{text} until {describe_time(region.end, kind)}"


def _text(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
