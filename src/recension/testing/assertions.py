"""Assertions on streams whose messages a person can read."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.events import Cti, Element, Event
from recension.testing.difference import difference
from recension.testing.reading import Witness, columns_of, elements_of, events_of
from recension.testing.walk import Walk


def assert_equivalent(actual: Witness, expected: Witness, *, tolerance: float = 1e-9) -> None:
    """Fail unless both have the same canonical history, whatever way they take to it.

    Nulls equal nulls, NaN equals NaN, floats are equal within a relative ``tolerance``, and two identical
    events are two events.

    >>> from recension.core.events import Insert, Retract
    >>> assert_equivalent(
    ...     [Insert({"p": "A"}, 6, 20), Retract({"p": "A"}, 6, 20, 30), Retract({"p": "A"}, 6, 30, 25)],
    ...     [Insert({"p": "A"}, 6, 25)],
    ... )
    """
    names, wanted = columns_of(actual), columns_of(expected)
    if names is not None and wanted is not None and names != wanted:
        raise AssertionError(f"the columns differ: expected {sorted(wanted)}, got {sorted(names)}")
    if found := difference(events_of(actual), events_of(expected), tolerance):
        raise AssertionError(str(found))


def assert_valid(
    stream: EventBatch | pa.Table | Iterable[Element | Event | EventBatch],
    *,
    stale_ctis: bool = False,
    orphans: bool = True,
) -> None:
    """Fail at the first element that no valid stream may contain, and show what led to it.

    That is: an element that breaks an earlier CTI, a retraction of an event that is not there, an empty
    insert, a retraction that changes nothing. A CTI that does not advance means nothing in a source and
    must not come out of an operator (ruling B11): ``stale_ctis=True`` lets it pass. ``orphans=False``
    does not ask whether retracted events are there.
    """
    walk, elements = Walk(orphans=orphans), elements_of(stream)
    for at, element in enumerate(elements):
        fault = walk.fault(element)
        if isinstance(element, Cti) and element.t <= walk.cti and not stale_ctis:
            fault = f"does not advance the cti {walk.cti}"
        if fault is not None:
            raise AssertionError(f"element {at + 1} of {len(elements)} {fault}\n{_context(elements, at)}")
        walk.take(element)


def _context(elements: list[Element], at: int) -> str:
    first = max(0, at - 5)
    lines = [f"      {element}" for element in elements[first:at]]
    return "\n".join([*(["      ..."] if first else []), *lines, f"    > {elements[at]}"])
