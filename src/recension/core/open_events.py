"""The last open event of each payload, and the rows that open and close them (see openclose.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks


@dataclass(frozen=True, slots=True)
class Walk:
    """Open and close rows by payload, then by arrival.

    What is remembered from earlier batches stands as an open (``row`` -1) before the rows of its payload.
    """

    key: Hashes
    row: Index
    is_open: Mask
    start: Ticks
    end: Ticks
    frontier: Ticks

    def take(self, at: Index | Mask) -> Walk:
        """Some of the rows."""
        return Walk(
            self.key[at], self.row[at], self.is_open[at], self.start[at], self.end[at], self.frontier[at]
        )

    def opener(self) -> Index:
        """The last open of the same payload at or before each row; -1 if there is none."""
        at = np.maximum.accumulate(np.where(self.is_open, np.arange(len(self.key)), -1))
        return np.where((at >= 0) & (self.key[at] == self.key), at, -1)

    def end_before(self) -> Ticks:
        """For each close the end that its event had until then."""
        return np.append(np.int64(FOREVER), self.end[:-1])

    def is_final(self) -> Mask:
        """Which closes find their event ended before a CTI; once one does, all later ones of it do."""
        has_ended = (self.end_before() < self.frontier) | (self.frontier == FOREVER)
        fails = np.cumsum(~self.is_open & has_ended)
        final: Mask = ~self.is_open & (fails > fails[self.opener()])
        return final

    def last_of_each(self) -> Walk:
        """The state of each payload after the last row."""
        return self.take(np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)])


class OpenEvents:
    """The last open event of each payload, known by hash, as a few sorted runs (see bag.py)."""

    def __init__(self) -> None:
        self._runs: list[Walk] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        return sum(len(run.key) for run in self._runs)

    def of(self, keys: Hashes) -> Walk:
        """The events of the given (sorted) payloads that can still be closed."""
        found = [run.take(_positions(run.key, keys)) for run in self._runs]
        return self._live(_newest(concatenated([_nothing(), *found])))

    def put(self, events: Walk) -> None:
        """Remember the events of these (sorted) payloads instead of earlier ones."""
        size = len(events.key)
        none, nowhere = np.full(size, BEGINNING), np.full(size, -1)
        self._runs.append(replace(events, row=nowhere, is_open=np.ones(size, np.bool_), frontier=none))
        while len(self._runs) > 1 and 2 * len(self._runs[-1].key) >= len(self._runs[-2].key):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(_newest(concatenated([before, last])))
        # Only the oldest run may drop what is final: elsewhere that would uncover what it replaced.
        self._runs[0] = self._live(self._runs[0])

    def to_arrow(self) -> pa.Table:
        """Payload hashes with the lifetimes of their events."""
        events = self._live(_newest(concatenated([_nothing(), *self._runs])))
        return pa.table({"key": events.key, "start": events.start, "end": events.end})

    def load(self, table: pa.Table, frontier: int) -> None:
        """Become what `to_arrow` gave."""
        self._runs, self._frontier = [], frontier
        if table.num_rows:
            key, start, end = (table[name].to_numpy() for name in ("key", "start", "end"))
            row, is_open = np.full(len(key), -1), np.ones(len(key), np.bool_)
            self._runs = [Walk(key, row, is_open, start, end, np.full(len(key), BEGINNING))]

    def forget_before(self, t: int) -> None:
        """Nothing that ended before ``t`` can be closed again; the space is freed by later merges."""
        self._frontier = t
        if t == FOREVER:
            self._runs = []

    def _live(self, run: Walk) -> Walk:
        keep = run.end >= self._frontier
        return run if bool(keep.all()) else run.take(keep)


def concatenated(walks: list[Walk]) -> Walk:
    """All rows of several walks, one after the other."""
    return Walk(
        np.concatenate([walk.key for walk in walks]),
        np.concatenate([walk.row for walk in walks]),
        np.concatenate([walk.is_open for walk in walks]),
        np.concatenate([walk.start for walk in walks]),
        np.concatenate([walk.end for walk in walks]),
        np.concatenate([walk.frontier for walk in walks]),
    )


def _positions(haystack: Hashes, needles: Hashes) -> Index:
    at = np.searchsorted(haystack, needles).astype(np.int64)
    at = at[at < len(haystack)]
    found: Index = at[haystack[at] == needles[: len(at)]]
    return found


def _newest(events: Walk) -> Walk:
    """One event a payload, sorted: the one that came last."""
    events = events.take(np.argsort(events.key, kind="stable"))
    return events.last_of_each()


def _nothing() -> Walk:
    none = np.zeros(0, np.int64)
    return Walk(np.zeros(0, np.uint64), none, np.zeros(0, np.bool_), none, none, none)
