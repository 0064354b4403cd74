"""What is kept of the keys of a keyed source: of each key its record, or its changes; and keys forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.change_log import Change
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns, SortedRuns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add
from recension.operators.base import Chunks
from recension.operators.state.end_points import PointsWithPayloads, is_among
from recension.operators.state.leaf_table import LeafExtract, unique_numbers

_NONE: Final = np.zeros(0, np.int64)


class KeyedRows(PointsWithPayloads):
    """Rows by (key, time), of which ``row`` names the payload, -1 where nothing has to be shown of it."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], schema: pa.Schema, key: list[str]) -> None:
        # The payloads that came with the batch, and the number of the first: most of what is put out.
        self._fresh: list[pa.RecordBatch] = []
        self._first = 0
        super().__init__(columns, pa.schema([schema.field(name) for name in key]), schema, "keyed")

    def append(self, payload: pa.RecordBatch) -> Index:
        """Take in payloads; gives their numbers, which follow each other."""
        numbers = self._store.append(payload, payload.num_rows)
        self._fresh, self._first = ([payload], int(numbers[0])) if len(numbers) else ([], 0)
        return numbers

    def payload(self, rows: Index) -> pa.RecordBatch:
        is_fresh = rows >= self._first
        if not self._fresh or not bool(is_fresh.any()):
            return super().payload(rows)
        kept = (~is_fresh).nonzero()[0]
        place = len(kept) + rows - self._first
        place[kept] = np.arange(len(kept))
        return take_rows(pa.concat_batches([super().payload(rows[kept]), *self._fresh]), place)

    def tidy(self) -> None:
        super().tidy()
        self._fresh = []

    def drop_later(self, rows: Index) -> None:
        """These payloads are not needed any more once the batch is put out."""
        self._unnamed.append(rows[rows >= 0])

    def look_again(self, time: Ticks, group: Index) -> None:
        """Look at keys again once the CTI has passed these times."""
        is_due = time < FOREVER
        self._expiring.push(time[is_due], group[is_due])

    def write(self, extract: LeafExtract, columns: Columns) -> None:
        """Put new rows in the place of those of an extract."""
        self._table.replace(extract, columns)
        groups = extract.leaves
        if len(extract.blocks):
            groups = unique_numbers(np.concatenate([groups, columns["group"]]))
        self._count(groups)


class Records(KeyedRows):
    """One row a key: the version that counts, its content, and what is shown of it (``since``, ``until``)."""

    def __init__(self, schema: pa.Schema, key: list[str], forget: int | None) -> None:
        self._forget_after = forget
        self._forgotten = _ForgottenKeys()
        names = ("version", "start", "end", "content", "is_live", "since", "until", "row")
        super().__init__(dict.fromkeys(names, np.int64), schema, key)

    def __len__(self) -> int:
        return super().__len__() + len(self._forgotten)

    def nbytes(self) -> int:
        return super().nbytes() + self._forgotten.nbytes()

    def advance(self, t: int) -> None:
        super().advance(t)
        if t == FOREVER:
            self._forgotten.clear()

    def read(self, groups: Index) -> LeafExtract:
        """The records of some keys, which are sorted."""
        zeros = np.zeros(len(groups), np.int64)
        return self._table.extract(groups, zeros, zeros)

    def find_forgotten(self, extract: LeafExtract) -> Index:
        """The keys of an extract that were forgotten: they are among those without a record."""
        if not len(self._forgotten):
            return _NONE
        known = extract.columns["group"]
        groups = extract.leaves[~is_among(extract.leaves, known)] if len(known) else extract.leaves
        return groups[self._forgotten.find(self.group_hash(groups))]

    def replace_records(self, extract: LeafExtract, groups: Index, columns: Columns) -> None:
        """Put ``columns`` in the place of the records of some groups of an extract."""
        if not len(groups):
            return
        kept = take_columns(extract.columns, is_among(extract.columns["group"], groups))
        none = np.zeros(len(kept["group"]), np.bool_)
        self.write(LeafExtract(_NONE, kept, none, groups), columns)

    def _forget_past(self, t: int) -> None:
        """Payloads go when the CTI has passed the end; records later, if they are to be forgotten at all."""
        groups = self._pop_due(t)
        if not len(groups):
            return
        extract = self.read(groups)
        rows, over = extract.columns, np.maximum(extract.columns["until"], extract.columns["since"])
        is_shown, goes = rows["row"] >= 0, np.zeros(len(over), np.bool_)
        if self._forget_after is not None:
            due = add(over, self._forget_after)
            goes, later = due < t, (over < t) & (due >= t)
            self.look_again(due[later], rows["group"][later])
            self._forgotten.add(self.group_hash(rows["group"][goes]))
        is_past = (over < t) & (is_shown | goes)
        self.drop_later(rows["row"][is_past])
        left = rows | {"row": np.full(len(over), -1)}
        self.replace_records(extract, rows["group"][is_past], take_columns(left, is_past & ~goes))

    def snapshot(self) -> Chunks:
        return {**super().snapshot(), "forgotten": self._forgotten}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._forgotten.restore(chunks["forgotten"])


class _ForgottenKeys(SortedRuns):
    """The hashes of keys that were forgotten. They only come, so that a checkpoint stores those that came."""

    key: Final = ("hash",)

    def __init__(self) -> None:
        super().__init__({"hash": np.int64})

    def clear(self) -> None:
        super().clear()
        # Those that came since the last checkpoint; None: all may have.
        self._fresh: list[Index] | None = None

    def find(self, hashes: Hashes) -> Mask:
        """Which of them, each there once, are here."""
        there = self.find_rows(np.sort(hashes.view(np.int64)))["hash"]
        return is_among(hashes.view(np.int64), there) if len(there) else np.zeros(len(hashes), np.bool_)

    def add(self, hashes: Hashes) -> None:
        """Take in keys that are not here."""
        self.push(hashes.view(np.int64))
        if self._fresh is not None:
            self._fresh.append(hashes.view(np.int64))

    def restore(self, table: pa.Table | Change, expired_before: int = BEGINNING) -> None:
        """Become what `snapshot` gave, or take over changes."""
        if not isinstance(table, Change):
            super().restore(table, expired_before)
        elif table.is_whole:
            super().restore(table.rows, expired_before)
            self._fresh = []
        else:
            self.push(table.rows["hash"].to_numpy())
            self._fresh = []

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        fresh, self._fresh = self._fresh, []
        rows = self.snapshot() if fresh is None else pa.table({"hash": np.concatenate([_NONE, *fresh])})
        rows = rows.sort_by("hash")
        return Change(rows, rows.slice(0, 0), is_whole=fresh is None)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        return self.find(change.rows["hash"].to_numpy().view(np.uint64)), np.zeros(0, np.bool_)


class Changes(KeyedRows):
    """The changes of each key by their places, ``time``: each holds from ``since`` until that of the next."""

    def __init__(self, schema: pa.Schema, key: list[str], *, keeps_deleted: bool) -> None:
        self._keeps_deleted = keeps_deleted
        names = ("version", "start", "since", "content", "row")
        super().__init__(dict.fromkeys(names, np.int64), schema, key)

    def _forget_past(self, t: int) -> None:
        """Of what began before the CTI the last change stays, if it holds."""
        groups = self._pop_due(t)
        if not len(groups):
            return
        extract = self._table.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), FOREVER))
        rows, group = extract.columns, extract.columns["group"]
        is_past = (rows["since"] < t) & ~extract.follower & is_among(group, groups)
        is_last = is_past & ~np.append(is_past[1:] & (group[1:] == group[:-1]), False)
        stays = is_last if self._keeps_deleted else is_last & (rows["row"] >= 0)
        gone = is_past & ~stays
        self.drop_later(rows["row"][gone])
        self._table.forget(extract, gone)
        self._count(groups)
