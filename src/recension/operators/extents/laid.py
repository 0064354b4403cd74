"""Readings that come and go laid over a stretch of an extent, before any query looks at them.

All that does not depend on a query is done here, once for all queries that read one extent: payloads are
brought together, readings are put in order of time, and a column is hashed when a query first asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.rowhash import Hashes, column_hash, combine
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.extents.extent import Extent, Stretch


class Hashed:
    """A payload, and hashes of its columns."""

    def __init__(self, payload: pa.RecordBatch) -> None:
        self.payload = payload
        self._columns: dict[str, Hashes] = {}

    def of(self, names: Iterable[str], start: Hashes | None = None) -> Hashes:
        """One hash a row for these columns, and for what was hashed before them."""
        found = np.zeros(self.payload.num_rows, np.uint64) if start is None else start
        for name in names:
            if name not in self._columns:
                self._columns[name] = column_hash(self.payload.column(name))
            found = combine(found, self._columns[name])
        return found


class Laid:
    """The readings of a stretch, so many ``kept``, and after them those that come.

    ``source`` is where each has its payload, among the ``known`` rows of the extent and after them those of
    the batch; ``order`` puts them in order of time, and ``has_ties`` says whether two are of one time.
    """

    def __init__(
        self, extent: Extent, stretch: Stretch, batch: EventBatch, changed: tuple[Index, Index]
    ) -> None:
        comes, goes = changed
        self.stretch, self.kept = stretch, len(stretch.columns["row"])
        self.known, place = distinct_rows(stretch.columns["row"])
        self.source: Index = np.append(place, len(self.known) + np.arange(len(comes)))
        self.time = np.append(stretch.columns["time"], batch.vs[comes])
        self.began = np.append(stretch.columns["begins"], np.ones(len(comes), np.bool_))
        self.order: Index = np.argsort(self.time, kind="stable")
        in_order = self.time[self.order]
        self.has_ties = bool((in_order[1:] == in_order[:-1]).any())
        coming = batch.payload if len(comes) == len(batch) else take_rows(batch.payload, comes)
        self.payload = pa.concat_batches([extent.payload(self.known), coming])
        self.hashed = Hashed(self.payload)
        self.gone_at = batch.vs[goes]
        self.gone = Hashed(take_rows(batch.payload, goes))

    def has_neighbours(self, group_by: Iterable[str], reaches: tuple[bool, bool], held: int) -> bool:
        """Has the stretch a reading before, and one after, all that comes and goes in a group?

        Or is there none to be had: it ``reaches`` as far as it need, or to the end of all that is ``held``.
        """
        names, stretch = list(group_by), self.stretch
        before = reaches[0] or stretch.first == 0
        after = reaches[1] or stretch.first + self.kept == held
        if before and after:
            return True
        of_group, kept = self.hashed.of(names)[self.source], self.time[: self.kept]
        changed = np.append(of_group[self.kept :], self.gone.of(names))
        times = np.append(self.time[self.kept :], self.gone_at)
        groups, place = np.unique(changed, return_inverse=True)
        at = np.minimum(np.searchsorted(groups, of_group[: self.kept]), len(groups) - 1)
        own = groups[at] == of_group[: self.kept]
        first, last = _bounds(place, times, len(groups))
        low, high = _bounds(at[own], kept[own], len(groups))
        return bool((before | (low < first)).all() and (after | (high > last)).all())

    def write(
        self, extent: Extent, time: Ticks, source: Index, begins: Mask, *, elsewhere: bool = False
    ) -> None:
        """Put readings, in order, where the stretch was; or ``elsewhere``, into an extent that is empty."""
        known = self.known[:0] if elsewhere else self.known
        is_used = np.zeros(self.payload.num_rows, np.bool_)
        is_used[source] = True
        is_used[: len(known)] = False
        rows, fresh = np.full(self.payload.num_rows, -1), np.flatnonzero(is_used)
        rows[: len(known)] = known
        rows[fresh] = extent.store(take_rows(self.payload, fresh))
        place = extent.between(BEGINNING, FOREVER) if elsewhere else self.stretch
        extent.write(place, time, rows[source], begins)
        extent.tidy()


def distinct_rows(rows: Index) -> tuple[Index, Index]:
    """The numbers of payloads, each once, in order, and where each of those given stands among them."""
    least = int(rows.min(initial=0))
    is_used = np.zeros(int(rows.max(initial=-1)) + 1 - least, np.bool_)
    is_used[rows - least] = True
    return np.flatnonzero(is_used) + least, (np.cumsum(is_used) - 1)[rows - least]


def _bounds(place: Index, times: Ticks, size: int) -> tuple[Ticks, Ticks]:
    """The least and the greatest time at each place."""
    least, greatest = np.full(size, FOREVER), np.full(size, BEGINNING)
    np.minimum.at(least, place, times)
    np.maximum.at(greatest, place, times)
    return least, greatest
