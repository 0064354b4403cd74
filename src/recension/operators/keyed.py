"""Keyed sources: rows with keys and versions become a valid stream of inserts and retractions.

Assumes     batches of rows (inserts) in order of arrival; a row may begin before the last CTI.
Guarantees  a valid physical stream. Its history has, of each key, the record of the highest version
            (`RestateByKey`), or each change until the next of its key (`ChangesByKey`). CTIs pass unchanged.
            Rows that would break one are refused, dropped, or take effect at the CTI (`adjust`).
State       of each key the record that counts; or its changes from the last CTI on and one before it.
Cost        O(n log n) for n rows, and the state of their keys. Rows that may be late are judged one by one.
Source      design note 027, rulings K1 to K9.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, Mask, empty, take_rows
from recension.core.errors import StreamError
from recension.core.formats.change_feeds import ROW_FROM
from recension.core.netting import group_sizes
from recension.core.rowhash import row_hash
from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.time_kind import describe_time_in_message
from recension.core.validity import ADJUSTED, EMPTY, LATE, Policy
from recension.operators.base import Output, SingleStateOperator
from recension.operators.changes import changes, order_of_changes
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import align_moments, is_among
from recension.operators.state.keyed_rows import Changes, KeyedRows, Records
from recension.operators.state.leaf_table import LeafExtract, unique_numbers

Order: TypeAlias = Literal["start", "version"]

RETRACTION: Final = "a retraction, but the source is keyed: it takes rows and ctis"
NO_KEY: Final = "a row without a key"
NO_VERSION: Final = "a row without a version"
CONFLICT: Final = "a version that was there with other content"
FORGOTTEN: Final = "a row of a key that was forgotten"
TOO_LARGE: Final = "a version above 2**63 - 1, more than a version may be"
_ADVICE: Final = "; on_violation='drop' drops such rows"
_ADVICE_LATE: Final = f"{_ADVICE}, 'adjust' lets them count from the cti on"
_NOT_LIVE: Final = 0  # the content of a row that deletes
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
        content = np.where(is_live, row_hash(own, len(at)).view(np.int64), _NOT_LIVE)
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
        moves = np.flatnonzero(old != new)
        vs, old, new, row = vs[moves], old[moves], new[moves], row[moves]
        order = order_of_changes(vs, old, new)
        return changes(vs[order], old[order], new[order], self._rows.payload(row[order]))


def _nulls(column: pa.Array) -> Mask | None:
    """Where a column is null; None if it is nowhere."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


@dataclass(frozen=True, slots=True)
class _Fold:
    """Rows of segments, one after the other as they came: which of them counted from then on.

    ``holder`` is the last row up to each that counted, ``conflicts`` marks rows with its version and other
    content.
    """

    counts: Mask
    holder: Index
    conflicts: Mask


def _fold(segment: Index, version: Index, is_same: Sequence[Index | Mask]) -> _Fold:
    """``segment`` numbers segments in order; ``is_same`` are the columns of the content."""
    size = len(segment)
    if not size:
        return _Fold(np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros(0, np.bool_))
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
    return _Fold(counts, holder, (code == before) & ~is_first & differs)


class RestateByKey(RowsByKey):
    """The record of each key, as the row of its highest version states it."""

    def __init__(self, columns: RowColumns, policy: Policy, forget: int | None = None) -> None:
        self._records = Records(columns.payload, list(columns.key), forget)
        super().__init__(columns, policy, self._records)

    def _apply(self, rows: Rows, batch: EventBatch) -> EventBatch:
        # A record without duration is nowhere, as one that is deleted.
        lasts = rows.end > rows.start
        rows = replace(
            rows, is_live=rows.is_live & lasts, content=np.where(lasts, rows.content, np.int64(_NOT_LIVE))
        )
        extract = self._records.read(unique_numbers(rows.group))
        forgotten = self._records.find_forgotten(extract)
        if len(forgotten):
            is_forgotten = is_among(rows.group, forgotten)
            self._note(FORGOTTEN, rows.row[is_forgotten], batch)
            rows = rows.take(~is_forgotten)
        chain, fold = self._accept(_Chain.of(extract.columns, rows), batch)
        return self._restate(chain, fold, extract, batch)

    def _accept(self, chain: _Chain, batch: EventBatch) -> tuple[_Chain, _Fold]:
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

    def _restate(self, chain: _Chain, fold: _Fold, extract: LeafExtract, batch: EventBatch) -> EventBatch:
        t, rows = self.out_cti, chain.rows
        last = np.flatnonzero(np.append(chain.segment[1:] != chain.segment[:-1], True))[: len(rows)]
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
        order = np.argsort(both.group, kind="stable")
        number = np.append(np.arange(size), np.full(len(came), -1))[order]
        rows = both.take(order)
        return cls(rows, group_sizes(rows.group)[0], kept, number)

    def without(self, at: Index) -> _Chain:
        """The same without some rows. A key may be left without any."""
        stays = np.ones(len(self.rows), np.bool_)
        stays[at] = False
        rows = self.rows.take(stays)
        return replace(self, rows=rows, segment=group_sizes(rows.group)[0], number=self.number[stays])

    def fold(self) -> _Fold:
        """Which rows counted when they came."""
        rows = self.rows
        # Of what is deleted only that matters.
        start, end = np.where(rows.is_live, rows.start, 0), np.where(rows.is_live, rows.end, 0)
        return _fold(self.segment, rows.version, [rows.content, rows.is_live, start, end])

    def _steps(self, fold: _Fold) -> tuple[Index, Index, Mask]:
        """The rows that counted, what counted before each, and whether there was anything."""
        now = np.flatnonzero(fold.counts & (self.rows.row >= 0))
        was = fold.holder[np.maximum(now - 1, 0)]
        return now, was, (now > 0) & (self.segment[was] == self.segment[now])

    def find_late(self, fold: _Fold, t: int) -> Index:
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

    def find_breaks(self, fold: _Fold, t: int, segments: int) -> Mask:
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
            is_there, at = np.zeros(len(first), np.bool_), np.zeros(len(first), np.int64)
            return {name: np.full(len(first), -1 if name == "row" else 0) for name in self.kept}
        return {
            name: np.where(is_there, column[at], -1 if name == "row" else 0)
            for name, column in self.kept.items()
        }


@dataclass(slots=True, order=True)
class _Moment:
    """A change of a key while late rows are judged."""

    place: int
    version: int = field(compare=False)
    start: int = field(compare=False)
    since: int = field(compare=False)
    content: int = field(compare=False)


class ChangesByKey(RowsByKey):
    """Each change of a key holds until the next; they stand by (start, version), or by version."""

    def __init__(self, columns: RowColumns, policy: Policy, order: Order = "start") -> None:
        self._by_version = order == "version"
        # By version, a row that came before a delete in the log may begin after the CTI.
        keeps_deleted = policy == "adjust" or self._by_version
        self._changes = Changes(columns.payload, list(columns.key), keeps_deleted=keeps_deleted)
        super().__init__(columns, policy, self._changes)

    def _apply(self, rows: Rows, batch: EventBatch) -> EventBatch:
        if self._by_version:
            rows = replace(rows, place=rows.version)
        may_be_late = self._find_doubtful(rows)
        if bool(may_be_late.any()):
            rows = self._judge_late(rows, may_be_late, batch)
            if not len(rows):
                return empty(self.schema)
        rows = rows.take(np.argsort(sort_keys([rows.group], [rows.place])[0], kind="stable"))
        if self._by_version:
            return self._merge(rows, self._read_all(unique_numbers(rows.group)), batch)
        group, time = _distinct(rows.group, rows.place)
        return self._merge(rows, self._changes.extract(group, time, time), batch)

    def _read_all(self, groups: Index, until: int = FOREVER) -> LeafExtract:
        """All changes of some keys, or those with places up to a time at least."""
        return self._changes.extract(groups, np.full(len(groups), BEGINNING), np.full(len(groups), until))

    def _find_doubtful(self, rows: Rows) -> Mask:
        """The rows that begin before the CTI, or stand before a change that does, and would move it."""
        is_before: Mask = rows.start < self.out_cti
        if not self._by_version or self.out_cti == BEGINNING:
            return is_before
        kept = self._read_all(unique_numbers(rows.group)).columns
        is_past = kept["since"] < self.out_cti
        group, place = kept["group"][is_past], kept["time"][is_past]
        if not len(group):
            return is_before
        last = np.searchsorted(group, rows.group, "right") - 1
        is_there = (last >= 0) & (group[np.maximum(last, 0)] == rows.group)
        moves: Mask = is_there & (rows.place <= place[np.maximum(last, 0)])
        return is_before | moves

    def _merge(self, rows: Rows, extract: LeafExtract, batch: EventBatch) -> EventBatch:
        """Lay changes, sorted by (key, place), over those kept so far."""
        kept = extract.columns
        groups, times, at_kept, at_rows = align_moments(kept, rows.group, rows.place)
        size = len(times)
        old = {
            name: _spread(kept[name], at_kept, size, -1 if name == "row" else 0)
            for name in ("version", "start", "since", "content", "row")
        }
        was, is_context = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        was[at_kept], is_context[at_kept] = True, extract.follower
        # What is kept stands before what came at its place.
        shared = np.flatnonzero(was)
        segment = np.append(shared, at_rows)
        order = np.argsort(segment, kind="stable")
        segment = segment[order]
        version = np.append(old["version"][shared], rows.version)[order]
        content = np.append(old["content"][shared], rows.content)[order]
        fold = _fold(segment, version, [content])
        came = np.append(np.full(len(shared), -1), np.arange(len(rows)))[order]
        self._note(CONFLICT, rows.row[came[fold.conflicts]], batch)
        last = np.append(segment[1:] != segment[:-1], True)[: len(segment)]
        winner = came[fold.holder[last]]
        at, winner = segment[last][winner >= 0], winner[winner >= 0]
        new = {name: column.copy() for name, column in old.items()}
        new["version"][at] = self._store_version(rows.version[winner])
        is_other = (
            ~was[at] | (old["content"][at] != rows.content[winner]) | (old["start"][at] != rows.start[winner])
        )
        at, winner = at[is_other], winner[is_other]
        new["start"][at], new["content"][at] = rows.start[winner], rows.content[winner]
        new["since"][at] = rows.start[winner]
        shows = rows.is_live[winner]
        new["row"][at] = -1
        payload = batch.payload.select(self.schema.names)
        new["row"][at[shows]] = self._changes.append(take_rows(payload, rows.row[winner[shows]]))
        is_now = was.copy()
        is_now[at] = True
        if self._by_version:
            new["since"] = _running_max(groups, new["since"])
        out = self._emit_difference(groups, old, new, was, is_now, is_context)
        self._changes.drop_later(old["row"][was & (old["row"] != new["row"])])
        stays = is_now & ~is_context
        columns = {"group": groups[stays], "time": times[stays]}
        columns |= {name: new[name][stays] for name in old}
        self._changes.write(extract, columns)
        fresh = stays & (~was | (old["since"] != new["since"]))
        self._changes.look_again(new["since"][fresh], groups[fresh])
        return out

    def _emit_difference(
        self, group: Index, old: Columns, new: Columns, was: Mask, is_now: Mask, is_context: Mask
    ) -> EventBatch:
        """What takes the events of the old changes to those of the new ones."""
        since, until = old["since"], _ends(group, old["since"], was)
        now_since, now_until = new["since"], _ends(group, new["since"], is_now)
        until = np.where(was & (old["row"] >= 0), until, since)
        now_until = np.where(is_now & (new["row"] >= 0), now_until, now_since)
        stays = was & is_now & (old["row"] == new["row"]) & (since == now_since) & ~is_context
        goes = was & ~stays & ~is_context & (until > since)
        comes = is_now & ~stays & ~is_context & (now_until > now_since)
        cut = np.maximum(since, self.out_cti)
        return self._emit_changes(
            [
                (since[stays], until[stays], now_until[stays], old["row"][stays]),
                (since[goes], until[goes], cut[goes], old["row"][goes]),
                (now_since[comes], now_since[comes], now_until[comes], new["row"][comes]),
            ]
        )

    def _judge_late(self, rows: Rows, may_be_late: Mask, batch: EventBatch) -> Rows:
        """The rows that may stay, with the starts that late ones get; one after the other."""
        t = self.out_cti
        groups = unique_numbers(rows.group[may_be_late])
        known = self._read_moments(groups)
        starts, stays, moved = rows.start.copy(), np.ones(len(rows), np.bool_), 0
        is_looked_at = np.isin(rows.group, groups) if self._by_version else may_be_late
        for i in np.flatnonzero(is_looked_at).tolist():
            moments = known[int(rows.group[i])]
            start, verdict = self._judge(moments, rows, i, t)
            starts[i] = start
            if verdict == "late" and self._policy == "raise":
                raise self._error(LATE, batch, int(rows.row[i]))
            stays[i] = verdict != "late"
            moved += verdict == "moved"
        self._note(LATE, rows.row[~stays], batch)
        if moved:
            self._counts[ADJUSTED] += moved
        return replace(rows, start=starts).take(stays)

    def _read_moments(self, groups: Index) -> dict[int, list[_Moment]]:
        rows = self._read_all(groups, FOREVER if self._by_version else self.out_cti).columns
        known: dict[int, list[_Moment]] = {group: [] for group in groups.tolist()}
        names = ("group", "time", "version", "start", "since", "content")
        for group, *moment in zip(*(rows[name].tolist() for name in names), strict=True):
            if group in known:
                known[group].append(_Moment(*moment))
        return known

    def _judge(self, moments: list[_Moment], rows: Rows, i: int, t: int) -> tuple[int, str]:
        """From when a row may count, and whether it is ``fine``, ``moved`` to the CTI, or ``late``."""
        start, version, content = int(rows.start[i]), int(rows.version[i]), int(rows.content[i])
        place = int(rows.place[i])
        is_late: tuple[int, str] = (t, "moved") if self._policy == "adjust" else (start, "late")
        at = bisect_left(moments, place, key=lambda moment: moment.place)
        if at < len(moments) and moments[at].place == place:
            there = moments[at]
            if version <= there.version:
                return there.start, "fine"
            if content == there.content:
                there.version = version
                return there.start, "fine"
            if is_late[1] == "moved":
                there.version, there.content, there.start, there.since = version, content, t, t
            return is_late
        if at < len(moments) and (moments[at].since < t if self._by_version else moments[at].place < t):
            return start, "late"
        before = moments[at - 1].since if at and self._by_version else BEGINNING
        verdict = (start, "fine") if max(before, start) >= t else is_late
        if verdict[1] != "late":
            since = max(before, verdict[0])
            insort(moments, _Moment(place, version, verdict[0], since, content))
            for moment in moments[at + 1 :]:
                moment.since = max(moment.since, since)
        return verdict


def _distinct(group: Index, time: Ticks) -> tuple[Index, Ticks]:
    """Sorted pairs, each once."""
    once = np.append(True, (group[1:] != group[:-1]) | (time[1:] != time[:-1]))[: len(group)]
    return group[once], time[once]


def _spread(values: Index, at: Index, size: int, otherwise: int) -> Index:
    spread = np.full(size, otherwise, np.int64)
    spread[at] = values
    return spread


def _ends(group: Index, since: Ticks, is_there: Mask) -> Ticks:
    """Where each change that is there ends: where the next of its key begins; the last one never."""
    ends, at = since.copy(), np.flatnonzero(is_there)
    following = np.append(since[at[1:]], FOREVER)
    is_last = np.append(group[at[1:]] != group[at[:-1]], True)
    ends[at] = np.where(is_last, np.int64(FOREVER), following)[: len(at)]
    return ends


def _running_max(group: Index, values: Ticks) -> Ticks:
    """The largest value up to each, by key."""
    known, rank = np.unique(values, return_inverse=True)
    code = group_sizes(group)[0] * len(known) + rank.reshape(-1)
    return known[np.maximum.accumulate(code) % len(known)] if len(known) else values
