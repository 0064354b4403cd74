"""Windows with their events, and what a batch changed in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, take_rows
from recension.core.netting import expand
from recension.core.rowhash import Hashes
from recension.core.ticks import Ticks
from recension.modules.members import Payloads, Window
from recension.operators.changes import NetChanges
from recension.operators.modules.hosting import HostedModule, Members, MembersFor, WindowList, members_of
from recension.operators.state.block_table import sort_keys
from recension.operators.windowed.events import CoveringEvents, Placement


class WindowContents:
    """Windows and the events in them, which are looked up when they are first needed."""

    def __init__(
        self, windows: WindowList, group_hash: Hashes, find: Callable[[], CoveringEvents], *, by_start: bool
    ) -> None:
        self.windows, self.group_hash, self.by_start = windows, group_hash, by_start
        self._find = find

    @cached_property
    def events(self) -> CoveringEvents:
        """The events in the windows."""
        return self._find()

    def members(self, hosted: HostedModule) -> Members:
        """The members of each window as one module is to get them."""
        own = replace(self.events, payload=self.events.payload.select(hosted.columns))
        return members_of(own, by_start=self.by_start, order=hosted.order)

    def members_for(self, hosted: HostedModule) -> MembersFor:
        """Each window with its members as the module sees them; members are looked up only for errors."""

        def find(row: int) -> Payloads:
            one = self.take(np.array([row]))
            ((_, members),) = hosted.windows_with_members(one.windows, one.members(hosted))
            return members

        bounds = self.windows
        return lambda row: (Window(int(bounds.start[row]), int(bounds.end[row])), partial(find, row))

    def identities(self) -> list[tuple[int, int]]:
        """The identity of each window, the same from batch to batch."""
        return list(zip(self.group_hash.tolist(), self.windows.low.tolist(), strict=True))

    def take(self, rows: Index) -> WindowContents:
        """Some of the windows."""
        w = self.windows
        some = WindowList(w.group[rows], w.low[rows], w.high[rows], w.start[rows], w.end[rows])
        place = np.append(np.cumsum(np.isin(np.arange(len(w)), rows)), 0)
        # The windows before the first, and up to the last, of those that an event is in.
        first, stop = np.append(0, place)[self.events.first], np.append(0, place)[self.events.stop]
        cut = replace(self.events, snapshots=len(rows), first=first, stop=stop)
        return WindowContents(some, self.group_hash[rows], lambda: cut, by_start=self.by_start)


@dataclass(frozen=True, slots=True)
class EventChanges:
    """The events that a batch changes: group, payload, and the lifetimes before and after."""

    group: Index
    vs: Ticks
    old: Ticks
    new: Ticks
    payload: pa.RecordBatch

    @staticmethod
    def from_net_changes(change: NetChanges, group: Index, payload: pa.RecordBatch) -> EventChanges:
        """The net changes of a batch."""
        return EventChanges(
            group[change.row], change.vs, change.old, change.new, take_rows(payload, change.row)
        )

    def split_by_window(
        self, windows: WindowList, place: Placement | None, hosted: HostedModule
    ) -> tuple[Members, Members]:
        """What goes from, and what comes to, each window as a module sees it."""
        (w_old, e_old), (w_new, e_new) = (
            self._incidence(windows, place, end) for end in (self.old, self.new)
        )
        code_old, code_new = w_old * len(self.vs) + e_old, w_new * len(self.vs) + e_new
        both = np.intersect1d(code_old, code_new)
        both = both[self._find_seen_alike(both, windows, hosted)] if len(both) else both
        goes, comes = ~np.isin(code_old, both), ~np.isin(code_new, both)
        return (
            self._members(len(windows), w_old[goes], e_old[goes], self.old),
            self._members(len(windows), w_new[comes], e_new[comes], self.new),
        )

    def _find_seen_alike(self, both: Index, windows: WindowList, hosted: HostedModule) -> Index:
        """Which of the events that stay in a window look the same to the module as before?"""
        if not hosted.module.is_time_sensitive:
            return np.arange(len(both))
        window, event = np.divmod(both, len(self.vs))
        old, new = self.old[event], self.new[event]
        if hosted.clip in ("right", "full"):
            old, new = np.minimum(old, windows.end[window]), np.minimum(new, windows.end[window])
        return np.flatnonzero(old == new)

    def _incidence(self, windows: WindowList, place: Placement | None, end: Ticks) -> tuple[Index, Index]:
        """Every (window, event) pair, by window."""
        low, high = (self.vs, end) if place is None else place(self.vs, end)
        there = np.flatnonzero(high > low)
        lows, highs, begin, stop = sort_keys(
            [windows.group, windows.group, self.group[there], self.group[there]],
            [windows.low, windows.high, low[there], high[there]],
        )
        owner, window = expand(np.searchsorted(highs, begin, "right"), np.searchsorted(lows, stop))
        order = np.argsort(window, kind="stable")
        return window[order], there[owner[order]]

    def _members(self, size: int, window: Index, event: Index, end: Ticks) -> Members:
        low, high = (np.searchsorted(window, np.arange(size), side) for side in ("left", "right"))
        return Members(low, high, self.vs[event], end[event], take_rows(self.payload, event))
