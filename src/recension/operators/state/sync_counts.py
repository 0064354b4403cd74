"""How many elements have come, by sync time, as far as open intervals may ask.

From ``low`` on every sync time is kept. Before it only intervals that are open already may ask, so that it
is enough to know between which of their starts an element falls:

    open intervals        [-------------------------)
                                 [-----------------------------)
    kept                  |  3   |   5     |. . .. .  .
                                          low
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.netting import distinct
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.state.time_queue import TimeBag


class SyncCounts:
    """Intervals that are opened begin at ``low`` or later."""

    def __init__(self) -> None:
        self._low = BEGINNING
        self._recent, self._starts = TimeBag(), TimeBag()
        self._cells: Ticks = np.zeros(0, np.int64)
        self._counts: Index = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._recent) + len(self._cells)

    def nbytes(self) -> int:
        """Memory taken."""
        return 8 * (len(self._recent) + len(self._starts)) + 16 * len(self._cells)

    def open_intervals(self, starts: Ticks) -> None:
        """Intervals that begin at these times, sorted, may ask from now on."""
        self._starts.push(starts)

    def push(self, syncs: Ticks) -> None:
        """Elements with these sync times, sorted, have come."""
        cut = int(np.searchsorted(syncs, self._low))
        self._add(syncs[:cut])
        self._recent.push(syncs[cut:])

    def _add(self, syncs: Ticks) -> None:
        cells = np.searchsorted(self._cells, syncs, "right") - 1
        np.add.at(self._counts, cells[cells >= 0], 1)

    def count_within(self, vs: int, ve: int) -> int:
        """How many have come with sync times in ``[vs, ve)``, an open interval that ends after ``low``."""
        recent = self._recent.count_within(max(vs, self._low), ve)
        if vs >= self._low:
            return recent
        return recent + int(self._counts[np.searchsorted(self._cells, vs) :].sum())

    def fold_before(self, low: int, first: int) -> None:
        """No interval will be opened that begins before ``low``; none open begins before ``first``."""
        if low > self._low:
            self._low = low
            cut = np.setdiff1d(self._starts.pop_before(low), self._cells[-1:])
            self._cells = np.append(self._cells, cut)
            self._counts = np.append(self._counts, np.zeros(len(cut), np.int64))
            self._add(self._recent.pop_before(low))
        gone = int(np.searchsorted(self._cells, first))
        self._cells, self._counts = self._cells[gone:], self._counts[gone:]

    def keep_starts(self, starts: Ticks) -> None:
        """Only intervals that begin at these times, sorted, are open."""
        cells = distinct(starts[starts < self._low])
        at = np.searchsorted(cells, self._cells, "right") - 1
        counts = np.zeros(len(cells), np.int64)
        np.add.at(counts, at[at >= 0], self._counts[at >= 0])
        self._cells, self._counts = cells, counts
        self._starts = TimeBag()
        self._starts.push(starts[starts >= self._low])

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables; the starts are those of the open intervals."""
        return {
            "low": pa.table({"low": pa.array([self._low], pa.int64())}),
            "cells": pa.table({"start": self._cells.copy(), "count": self._counts.copy()}),
            "syncs": self._recent.snapshot(),
        }

    def restore(self, chunks: dict[str, pa.Table], starts: Ticks) -> None:
        """Become what gave these chunks, with intervals open that begin at these times, sorted."""
        self._low = chunks["low"]["low"][0].as_py()
        self._cells, self._counts = (chunks["cells"][name].to_numpy().copy() for name in ("start", "count"))
        self._recent.restore(chunks["syncs"])
        self.keep_starts(starts)
