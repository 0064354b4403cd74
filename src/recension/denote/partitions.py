"""What a source with partitions means: the events of all its partitions, each a stream of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING
from recension.denote.order import History


class PlacedElement(NamedTuple):
    """An element of a partition, by its order there; perhaps with the number that a run gave it."""

    partition: Hashable
    order: int
    element: Element
    run: Hashable = None
    sequence: int | None = None


def skip_repeats(rows: Iterable[PlacedElement]) -> list[PlacedElement]:
    """Partition by partition in order, without those whose number is not above all before it of their run."""
    kept, highest = list[PlacedElement](), dict[Hashable, int]()
    for row in sorted(rows, key=lambda row: (str(row.partition), row.order)):
        source = (row.run, row.partition)
        if row.sequence is not None:
            if source in highest and row.sequence <= highest[source]:
                continue
            highest[source] = row.sequence
        kept.append(row)
    return kept


def unite(rows: Iterable[PlacedElement]) -> History:
    """The events left when every retraction is applied to an event of its own partition.

    >>> rows = [PlacedElement(0, 1, Insert({}, 3, 9)), PlacedElement(1, 1, Insert({}, 3, 9))]
    >>> print(*unite([*rows, PlacedElement(0, 2, Retract({}, 3, 9, 5))]), sep="; ")
    [3, 5) {}; [3, 9) {}
    """
    events: list[tuple[Hashable, Event]] = []
    for row in skip_repeats(rows):
        if isinstance(row.element, Insert):
            events.append((row.partition, Event(row.element.payload, row.element.vs, row.element.ve)))
        elif isinstance(row.element, Retract):
            told = row.element
            events.remove((row.partition, Event(told.payload, told.vs, told.ve)))
            if told.new_ve > told.vs:
                events.append((row.partition, Event(told.payload, told.vs, told.new_ve)))
    return [event for _, event in events]


def least_cti(rows: Iterable[PlacedElement]) -> int:
    """The least of the greatest CTIs of the partitions."""
    reached: dict[Hashable, int] = {}
    for row in skip_repeats(rows):
        t = row.element.t if isinstance(row.element, Cti) else BEGINNING
        reached[row.partition] = max(t, reached.get(row.partition, BEGINNING))
    return min(reached.values(), default=BEGINNING)
