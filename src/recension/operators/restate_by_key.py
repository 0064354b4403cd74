"""The record of each key, as the row of its highest version states it.

Guarantees  the history has, of each key, the record of its highest version, interval included.
State       of each key the version that counts, its content, and what is shown of it (`Records`).
Cost        O(n log n) for n rows, and the records of their keys.
Source      design note 027, rulings K1 to K9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.netting import group_sizes
from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.validity import ADJUSTED, LATE, Policy
from recension.operators.keyed import (
    CONFLICT,
    FORGOTTEN,
    NOT_LIVE,
    RowColumns,
    RowFold,
    Rows,
    RowsByKey,
    fold_rows,
)
from recension.operators.state.end_points import is_among
from recension.operators.state.keyed_rows import Records
from recension.operators.state.leaf_table import LeafExtract, unique_numbers


class RestateByKey(RowsByKey):
    """The record of each key, as the row of its highest version states it."""

    def __init__(self, columns: RowColumns, policy: Policy, forget: int | None = None) -> None:
        self._records = Records(columns.payload, list(columns.key), forget)
        super().__init__(columns, policy, self._records)

    def _apply(self, rows: Rows, batch: EventBatch) -> EventBatch:
        # A record without duration is nowhere, as one that is deleted.
        lasts = rows.end > rows.start
        rows = replace(
            rows, is_live=rows.is_live & lasts, content=np.where(lasts, rows.content, np.int64(NOT_LIVE))
        )
        extract = self._records.read(unique_numbers(rows.group))
        forgotten = self._records.find_forgotten(extract)
        if len(forgotten):
            is_forgotten = is_among(rows.group, forgotten)
            self._note(FORGOTTEN, rows.row[is_forgotten], batch)
            rows = rows.take(~is_forgotten)
        chain, fold = self._accept(_Chain.of(extract.columns, rows), batch)
        return self._restate(chain, fold, extract, batch)

    def _accept(self, chain: _Chain, batch: EventBatch) -> tuple[_Chain, RowFold]:
        """The rows less those that are dropped, which is decided for one after the other."""
        while True:
            fold = chain.fold()
            late = chain.find_late(fold, self.out_cti)
            if self._policy == "raise":
                self._refuse_first(
                    [(LATE, chain.rows.row[late]), (CONFLICT, chain.rows.row[fold.conflicts])], batch
                )
            if self._policy == "adjust" and len(late):
                self._counts[ADJUSTED] += len(late)
            if self._policy != "drop" or not len(late):
                self._note(CONFLICT, chain.rows.row[fold.conflicts], batch)
                return chain, fold
            # What comes after a row that is dropped has to be judged anew.
            first = late[np.unique(chain.segment[late], return_index=True)[1]]
            self._note(LATE, chain.rows.row[first], batch)
            chain = chain.without(first)

    def _refuse_first(self, faults: Sequence[tuple[str, Index]], batch: EventBatch) -> None:
        found = [(int(at.min()), reason) for reason, at in faults if len(at)]
        if found:
            at, reason = min(found)
            raise self._error(reason, batch, at)

    def _restate(self, chain: _Chain, fold: RowFold, extract: LeafExtract, batch: EventBatch) -> EventBatch:
        t, rows = self.out_cti, chain.rows
        last = np.append(chain.segment[1:] != chain.segment[:-1], True).nonzero()[0][: len(rows)]
        first = np.append(0, last[:-1] + 1)[: len(last)]
        now = fold.holder[last]
        is_new = rows.row[now] >= 0
        broke = chain.find_breaks(fold, t, len(last))
        now, first, broke = now[is_new], first[is_new], broke[is_new]
        known = chain.kept_at(first)
        until, since, old_row = known["until"], known["since"], known["row"]
        has_piece = (old_row >= 0) & (until >= t)
        new = rows.take(now)
        resumes = np.maximum(since, t)
        lasts = has_piece & new.is_live & (new.content == known["content"]) & (known["is_live"] > 0)
        lasts &= (np.maximum(new.start, t) == resumes) & (~broke | (since >= t))
        begin = np.maximum(new.start, t)
        begins = ~lasts & new.is_live & (new.end > begin)
        new_row = np.where(lasts, old_row, -1)
        new_row[begins] = self._records.append(
            take_rows(batch.payload.select(self.schema.names), new.row[begins])
        )
        moved = np.maximum(new.end, resumes)
        cut = has_piece & ~lasts
        out = self._emit_changes(
            [
                (since[lasts], until[lasts], moved[lasts], old_row[lasts]),
                (since[cut], until[cut], resumes[cut], old_row[cut]),
                (begin[begins], begin[begins], new.end[begins], new_row[begins]),
            ]
        )
        self._records.drop_later(old_row[~lasts])
        columns = {
            "group": new.group,
            "time": np.zeros(len(new), np.int64),
            "version": self._store_version(new.version),
            "start": new.start,
            "end": new.end,
            "content": new.content,
            "is_live": new.is_live.astype(np.int64),
            "since": np.where(lasts, since, begin),
            "until": np.where(lasts, moved, np.where(begins, new.end, begin)),
            "row": new_row,
        }
        self._records.replace_records(extract, new.group, columns)
        self._records.look_again(np.maximum(columns["until"], columns["since"]), new.group)
        return out


@dataclass(frozen=True, slots=True)
class _Chain:
    """The records of keys and the rows that came of them, key by key in order of arrival.

    A record comes before its rows, with -1 for its place in the batch.
    """

    rows: Rows
    segment: Index
    kept: Columns
    number: Index
    """The place of each record in ``kept``, -1 of a row."""

    @classmethod
    def of(cls, kept: Columns, came: Rows) -> _Chain:
        """Records, sorted by key, and rows."""
        size = len(kept["group"])
        none = np.full(size, -1)
        known = Rows(
            none,
            kept["group"],
            kept["version"],
            kept["content"],
            kept["is_live"] > 0,
            kept["start"],
            kept["end"],
            kept["start"],
        )
        both = Rows(*(np.append(getattr(known, n), getattr(came, n)) for n in Rows.__slots__))
        order = both.group.argsort(kind="stable")
        number = np.append(np.arange(size), np.full(len(came), -1))[order]
        rows = both.take(order)
        return cls(rows, group_sizes(rows.group)[0], kept, number)

    def without(self, at: Index) -> _Chain:
        """The same without some rows. A key may be left without any."""
        stays = np.ones(len(self.rows), np.bool_)
        stays[at] = False
        rows = self.rows.take(stays)
        return replace(self, rows=rows, segment=group_sizes(rows.group)[0], number=self.number[stays])

    def fold(self) -> RowFold:
        """Which rows counted when they came."""
        rows = self.rows
        # Of what is deleted only that matters.
        start, end = np.where(rows.is_live, rows.start, 0), np.where(rows.is_live, rows.end, 0)
        return fold_rows(self.segment, rows.version, [rows.content, rows.is_live, start, end])

    def _steps(self, fold: RowFold) -> tuple[Index, Index, Mask]:
        """The rows that counted, what counted before each, and whether there was anything."""
        now = (fold.counts & (self.rows.row >= 0)).nonzero()[0]
        was = fold.holder[np.maximum(now - 1, 0)]
        return now, was, (now > 0) & (self.segment[was] == self.segment[now])

    def find_late(self, fold: RowFold, t: int) -> Index:
        """The rows that make an element before the CTI."""
        if t == BEGINNING:
            return np.zeros(0, np.int64)
        now, was, has_before = self._steps(fold)
        rows, none = self.rows, np.full(len(now), FOREVER)
        lived = has_before & rows.is_live[was]
        lives = rows.is_live[now]
        is_same = (
            lived & lives & (rows.content[was] == rows.content[now]) & (rows.start[was] == rows.start[now])
        )
        begins = np.minimum(np.where(lived, rows.start[was], none), np.where(lives, rows.start[now], none))
        moved = np.where(rows.end[was] != rows.end[now], np.minimum(rows.end[was], rows.end[now]), none)
        return now[np.where(is_same, moved, begins) < t]

    def find_breaks(self, fold: RowFold, t: int, segments: int) -> Mask:
        """Of which keys something else was said in between than what is shown."""
        now, was, has_before = self._steps(fold)
        rows = self.rows
        goes_on = (
            has_before & rows.is_live[was] & rows.is_live[now] & (rows.content[was] == rows.content[now])
        )
        goes_on &= np.maximum(rows.start[was], t) == np.maximum(rows.start[now], t)
        return np.bincount(self.segment[now[~goes_on]], minlength=segments) > 0

    def kept_at(self, first: Index) -> Columns:
        """The records that the segments with these first rows have; of those without, nothing is shown."""
        number = self.number[first]
        is_there, at = number >= 0, np.maximum(number, 0)
        if not len(self.kept["group"]):
            return {name: np.full(len(first), -1 if name == "row" else 0) for name in self.kept}
        return {
            name: np.where(is_there, column[at], -1 if name == "row" else 0)
            for name, column in self.kept.items()
        }
