"""Where the events that may still be retracted are: from an event's identity to file and row.

Assumes     files never change; a row is deleted at most once.
Guarantees  `count` and `take` answer for all rows that are not deleted, over all files.
State       13 bytes a row of the files that are not final, once the first retraction has come; none before.
Cost        O(k log n) a file for k questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.errors import RecensionError
from recension.core.history import History
from recension.core.rowhash import Hashes


@dataclass(frozen=True, slots=True)
class _Run:
    """The rows of a file by identity."""

    keys: Hashes
    row: np.ndarray[tuple[int], np.dtype[np.int32]]
    alive: Mask

    def spans(self, keys: Hashes) -> tuple[Index, Index]:
        """For each place where one of the (distinct) keys stands alive: which key, and the place."""
        low = np.searchsorted(self.keys, keys)
        size = np.searchsorted(self.keys, keys, "right") - low
        key = np.repeat(np.arange(len(keys)), size)
        place = np.arange(len(key)) + np.repeat(low - np.cumsum(size) + size, size)
        alive = self.alive[place]
        return key[alive], place[alive]


def _run(keys: Hashes, deleted: Index) -> _Run:
    order = np.argsort(keys).astype(np.int32)
    alive = np.ones(len(keys), np.bool_)
    alive[deleted] = False
    return _Run(keys[order], order, alive[order])


class LiveEvents:
    """The rows of some files; a file is looked into when the first question comes."""

    def __init__(self, read: Callable[[str], History], deleted: Callable[[str], Index]) -> None:
        self._read, self._deleted = read, deleted
        self._runs: dict[str, _Run | None] = {}

    def add(self, name: str, events: History | None = None) -> None:
        """Take in a file, of which the events may be at hand."""
        self._runs[name] = None
        if events is not None and any(run is not None for run in self._runs.values()):
            self._runs[name] = _run(events.identity(), self._deleted(name))

    def keep(self, names: Iterable[str]) -> None:
        """Forget all files but these."""
        wanted = set(names)
        self._runs = {name: run for name, run in self._runs.items() if name in wanted}

    def count(self, keys: Hashes) -> Index:
        """How often each of the (distinct) events is there."""
        order = np.argsort(keys)
        total = np.zeros(len(keys), np.int64)
        for run in self._all().values():
            key, _ = run.spans(keys[order])
            total[order] += np.bincount(key, minlength=len(keys))
        return total

    def take(self, keys: Hashes, times: Index) -> dict[str, Index]:
        """Remove each (distinct, ascending) event so many times: the rows to delete, by file."""
        left, found = times.copy(), {}
        for name, run in self._all().items():
            key, place = run.spans(keys)
            first = np.searchsorted(key, key)
            chosen = np.arange(len(key)) - first < left[key]
            left -= np.bincount(key[chosen], minlength=len(keys))
            run.alive[place[chosen]] = False
            if bool(chosen.any()):
                found[name] = np.sort(run.row[place[chosen]].astype(np.int64))
        if bool(left.any()):
            raise RecensionError("an event that was there a moment ago cannot be found; this is a defect")
        return found

    def _all(self) -> dict[str, _Run]:
        runs = {}
        for name, run in self._runs.items():
            if run is None:
                run = _run(self._read(name).identity(), self._deleted(name))
            runs[name] = run
        self._runs = {**runs}
        return runs
