"""Properties of physical streams: what may be relied on, declared on sources and inferred above them.

A property holds for every output a node can produce, however the input is cut into batches. Where a rule
is in doubt it says nothing. LMerge technical report, §III-C and §IV-G.

One exception, which spares everyone else: what is cut at the beginning of time, such as overlapping windows
that would begin before it, may share a start there, though starts are declared to be keys or to increase.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from recension.core.errors import RecensionError


@dataclass(frozen=True, slots=True)
class Properties:
    """What is true of every element of a stream; consequences of a property are filled in.

    >>> Properties(is_strictly_increasing=True).is_insert_only
    True
    """

    is_insert_only: bool = False
    """There are no retractions."""
    is_ordered: bool = False
    """Sync times of inserts and retractions never fall. CTIs are not counted: they may lag."""
    is_strictly_increasing: bool = False
    """Every element starts after all before it: one event a start, and so no retraction either."""
    has_deterministic_ties: bool = False
    """Events of equal start come in an order that the history alone decides, the same in every replica."""
    has_key: bool = False
    """No two events that are there at once have the same start and the same payload."""
    is_shrink_only: bool = False
    """Retractions shorten or remove; none lengthens."""
    constant_duration: int | None = None
    """Every event lives for so many ticks, cut only by the ends of time; retractions only remove."""
    is_point: bool = False
    """Every event lives for one tick: ``constant_duration`` is 1."""
    cti_frequency: int | None = None
    """After every batch the last CTI is at most so many ticks behind the greatest sync time seen."""

    def __post_init__(self) -> None:
        if self.is_point and self.constant_duration not in (None, 1):
            raise RecensionError(f"point events live for 1 tick, not {self.constant_duration}")
        for name in ("constant_duration", "cti_frequency"):
            if (ticks := getattr(self, name)) is not None and ticks < (name == "constant_duration"):
                raise RecensionError(f"{name} is a number of ticks, not {ticks}")
        for name, value in self._consequences():
            object.__setattr__(self, name, value)

    def _consequences(self) -> list[tuple[str, Any]]:
        """What follows, in an order in which each consequence sees those before it."""
        found: list[tuple[str, Any]] = []
        if self.is_strictly_increasing:
            names = ("is_insert_only", "is_ordered", "has_deterministic_ties", "has_key")
            found += [(name, True) for name in names]
        if self.is_point or self.constant_duration == 1:
            found += [("is_point", True), ("constant_duration", 1)]
        if self.is_insert_only or self.is_strictly_increasing or self.is_point or self.constant_duration:
            found.append(("is_shrink_only", True))
        return found

    @property
    def is_perfect(self) -> bool:
        """Ordered and without retractions (Operator Algorithm Design, definition 4)."""
        return self.is_ordered and self.is_insert_only


NOTHING_KNOWN = Properties()

_WORDS = {
    "is_insert_only": "insert-only",
    "is_ordered": "ordered",
    "is_strictly_increasing": "strictly increasing",
    "has_deterministic_ties": "deterministic ties",
    "has_key": "(vs, payload) is a key",
    "is_shrink_only": "shrink-only",
    "is_point": "point events",
}


def describe_properties(properties: Properties) -> str:
    """The properties that hold, as people say them.

    >>> describe_properties(Properties(is_insert_only=True, constant_duration=10))
    'insert-only, constant duration 10'
    """
    held = [words for name, words in _WORDS.items() if getattr(properties, name)]
    if properties.is_insert_only or properties.constant_duration is not None:
        held.remove(_WORDS["is_shrink_only"])
    if properties.constant_duration is not None and not properties.is_point:
        held.append(f"constant duration {properties.constant_duration}")
    if properties.cti_frequency is not None:
        held.append(f"a CTI at most {properties.cti_frequency} behind")
    return ", ".join(held) if held else "nothing"


def meet(*streams: Properties) -> Properties:
    """What all of these streams have in common, such as the inputs of one merge."""
    first, *others = streams
    shared: dict[str, Any] = {}
    for field in fields(Properties):
        value = getattr(first, field.name)
        is_shared = all(getattr(other, field.name) == value for other in others)
        shared[field.name] = value if is_shared else field.default
    return Properties(**shared)
