"""Keyed sources: rows with keys and versions become a valid stream of inserts and retractions.

What the two kinds have in common, `restate_by_key` and `changes_by_key`: how rows are read, and what happens
to those that may not be there.

Assumes     batches of rows (inserts) in order of arrival; a row may begin before the last CTI.
Guarantees  a valid physical stream. CTIs pass unchanged. Rows that would break one are refused, dropped, or
            take effect at the CTI (`adjust`).
Source      design note 027, rulings K1 to K9.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask, empty, take_rows
from recension.core.errors import StreamError
from recension.core.formats.change_feeds import ROW_FROM
from recension.core.rowhash import row_hash
from recension.core.ticks import Ticks
from recension.core.time_kind import describe_time_in_message
from recension.core.validity import EMPTY, LATE, Policy
from recension.operators.base import Output, SingleStateOperator
from recension.operators.changes import changes, order_of_changes
from recension.operators.state.keyed_rows import KeyedRows

RETRACTION: Final = "a retraction, but the source is keyed: it takes rows and ctis"
NO_KEY: Final = "a row without a key"
NO_VERSION: Final = "a row without a version"
CONFLICT: Final = "a version that was there with other content"
FORGOTTEN: Final = "a row of a key that was forgotten"
TOO_LARGE: Final = "a version above 2**63 - 1, more than a version may be"
_ADVICE: Final = "; on_violation='drop' drops such rows"
_ADVICE_LATE: Final = f"{_ADVICE}, 'adjust' lets them count from the cti on"
NOT_LIVE: Final = 0  # the content of a row that deletes
_REMEMBERED: Final = 0  # the version of what is kept, where arrival decides


@dataclass(frozen=True)
class RowColumns:
    """The columns of the rows: those of the payload, and what some of them mean."""

    payload: pa.Schema
    key: tuple[str, ...]
    version: str | None = None
    deleted: str | None = None
    source: str | None = None
    start: str | None = None
    """What errors call the source, and the start of a row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in order of arrival; ``row`` is their place in the batch."""

    row: Index
    group: Index
    version: Index
    content: Index
    is_live: Mask
    start: Ticks
    end: Ticks
    place: Ticks
    """Where a change stands among those of its key."""

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: Index | Mask) -> Rows:
        """Some of them."""
        return Rows(*(getattr(self, name)[at] for name in self.__slots__))


class RowsByKey(SingleStateOperator):
    """What the two kinds have in common: reading rows, and what happens to those that may not be."""

    changes_on_cti = False
    shards_share_ctis = True

    def __init__(self, columns: RowColumns, policy: Policy, state: KeyedRows) -> None:
        super().__init__(columns.payload, state)
        self._columns, self._policy, self._rows = columns, policy, state

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        if bool(batch.kind.any()):
            raise self._error(RETRACTION, batch, int(np.argmax(batch.kind != INSERT)), "")
        rows = self._read(batch)
        out = self._apply(rows, batch) if len(rows) else empty(self.schema)
        self._rows.tidy()
        return out

    @abstractmethod
    def _apply(self, rows: Rows, batch: EventBatch) -> EventBatch:
        """What the rows change."""

    def on_cti(self, port: int, t: int) -> Output:
        self._rows.advance(t)
        return self.emit(t)

    def _read(self, batch: EventBatch) -> Rows:
        """The rows that have a key and a version, and do not end before they begin."""
        payload, size = batch.payload, len(batch)
        at = np.arange(size)
        for name in self._columns.key:
            at = self._leave_out(batch, at, _nulls(payload.column(name)), NO_KEY)
        version = 1 + np.arange(size)
        if self._columns.version is not None:
            column = payload.column(self._columns.version)
            at = self._leave_out(batch, at, _nulls(column), NO_VERSION)
            version = self._read_versions(column, batch)
        is_live = np.ones(size, np.bool_)
        if self._columns.deleted is not None:
            deleted = payload.column(self._columns.deleted)
            is_live = ~deleted.fill_null(False).to_numpy(zero_copy_only=False)
        # The interval of a row that deletes does not matter.
        at = self._leave_out(batch, at, is_live & (batch.ve < batch.vs), EMPTY)
        is_live = is_live[at]
        kept = payload if len(at) == size else take_rows(payload, at)
        own = kept.select(self.schema.names)
        content = np.where(is_live, row_hash(own, len(at)).view(np.int64), NOT_LIVE)
        group = self._rows.number(kept.select(list(self._columns.key)), len(at))
        start = batch.vs[at]
        return Rows(at, group, version[at], content, is_live, start, batch.ve[at], start)

    def _leave_out(self, batch: EventBatch, at: Index, is_bad: Mask | None, reason: str) -> Index:
        if is_bad is None or not bool(is_bad.any()):
            return at
        self._note(reason, at[is_bad[at]], batch)
        left: Index = at[~is_bad[at]]
        return left

    def _read_versions(self, column: pa.Array, batch: EventBatch) -> Index:
        """As whole numbers; anything where they are null."""
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        if pa.types.is_uint64(column.type):
            numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
            if bool((is_large := numbers > np.iinfo(np.int64).max).any()):
                raise self._error(TOO_LARGE, batch, int(np.argmax(is_large)), "")
        versions: Index = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return versions

    def _note(self, reason: str, at: Index, batch: EventBatch) -> None:
        """Refuse rows of a batch, or drop and count them."""
        if not len(at):
            return
        if self._policy == "raise":
            raise self._error(reason, batch, int(at.min()))
        self._counts[reason] += len(at)
        self._dropped.append((reason, batch.take(np.sort(at))))

    def _error(self, reason: str, batch: EventBatch, at: int, advice: str | None = None) -> StreamError:
        names = [*self._columns.key, *([self._columns.version] if self._columns.version else [])]
        # The start of a row of an SCD table is part of its key, and said as a time.
        said = [
            f"{name} {batch.payload.column(name)[at].as_py()!r}"
            for name in dict.fromkeys(names)
            if name != ROW_FROM
        ]
        said.append(f"{self._columns.start or 'from'} {describe_time_in_message(int(batch.vs[at]))}")
        if reason == EMPTY:
            said.append(f"until {describe_time_in_message(int(batch.ve[at]))}")
        if advice is None:
            advice = _ADVICE_LATE if reason == LATE else _ADVICE
        return StreamError(f"{reason}: {', '.join(said)}{advice}", file=self._columns.source)

    def _store_version(self, version: Index) -> Index:
        """Where arrival decides, whatever comes next counts more than what is kept."""
        return version if self._columns.version is not None else np.full(len(version), _REMEMBERED)

    def _emit_changes(self, parts: Sequence[tuple[Ticks, Ticks, Ticks, Index]]) -> EventBatch:
        """Elements that move ends, given starts, old ends, new ends and payloads; those that do not go."""
        vs, old, new, row = (np.concatenate(column) for column in zip(*parts, strict=True))
        moves = (old != new).nonzero()[0]
        vs, old, new, row = vs[moves], old[moves], new[moves], row[moves]
        order = order_of_changes(vs, old, new)
        return changes(vs[order], old[order], new[order], self._rows.payload(row[order]))


def _nulls(column: pa.Array) -> Mask | None:
    """Where a column is null; None if it is nowhere."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


@dataclass(frozen=True, slots=True)
class RowFold:
    """Rows of segments, one after the other as they came: which of them counted from then on.

    ``holder`` is the last row up to each that counted, ``conflicts`` marks rows with its version and other
    content.
    """

    counts: Mask
    holder: Index
    conflicts: Mask


def fold_rows(segment: Index, version: Index, is_same: Sequence[Index | Mask]) -> RowFold:
    """``segment`` numbers segments in order; ``is_same`` are the columns of the content."""
    size = len(segment)
    if not size:
        return RowFold(np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    low, high = int(version.min()), int(version.max())
    if high - low >= (1 << 62) // (int(segment[-1]) + 1):
        version, low = np.unique(version, return_inverse=True)[1].reshape(-1), 0
        high = size
    code = segment * (high - low + 1) + (version - low)
    before = np.append(np.int64(-1), np.maximum.accumulate(code)[:-1])
    counts = code > before
    is_first = np.append(True, segment[1:] != segment[:-1])
    counts |= is_first
    holder = np.maximum.accumulate(np.where(counts, np.arange(size), 0))
    differs = np.zeros(size, np.bool_)
    for column in is_same:
        differs |= column != column[holder]
    return RowFold(counts, holder, (code == before) & ~is_first & differs)
