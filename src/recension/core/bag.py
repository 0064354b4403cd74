"""A bag of events known by hash, for asking "is it still there?" at a cost that grows with the question.

Kept as a few sorted runs of signed counts, each at least twice as long as the next (a log-structured
merge): adding a batch sorts the batch, and now and then merges runs of similar length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.netting import group_sizes
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks


@dataclass(frozen=True, slots=True)
class _Run:
    keys: Hashes
    counts: Index
    ends: Ticks


class EventBag:
    """How often each event is present; events that ended before the last CTI are forgotten."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._frontier = BEGINNING

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self._runs)

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self)

    def count(self, keys: Hashes) -> Index:
        """How often each of the keys is present now."""
        total = np.zeros(len(keys), np.int64)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run.keys, keys), len(run.keys) - 1)
            total += np.where(run.keys[at] == keys, run.counts[at], 0)
        return total

    def change(self, keys: Hashes, deltas: Index, ends: Ticks) -> None:
        """Add (or with a negative delta remove) events; ``ends`` tells when they can be forgotten."""
        self._runs.append(_summed(keys, deltas, ends))
        while len(self._runs) > 1 and 2 * len(self._runs[-1].keys) >= len(self._runs[-2].keys):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merged(before, last))
        if not len(self._runs[-1].keys):
            self._runs.pop()

    def forget_before(self, t: int) -> None:
        """No event that ends before ``t`` will be asked for again, at the end of time none at all.

        The space is freed by later merges.
        """
        self._frontier = t
        if t == FOREVER:
            self._runs = []
        elif self._runs and bool((self._runs[0].ends < t).mean() > 0.5):
            self._runs = [run for run in (self._live(run) for run in self._runs) if len(run.keys)]

    def latest_end(self) -> int:
        """The last end of any event present, BEGINNING if there is none."""
        while len(self._runs) > 1:
            self._runs.append(self._merged(self._runs.pop(), self._runs.pop()))
        return int(self._runs[0].ends.max(initial=BEGINNING)) if self._runs else BEGINNING

    def to_arrow(self) -> pa.Table:
        """Everything present."""
        columns = {name: [getattr(run, name) for run in self._runs] for name in ("keys", "counts", "ends")}
        types = {"keys": np.uint64, "counts": np.int64, "ends": np.int64}
        return pa.table({n: np.concatenate([np.zeros(0, types[n]), *parts]) for n, parts in columns.items()})

    def load(self, table: pa.Table, frontier: int) -> None:
        """Become the bag that `to_arrow` gave, with everything before ``frontier`` forgotten."""
        self._runs, self._frontier = [], frontier
        if table.num_rows:
            self.change(*(table[name].to_numpy() for name in ("keys", "counts", "ends")))

    def _merged(self, a: _Run, b: _Run) -> _Run:
        return self._live(
            _summed(
                np.concatenate([a.keys, b.keys]),
                np.concatenate([a.counts, b.counts]),
                np.concatenate([a.ends, b.ends]),
                kind="stable",
            )
        )

    def _live(self, run: _Run) -> _Run:
        keep = run.ends >= self._frontier
        return run if bool(keep.all()) else _Run(run.keys[keep], run.counts[keep], run.ends[keep])


def _summed(keys: Hashes, deltas: Index, ends: Ticks, kind: Literal["stable"] | None = None) -> _Run:
    """Sorted by key, one row a key, without those that sum to nothing; a stable sort merges sorted runs."""
    order = np.argsort(keys, kind=kind)
    keys, deltas, ends = keys[order], deltas[order], ends[order]
    _, sizes = group_sizes(keys)
    first = np.cumsum(sizes) - sizes
    totals = np.add.reduceat(deltas, first) if len(first) else deltas
    keep = first[totals != 0]
    return _Run(keys[keep], totals[totals != 0], ends[keep])
