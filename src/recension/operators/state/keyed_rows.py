"""What is kept of the keys of a keyed source: of each key its record, or its changes; and keys forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks, add
from recension.operators.base import Chunks
from recension.operators.state.end_points import PointsWithPayloads, is_among
from recension.operators.state.leaf_table import LeafExtract, LeafTable, unique_numbers

_NONE: Final = np.zeros(0, np.int64)


class KeyedRows(PointsWithPayloads):
    """Rows by (key, time), of which ``row`` names the payload, -1 where nothing has to be shown of it."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike], schema: pa.Schema, key: list[str]) -> None:
        super().__init__(columns, pa.schema([schema.field(name) for name in key]), schema, "keyed")

    def append(self, payload: pa.RecordBatch) -> Index:
        """Take in payloads; gives their numbers."""
        return self._store.append(payload, payload.num_rows)

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
            self._forgotten.table.clear()

    def read(self, groups: Index) -> LeafExtract:
        """The records of some keys, which are sorted."""
        zeros = np.zeros(len(groups), np.int64)
        return self._table.extract(groups, zeros, zeros)

    def find_forgotten(self, group: Index) -> Mask:
        """Which of these keys were forgotten."""
        if not len(self._forgotten):
            return np.zeros(len(group), np.bool_)
        return self._forgotten.find(self.group_hash(group))

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
        return {**super().snapshot(), "forgotten": self._forgotten.table}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._forgotten.table.restore(chunks["forgotten"])


class _ForgottenKeys:
    """The hashes of keys that were forgotten."""

    def __init__(self) -> None:
        self.table = LeafTable({})

    def __len__(self) -> int:
        return len(self.table)

    def nbytes(self) -> int:
        return self.table.nbytes()

    def find(self, hashes: Hashes) -> Mask:
        """Which of them are here."""
        wanted = np.unique(hashes.view(np.int64))
        there = self._read(wanted).columns["time"]
        if not len(there):
            return np.zeros(len(hashes), np.bool_)
        return is_among(hashes.view(np.int64), there)

    def add(self, hashes: Hashes) -> None:
        """Take in keys that are not here."""
        fresh = np.unique(hashes.view(np.int64))
        if not len(fresh):
            return
        extract = self._read(fresh)
        own = extract.columns["time"][~extract.follower]
        time = np.union1d(own, fresh)
        self.table.replace(extract, {"group": np.zeros(len(time), np.int64), "time": time})

    def _read(self, times: Index) -> LeafExtract:
        return self.table.extract(np.zeros(len(times), np.int64), times, times)


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
