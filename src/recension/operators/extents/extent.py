"""A window extent: the readings a window holds or may come to hold again, by time.

Raw readings in blocks with a directory of their times, payloads beside them. What is stored serves one query
or many. A *lazy* extent stores readings as they come, whatever is asked of them, and is coalesced when it is
scanned: all queries on one stream and window can read the same one. An *eager* extent serves one query: a run
of equal readings is stored as their times and one payload, and where readings need only be equivalent, it is
stored of each whether it continues the one before.

Readings that come and go are merged into a stretch of the extent before any query looks at them. All that
does not depend on a query is done there, once: payloads are brought together, readings are sorted by time,
and a column is hashed when a query first asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.rowhash import Hashes, column_hash, combine
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.block_table import Extract
from recension.operators.state.row_blocks import RowBlocks
from recension.operators.state.row_store import RowStore, drop_unused_rows

_SLACK = 1024
_ONE = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring readings, in order; ``first`` is how many stand before them in the extent."""

    extract: Extract
    columns: Columns
    first: int


class Extent:
    """Readings by time, each with the number of its payload and whether it begins a run."""

    def __init__(
        self, schema: pa.Schema, *, shares_payloads: bool = False, has_order_in_ties: bool = False
    ) -> None:
        """``shares_payloads``: neighbours may name one payload, and no more are kept than that saves.

        ``has_order_in_ties``: readings of one time keep their order, which a log would not tell.
        """
        self._shares, self._is_logged = shares_payloads, not has_order_in_ties
        self._table = RowBlocks({"row": np.int64, "begins": np.bool_})
        self._store = RowStore(schema)
        self._alive = 0  # about how many payloads belong to a reading
        self.forgotten = 0
        """How many readings stood before the first that is kept."""

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken by times and payloads."""
        return self._table.nbytes() + self._store.nbytes()

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()
        self._store.clear()
        self._alive = 0

    def read_between(self, low: int, high: int) -> Stretch:
        """The readings of ``[low, high]``, with their neighbours."""
        return self._stretch(self._table.extract(_ONE, _ONE + low, _ONE + high))

    def read_around(self, low: int, high: int, before: int, after: int) -> Stretch:
        """The readings of ``[low, high]`` and at least so many before and after them."""
        return self._stretch(self._table.stretch(low, high, before, after))

    def _stretch(self, extract: Extract) -> Stretch:
        columns = {name: column[~extract.follower] for name, column in extract.columns.items()}
        first = self._table.rows_before(int(extract.blocks[0])) if len(extract.blocks) else 0
        return Stretch(extract, columns, first)

    def store(self, payload: pa.RecordBatch) -> Index:
        """Keep payloads; their numbers."""
        return self._store.append(payload.select(self._store.schema.names), payload.num_rows)

    def payload(self, rows: Index) -> pa.RecordBatch:
        """Payloads by number, also of readings that have just gone."""
        return self._store.take(rows)

    def write(self, stretch: Stretch, time: Ticks, row: Index, begins: Mask) -> None:
        """Put other readings, in order, in the place of a stretch."""
        columns = {"group": np.zeros(len(time), np.int64), "time": time, "row": row, "begins": begins}
        if self._table.keeps_account:
            self._table.note(_changed_rows(stretch.columns, columns))
        self._table.replace(stretch.extract.blocks, columns)

    def first_time(self) -> int:
        """The time of the first reading kept; the end of time if there is none."""
        return self.time_at(0) if len(self) else FOREVER

    def time_at(self, place: int) -> int:
        """The time of a reading by its place among those kept."""
        return int(self._stretch(self._table.head(place + 1)).columns["time"][place])

    def count_before(self, t: int) -> int:
        """How many of the readings kept are before a time."""
        return self._table.position(0, t)

    def drop_first(self, rows: int) -> None:
        """Drop the first readings."""
        if rows <= 0:
            return
        head = self._stretch(self._table.head(rows))
        self._table.note({name: column[:rows] for name, column in head.columns.items()})
        kept = {name: column[rows:] for name, column in head.columns.items()}
        self._table.replace(head.extract.blocks, kept)
        self.forgotten += rows
        self._alive -= self._alive * rows // (len(self) + rows)  # their share, an estimate
        self.tidy()

    def tidy(self) -> None:
        """Drop payloads that belong to no reading when they are many.

        Where readings share payloads that is looked at whenever there are more by a quarter of the readings.
        """
        alive = min(self._alive, len(self))
        most = alive + len(self) // 4 if self._shares else len(self) + len(self) // 2 + _SLACK
        if len(self._store) <= most:
            return
        self._alive = drop_unused_rows(self._store, self._table, "row")

    def parts(self, name: str) -> dict[str, Any]:
        """The state under names that begin with ``name``."""
        head = pa.table({"forgotten": [self.forgotten]})
        return {
            f"{name}/readings": self._table if self._is_logged else self._table.snapshot(),
            f"{name}/head": head,
            f"{name}/rows": self._store,
        }

    def restore(self, name: str, chunks: Mapping[str, Any]) -> None:
        """Become the extent that gave these parts under this name, or take over changes."""
        self._table.restore(chunks[f"{name}/readings"])
        self.forgotten = chunks[f"{name}/head"]["forgotten"][0].as_py()
        self._store.restore(chunks[f"{name}/rows"])
        self._alive = len(self._store)


class HashedPayload:
    """A payload, and hashes of its columns."""

    def __init__(self, payload: pa.RecordBatch) -> None:
        self.payload = payload
        self._columns: dict[str, Hashes] = {}

    def hash_columns(self, names: Iterable[str], start: Hashes | None = None) -> Hashes:
        """One hash a row for these columns, and for what was hashed before them."""
        found = np.zeros(self.payload.num_rows, np.uint64) if start is None else start
        for name in names:
            if name not in self._columns:
                self._columns[name] = column_hash(self.payload.column(name))
            found = combine(found, self._columns[name])
        return found


class MergedReadings:
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
        self.hashed = HashedPayload(self.payload)
        self.gone_at = batch.vs[goes]
        self.gone = HashedPayload(take_rows(batch.payload, goes))

    def has_neighbours(self, group_by: Iterable[str], reaches: tuple[bool, bool], held: int) -> bool:
        """Has the stretch a reading before, and one after, all that comes and goes in a group?

        Or is there none to be had: it ``reaches`` as far as it need, or to the end of all that is ``held``.
        """
        names, stretch = list(group_by), self.stretch
        before = reaches[0] or stretch.first == 0
        after = reaches[1] or stretch.first + self.kept == held
        if before and after:
            return True
        of_group, kept = self.hashed.hash_columns(names)[self.source], self.time[: self.kept]
        changed = np.append(of_group[self.kept :], self.gone.hash_columns(names))
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
        place = extent.read_between(BEGINNING, FOREVER) if elsewhere else self.stretch
        extent.write(place, time, rows[source], begins)
        extent.tidy()


def distinct_rows(rows: Index) -> tuple[Index, Index]:
    """The numbers of payloads, each once, in order, and where each of those given stands among them."""
    if bool((rows[1:] > rows[:-1]).all()):  # one payload a reading, in order of arrival, as most often
        return rows, np.arange(len(rows))
    least = int(rows.min())  # numbers grow as long as the stream goes on; those in use are near each other
    is_used = np.zeros(int(rows.max()) + 1 - least, np.bool_)
    is_used[rows - least] = True
    return np.flatnonzero(is_used) + least, (np.cumsum(is_used) - 1)[rows - least]


def _changed_rows(old: Columns, new: Columns) -> Columns:
    """The rows of two tables that are not in both."""
    both = {name: np.append(old[name], new[name]) for name in old}
    hashes: Hashes = combine(
        combine(both["time"].view(np.uint64), both["row"]), both["begins"].astype(np.int64)
    )
    _, first, count = np.unique(hashes, return_index=True, return_counts=True)
    return take_columns(both, first[count == 1])


def _bounds(place: Index, times: Ticks, size: int) -> tuple[Ticks, Ticks]:
    """The least and the greatest time at each place."""
    least, greatest = np.full(size, FOREVER), np.full(size, BEGINNING)
    np.minimum.at(least, place, times)
    np.maximum.at(greatest, place, times)
    return least, greatest
