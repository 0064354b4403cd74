"""Events with their payloads in the order of their starts, changed and taken out a few at a time.

A table sorted by (start, hash of the payload) and a `RowStore` for the payloads. The events of the
first start stand apart, in the order in which they come out:

start   |=====)                 out
        |==========)            first: held back while its end may still move
        |===)                   waits behind it, by the order of payloads, though it has ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.changes import NetChanges
from recension.operators.state.block_table import Extract
from recension.operators.state.row_blocks import RowBlocks
from recension.operators.state.row_store import RowStore

_FIRST_LOOK = 64
_FIRST_READ = 256  # to read a few blocks takes hardly longer than to read one
_IDENTITY: Final = ("group", "time", "end")


class EventsByStart:
    """A bag of events; in a table's rows ``group`` is the start and ``time`` the hash of the payload."""

    def __init__(self, schema: pa.Schema) -> None:
        self._table = RowBlocks({"end": np.int64, "row": np.int64})
        self._store = RowStore(schema)

    def __len__(self) -> int:
        return len(self._table)

    def nbytes(self) -> int:
        """Memory taken."""
        return self._table.nbytes() + self._store.nbytes()

    def apply(self, change: NetChanges, payload: pa.RecordBatch) -> None:
        """Take over the net changes of a batch; ``payload`` has the rows of the batch that they name."""
        gone, come = (change.old != change.vs).nonzero()[0], (change.new > change.vs).nonzero()[0]
        added = _table_rows(change, come, change.new)
        added["row"] = self._store.append(take_rows(payload, change.row[come]), len(come))
        removed = self._table.exchange(_table_rows(change, gone, change.old), added, _IDENTITY)
        self.drop(removed["row"])

    def add(self, rows: Columns) -> None:
        """Take in rows that were taken out."""
        self._table.exchange(self._table.empty_columns(), rows)

    def read_until_open(self, t: int) -> Extract:
        """The first blocks: all events that start no later than the first that does not end before ``t``."""
        rows = _FIRST_READ
        while True:
            head = self._table.head(rows)
            start, rows = head.columns["group"], len(head.follower)
            at = (
                int(np.argmax(is_open)) if bool((is_open := is_open_at(head.columns["end"], t)).any()) else -1
            )
            if not bool(head.follower.any()) or (at >= 0 and start[-1] > start[at]):
                return head
            rows *= 2

    def first_start(self) -> int:
        """The least start; the end of time if there is none."""
        return int(self._table.head(1).columns["group"][0]) if len(self) else FOREVER

    def take_before(self, t: int) -> tuple[Ticks, Ticks, Index]:
        """Take out the events that start before ``t``: their starts, ends and rows, by start.

        Whoever takes them drops the rows.
        """
        head = self._table.head(self._table.position(t, BEGINNING))
        is_out = (head.columns["group"] < t) & ~head.follower
        self.keep(head, ~(is_out | head.follower))
        start, end, row = (head.columns[name][is_out] for name in ("group", "end", "row"))
        return start, end, row

    def is_endless(self) -> bool:
        """Is there an event that never ends?"""
        return bool(len(self)) and FOREVER in self._table.head(len(self)).columns["end"]

    def payload(self, rows: Index) -> pa.RecordBatch:
        """The payloads of rows of the table."""
        return self._store.take(rows)

    def keep(self, head: Extract, kept: Mask) -> None:
        """Only these events of the first blocks stay."""
        self._table.note(take_columns(head.columns, ~kept & ~head.follower))
        self._table.replace(head.blocks, take_columns(head.columns, kept))

    def drop(self, rows: Index) -> None:
        """Let go of the payloads of events that are gone."""
        self._store.drop(rows)

    def parts(self, name: str) -> dict[str, Any]:
        """The state under names that begin with ``name``."""
        return {f"{name}/events": self._table, f"{name}/rows": self._store}

    def restore(self, name: str, chunks: Mapping[str, Any]) -> None:
        """Become what gave these parts under this name, or take over changes."""
        self._table.restore(chunks[f"{name}/events"])
        self._store.restore(chunks[f"{name}/rows"])


def is_open_at(end: Ticks, t: int) -> Mask:
    """Which ends may still move after a CTI; at the end of time none."""
    return (end >= t) & (t < FOREVER)


def _table_rows(change: NetChanges, at: Index, end: Ticks) -> Columns:
    return {"group": change.vs[at], "time": change.hash[at].view(np.int64), "end": end[at]}


@dataclass(slots=True, eq=False)
class Front:
    """By (payload, end). Those before ``at`` are out; one that was removed ends at the beginning of time."""

    start: int
    end: Ticks
    row: Index
    hash: Hashes
    at: int = 0
    _by_hash: tuple[Hashes, Index] | None = field(default=None)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.end[self.at :] > BEGINNING))

    @property
    def first_end(self) -> int:
        """Until when the first holds back all others."""
        return int(self.end[self.at])

    def nbytes(self) -> int:
        """Memory taken."""
        return 24 * len(self.end) * (1 if self._by_hash is None else 2)

    def release(self, t: int) -> tuple[Ticks, Index]:
        """Take out those that are final at ``t``, up to the first that is not: their ends and rows."""
        start, width = self.at, _FIRST_LOOK
        while self.at < len(self.end):
            is_open = is_open_at(self.end[self.at : self.at + width], t)
            if bool(is_open.any()):
                self.at += int(np.argmax(is_open))
                break
            self.at, width = self.at + len(is_open), 2 * width
        out = start + (self.end[start : self.at] > BEGINNING).nonzero()[0]
        return self.end[out], self.row[out]

    def change(self, change: NetChanges) -> Index | None:
        """Move ends; gives the rows of events that go. None, and nothing has changed, if that is not enough.

        It is enough for events whose payload no other here has: their place does not depend on their end.
        """
        if not len(change):
            return change.row[:0]
        if self._by_hash is None:
            order = self.hash.argsort()
            self._by_hash = self.hash[order], order
        hashes, order = self._by_hash
        found = np.minimum(hashes.searchsorted(change.hash), len(hashes) - 1)
        is_alone = hashes.searchsorted(change.hash, "right") - found == 1
        place = order[found]
        if not bool((is_alone & (place >= self.at) & (self.end[place] == change.old)).all()):
            return None
        stays = change.new > change.vs
        self.end[place] = np.where(stays, change.new, np.int64(BEGINNING))
        return self.row[place[~stays]]

    @staticmethod
    def restore(rows: pa.Table) -> Front:
        """The front whose rows these are."""
        end, row, payload_hash = (rows[name].to_numpy().copy() for name in ("end", "row", "time"))
        return Front(rows["group"][0].as_py(), end, row, payload_hash.view(np.uint64))

    def rows(self) -> Columns:
        """What is not out, as rows of a table of events by start."""
        at = self.at + (self.end[self.at :] > BEGINNING).nonzero()[0]
        start = np.full(len(at), self.start)
        return {
            "group": start,
            "time": self.hash[at].view(np.int64),
            "end": self.end[at],
            "row": self.row[at],
        }
