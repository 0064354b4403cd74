"""Each change of a key until the next: rows stand by (start, version), or by version as in a log.

Guarantees  the history has each change from its start until that of the next of its key.
State       of each key its changes from the last CTI on, and one before it (`Changes`).
Cost        O(n log n) for n rows, and the changes around them. Rows that may be late are judged one by one.
Source      design note 027, rulings K1 to K9.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from recension.core.batch import EventBatch, Index, Mask, empty, take_rows
from recension.core.netting import group_sizes
from recension.core.sorted_runs import Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.core.validity import ADJUSTED, LATE, Policy
from recension.operators.keyed import (
    CONFLICT,
    RowColumns,
    Rows,
    RowsByKey,
    fold_rows,
)
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import align_moments
from recension.operators.state.keyed_rows import Changes
from recension.operators.state.leaf_table import LeafExtract, unique_numbers

Order: TypeAlias = Literal["start", "version"]


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
        last = group.searchsorted(rows.group, "right") - 1
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
        shared = was.nonzero()[0]
        segment = np.append(shared, at_rows)
        order = segment.argsort(kind="stable")
        segment = segment[order]
        version = np.append(old["version"][shared], rows.version)[order]
        content = np.append(old["content"][shared], rows.content)[order]
        fold = fold_rows(segment, version, [content])
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
        for i in is_looked_at.nonzero()[0].tolist():
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
    ends, at = since.copy(), is_there.nonzero()[0]
    following = np.append(since[at[1:]], FOREVER)
    is_last = np.append(group[at[1:]] != group[at[:-1]], True)
    ends[at] = np.where(is_last, np.int64(FOREVER), following)[: len(at)]
    return ends


def _running_max(group: Index, values: Ticks) -> Ticks:
    """The largest value up to each, by key."""
    known, rank = np.unique(values, return_inverse=True)
    code = group_sizes(group)[0] * len(known) + rank.reshape(-1)
    return known[np.maximum.accumulate(code) % len(known)] if len(known) else values
