"""What becomes of rows: taken, perhaps without some; or refused because of one of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import recension as rc
from recension.core.validity import STALE_CTI
from recension.runners.metrics import dropped_count, late_count
from recension.testing.model import payload_key

_PARTITION: Final = re.compile(r"^partition [^:]*: ")


@dataclass(frozen=True)
class Verdict:
    """What became of the rows: all taken, perhaps without some; or refused because of one row."""

    refused: str = ""
    row: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    history: tuple[Any, ...] = ()

    def in_all(self) -> Verdict:
        """With the counts that a result of `rc.run` has: not by reason."""
        if self.refused:
            return self
        counts = Counter(self.counts)
        return Verdict(
            counts={"dropped": dropped_count(counts), "late": late_count(counts)}, history=self.history
        )


def taken(counts: Mapping[str, int], history: rc.History) -> Verdict:
    """What was taken in, and how much was not. A CTI that says nothing new is nobody's loss."""
    events = sorted((e.vs, e.ve, str(payload_key(e.payload))) for e in history.to_events())
    told = {reason: n for reason, n in counts.items() if n and reason != STALE_CTI}
    return Verdict(counts=told, history=tuple(events))


def added(counts: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """All counts by reason, of sources and of steps."""
    return sum((Counter(one) for one in counts.values()), Counter())


def refused(why: rc.RecensionError, before: int = 0) -> Verdict:
    """Why, and by which row, of which so many were in files or pieces before."""
    if not isinstance(why, rc.StreamError):
        return Verdict(str(why))
    return Verdict(without_partition(why.reason), None if why.row is None else why.row + before)


def without_partition(reason: str) -> str:
    """The partition of a row is a part of its place."""
    return _PARTITION.sub("", reason)
