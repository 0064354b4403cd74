"""Events of groups in order, linked into chains: each continues the one before it or begins a chain.

    events      [--a--)            the second continues the first: it is equivalent, and the chain so far
                   [---a---)       reaches its start
                              [-a-)           begins a chain: there is a gap
    chains      [----------)  [---)

An event knows the first of its chain (``start``, ``head``) and how far the chain reaches up to itself, so
that what a change does is seen from the event before it on, until nothing differs any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.netting import cancel
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Columns
from recension.core.ticks import FOREVER, Ticks, add
from recension.core.time_kind import describe_time_in_message
from recension.operators.changes import NetChanges, identity
from recension.operators.state.end_points import PointsWithPayloads, is_among, never_inserted_error
from recension.operators.state.leaf_table import LeafExtract, unique_numbers

Equivalent: TypeAlias = Callable[[pa.RecordBatch, pa.RecordBatch], Mask]

_COLUMNS: Final = ("end", "row", "hash", "start", "head", "reach")


@dataclass(frozen=True, slots=True)
class ChainEnds:
    """Chains that are whole in what was looked at: where they begin and end, and the row of their first."""

    start: Ticks
    end: Ticks
    head: Index


@dataclass(frozen=True, slots=True)
class _ChainAxis:
    """Events before and after a batch, in order; ``last`` ends a stretch of the table that was read."""

    columns: Columns
    is_old: Mask
    is_new: Mask
    is_last: Mask

    @property
    def starts(self) -> Mask:
        """Which events are the first of their group in their stretch."""
        group = self.columns["group"]
        return np.append(True, (group[1:] != group[:-1]) | self.is_last[:-1])[: len(group)]


class Chains(PointsWithPayloads):
    """Events by (group, start), which tell them apart; ``on`` are the columns an equivalence compares."""

    def __init__(self, schema: pa.Schema, group_by: list[str], on: list[str], equivalent: Equivalent) -> None:
        self._on, self._equivalent = on, equivalent
        keys = pa.schema([schema.field(name) for name in group_by])
        super().__init__(dict.fromkeys(_COLUMNS, np.int64), keys, schema, "events")

    def apply(self, change: NetChanges, group: Index, payload: pa.RecordBatch) -> tuple[ChainEnds, ChainEnds]:
        """Take in changes, each with its group; the chains before and after, where any may differ."""
        come, gone = (change.new > change.vs).nonzero()[0], (change.old != change.vs).nonzero()[0]
        rows = self._store.append(take_rows(payload, change.row[come]), len(come))
        added = _new_events(change, group, come, rows)
        removed = identity(change.hash[gone], change.vs[gone], change.old[gone])
        order = np.lexsort((change.vs, group))
        group, low = group[order], change.vs[order]
        high = low.copy()
        while True:
            extract = self._table.extract(group, low, high)
            axis = self._axis(extract, added, removed)
            unstable, until = self._link(axis)
            if not len(unstable):
                break
            high = _widen(group, low, high, unstable, until)
        old, new = _whole_chains(axis, axis.is_old, "old "), _whole_chains(axis, axis.is_new, "")
        self._write(axis, extract)
        return old, new

    def _axis(self, extract: LeafExtract, added: Columns, removed: Hashes) -> _ChainAxis:
        kept = extract.columns
        held = identity(kept["hash"].view(np.uint64), kept["time"], kept["end"])
        stays, _, found = cancel(held, removed)
        if len(found) < len(removed):
            raise never_inserted_error()
        columns = {name: np.concatenate([kept[name], added[name]]) for name in kept}
        order = np.lexsort((columns["time"], columns["group"]))
        size, more = len(stays), len(added["row"])
        columns |= {f"old {name}": columns[name].copy() for name in ("start", "head", "reach")}
        axis = _ChainAxis(
            {name: column[order] for name, column in columns.items()},
            (np.arange(size + more) < size)[order],
            np.append(stays, np.ones(more, np.bool_))[order],
            np.append(extract.follower, np.zeros(more, np.bool_))[order],
        )
        _check(axis)
        return axis

    def _link(self, axis: _ChainAxis) -> tuple[Index, Ticks]:
        """Link the events that there are now; (group, time) where it must go on beyond what was read."""
        own, at = axis.columns, axis.is_new.nonzero()[0]
        # The first of a stretch lies before all changes there: what it knew of its chain stays true.
        is_known = (axis.starts & axis.is_old)[at]
        stretch = axis.starts.cumsum()[at]
        has_previous = np.append(False, stretch[1:] == stretch[:-1])[: len(at)]
        goes_on = has_previous & ~is_known
        asked = goes_on.nonzero()[0]
        goes_on[asked] = self._compare(own["row"][at[asked - 1]], own["row"][at[asked]])
        far = _running_max(~goes_on, np.where(is_known, own["old reach"][at], own["end"][at]))
        gap = np.append(False, own["time"][at][1:] > far[:-1])[: len(at)]
        begins = (~goes_on | gap) & ~is_known
        first = np.maximum.accumulate(np.where(begins | is_known, np.arange(len(at)), 0))
        start = np.where(is_known, own["old start"][at], own["time"][at])[first]
        head = np.where(is_known, own["old head"][at], own["row"][at])[first]
        own["start"][at], own["head"][at], own["reach"][at] = start, head, far
        ends = axis.is_last.nonzero()[0]
        differs = np.zeros(len(ends), np.bool_)
        for name in ("start", "head", "reach"):
            differs |= own[name][ends] != own[f"old {name}"][ends]
        return own["group"][ends[differs]], own["time"][ends[differs]]

    def _compare(self, before: Index, after: Index) -> Mask:
        if not len(after):
            return np.zeros(0, np.bool_)
        values = (self._store.take(rows).select(self._on) for rows in (before, after))
        return self._equivalent(*values)

    def _write(self, axis: _ChainAxis, extract: LeafExtract) -> None:
        own, stays = axis.columns, axis.is_new & ~axis.is_last
        columns = {name: own[name][stays] for name in ("group", "time", *_COLUMNS)}
        born, gone = axis.is_new & ~axis.is_old, axis.is_old & ~axis.is_new
        come, went = ((own["group"][rows], own["time"][rows]) for rows in (born, gone))
        self.replace(extract, columns, come, went)
        self._note_unnamed(extract, own, axis.is_new)

    def _forget_past(self, t: int) -> None:
        """Drop the events at the front of each group that no change after ``t`` can make matter again.

        Such an event has ended. If another one that starts before ``t`` follows it, that one has ended too or
        begins a chain: otherwise the event is still needed to know which chain the next one belongs to when
        its end moves. If none follows, the chain has ended.
        """
        groups = self._pop_due(t)
        if not len(groups):
            return
        extract = self._extract_past(groups, t)
        own = {name: column[~extract.follower] for name, column in extract.columns.items()}
        group, past = own["group"], (own["time"] < t) & is_among(own["group"], groups)
        is_settled = (own["end"] < t) | (own["head"] == own["row"])
        is_followed = np.append(past[1:] & (group[1:] == group[:-1]), False)
        goes = past & (own["end"] < t)
        goes &= np.where(is_followed, np.append(is_settled[1:], True), own["reach"] < t)
        first = np.append(True, group[1:] != group[:-1])[: len(group)]
        goes &= _none_before(~goes, first)
        self._look_again(own, t, is_followed, (past & ~goes & (first | _follows(goes))).nonzero()[0])
        gone = ~extract.follower
        gone[gone] = goes
        self._table.forget(extract, gone)
        self._count(groups)
        self._note_unnamed(extract, extract.columns, ~gone)

    def _note_unnamed(self, extract: LeafExtract, now: Columns, stays: Mask) -> None:
        """Payloads that were named in an extract and are not now.

        Those of chains that go on beyond it are named by its last event.
        """
        before = [extract.columns[name] for name in ("row", "head")]
        after = [now[name][stays] for name in ("row", "head")]
        named = unique_numbers(np.concatenate(before))
        self._unnamed.append(named[~np.isin(named, np.concatenate(after))])

    def _look_again(self, own: Columns, t: int, is_followed: Mask, at: Index) -> None:
        """A group whose first event stays is due again when what keeps it has ended."""
        end, following = own["end"][at], own["end"][np.minimum(at + 1, len(own["end"]) - 1)]
        waits = np.where(end >= t, end, np.where(is_followed[at], following, own["reach"][at]))
        again = waits < FOREVER
        self._expiring.push(waits[again], own["group"][at[again]])


def _check(axis: _ChainAxis) -> None:
    """Which of two comes first would depend on their ends, and move with them (coalescing ruling 4)."""
    group, time = (axis.columns[name][axis.is_new] for name in ("group", "time"))
    twice = (time[1:] == time[:-1]) & (group[1:] == group[:-1])
    if bool(twice.any()):
        moment = describe_time_in_message(int(time[1:][np.argmax(twice)]))
        raise StreamError(
            f"two events of one group start at {moment}, but an equivalence needs an order: name what tells "
            "them apart in group_by"
        )


def _widen(group: Index, low: Ticks, high: Ticks, unstable: Index, until: Ticks) -> Ticks:
    """Look several times as far, beyond the last event seen, in groups that are not settled yet."""
    last = unstable.searchsorted(group, "right") - 1
    found = (last >= 0) & (unstable[last] == group)
    seen = until[last]
    ahead = np.minimum((seen.view(np.uint64) - low.view(np.uint64)) << np.uint64(2), np.uint64(2**62))
    return np.where(found, np.maximum(high, add(seen, ahead.view(np.int64))), high)


def _new_events(change: NetChanges, group: Index, come: Index, rows: Index) -> Columns:
    """Events that come, not linked yet."""
    nothing = np.zeros(len(come), np.int64)
    columns = {"group": group[come], "time": change.vs[come], "end": change.new[come], "row": rows}
    columns["hash"] = change.hash[come].view(np.int64)
    return columns | {"start": nothing, "head": nothing, "reach": nothing}


def _running_max(begins: Mask, values: Ticks) -> Ticks:
    """The greatest value so far, from the last beginning on."""
    distinct, rank = np.unique(values, return_inverse=True)
    piece = begins.cumsum() * len(distinct)
    greatest: Ticks = distinct[np.maximum.accumulate(piece + rank) - piece]
    return greatest


def _follows(mask: Mask) -> Mask:
    """Which come directly after one that is marked?"""
    return np.append(False, mask[:-1])[: len(mask)]


def _none_before(bad: Mask, first: Mask) -> Mask:
    """Is there nothing bad from the first of the group up to here?"""
    seen = bad.cumsum()
    at_first = np.maximum.accumulate(np.where(first, np.arange(len(bad)), 0))
    none: Mask = seen - (seen - bad)[at_first] == 0
    return none


def _whole_chains(axis: _ChainAxis, side: Mask, before: str) -> ChainEnds:
    """The chains whose last event is known, with what was known of them before or is now."""
    at = side.nonzero()[0]
    own, stretch = axis.columns, axis.starts.cumsum()[at]
    start, head, reach = (own[f"{before}{name}"][at] for name in ("start", "head", "reach"))
    is_end = np.append((stretch[1:] != stretch[:-1]) | (own["row"][at][1:] == head[1:]), True)[: len(at)]
    is_end &= ~axis.is_last[at]
    return ChainEnds(start[is_end], reach[is_end], head[is_end])
