"""The last open event of each payload, and the rows that open and close them (see openclose.py)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import SortedRuns
from recension.core.ticks import BEGINNING, FOREVER, Ticks


@dataclass(frozen=True, slots=True)
class Walk:
    """Open and close rows by payload, then by arrival, each with the CTI before it.

    An end that was told too late for its CTI may be shown otherwise: moved there. What is remembered from
    earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    shown_end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> Walk:
        """Some of the rows."""
        return Walk(*(getattr(self, field.name)[at] for field in fields(self)))

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_final(self, ignored: Mask) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do.

        What is ignored ends nothing.
        """
        last = np.maximum.accumulate(np.where(ignored, 0, np.arange(len(self.key))))
        end_before = np.append(np.int64(FOREVER), self.shown_end[last][:-1])
        has_ended = (end_before < self.frontier) | (self.frontier == FOREVER)
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> Walk:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class OpenEvents(SortedRuns):
    """The last open event of each payload, known by hash, as long as it can be closed."""

    def __init__(self) -> None:
        types = {"key": np.uint64, "start": np.int64, "end": np.int64, "shown_end": np.int64}
        super().__init__(types, equal="newest", expiry="shown_end")

    def of(self, keys: Hashes) -> Walk:
        """The events of the given (sorted) payloads that can still be closed."""
        found = self.matching(keys)
        size = len(found["key"])
        row, is_open, frontier = np.full(size, -1), np.ones(size, np.bool_), np.full(size, BEGINNING)
        return Walk(row=row, is_open=is_open, frontier=frontier, **found)

    def put(self, events: Walk) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        self.push(events.key, events.start, events.end, events.shown_end, is_run=True)


def concatenated(walks: list[Walk]) -> Walk:
    """All rows of several walks, one after the other."""
    return Walk(*(np.concatenate([getattr(walk, field.name) for walk in walks]) for field in fields(Walk)))
