"""Panes: stretches of time that overlapping windows have in common, each with the state of the events that
start in it, so that an event is added once and not once for every window.

    windows     |-----------|                    a window is the panes it consists of,
                    |-----------|                and the events that began before it
    panes       |---|---|---|---|

The panes of consecutive windows of ``n`` panes are merged in blocks of ``n``, from each pane to the end of
its block and from the start of the block to each pane: every window is one of the former with one of the
latter. So three merges a pane suffice however many there are in a window (van Herk; Gil and Werman).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from recension.core.batch import Index
from recension.modules.members import Payloads, Table, Window
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import HostedModule, StateCalls
from recension.operators.modules.members import Members
from recension.operators.windowed import grid


class Panes:
    """The panes of a grid for a module that knows no time and can merge its states."""

    def __init__(self, hosted: HostedModule, cuts: grid.Panes, group_hash: Callable[[Index], Any]) -> None:
        self._hosted, self._group_hash, self._calls = hosted, group_hash, StateCalls(hosted)
        self._cuts = cuts
        self._n = cuts.per_window
        self.held: dict[tuple[int, int], Any] = {}

    def __len__(self) -> int:
        return len(self.held)

    def forget_changed(self, changes: EventChanges) -> None:
        """Drop the panes in which changed events start."""
        if not self.held:
            return
        hashes, panes = self._group_hash(changes.group), self._cuts.number(changes.vs)
        order = np.lexsort((panes, hashes))
        hashes, panes = hashes[order], panes[order]
        first = np.append(True, (hashes[1:] != hashes[:-1]) | (panes[1:] != panes[:-1]))[: len(order)]
        for key in zip(hashes[first].tolist(), panes[first].tolist(), strict=True):
            self.held.pop(key, None)

    def forget(self, first_open: int) -> None:
        """No window that starts before then is asked for again."""
        first = int(self._cuts.number(np.array([first_open]))[0])
        self.held = {key: state for key, state in self.held.items() if key[1] >= first}

    def clear(self) -> None:
        """Forget all panes."""
        self.held = {}

    def states(self, contents: WindowContents, members: Members) -> list[Any]:
        """The state of each window from its panes."""
        starts = self._cuts.number(contents.windows.start)
        hashes = contents.group_hash
        breaks = (hashes[1:] != hashes[:-1]) | (starts[1:] - starts[:-1] > self._n)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(starts)]
        states: list[Any] = []
        for a, b in pairwise(edges):
            states += self._states_of_run(contents, members, starts, a, b)
        return states

    def _states_of_run(
        self, contents: WindowContents, members: Members, starts: Index, a: int, b: int
    ) -> list[Any]:
        """The windows ``a`` to ``b`` of one group, each of which overlaps or meets the next."""
        table = self._hosted.table(members.payload)
        first, count = int(starts[a]), int(starts[b - 1] - starts[a]) + self._n
        panes = [self._state(contents, members, table, (a, b), first + i) for i in range(count)]
        run = Window(int(contents.windows.start[a]), int(contents.windows.end[b - 1]))
        given = Payloads(table, int(members.low[a]), int(members.high[b - 1]))
        merge = partial(self._calls.merge, window=run, given=given)
        forward, backward = self._fold(panes, merge)
        states = []
        for row in range(a, b):
            i = int(starts[row]) - first
            state = backward[i] if i % self._n == 0 else merge(backward[i], forward[i + self._n - 1])
            states.append(self._add_earlier(state, contents, members, table, row))
        return states

    def _fold(self, panes: list[Any], merge: Callable[[Any, Any], Any]) -> tuple[list[Any], list[Any]]:
        """From the start of each block to each pane, and from each pane to the end of its block."""
        forward: list[Any] = []
        backward: list[Any] = []
        for at in range(0, len(panes), self._n):
            block = panes[at : at + self._n]
            forward += accumulate(block, merge)
            backward += list(accumulate(reversed(block), lambda a, b: merge(b, a)))[::-1]
        return forward, backward

    def _state(
        self, contents: WindowContents, members: Members, table: Table, rows: tuple[int, int], pane: int
    ) -> Any:
        """The state of the events that start in a pane."""
        key = (int(contents.group_hash[rows[0]]), pane)
        if key not in self.held:
            start = self._cuts.start(pane)
            # Any window that has the pane in it has its events, and has them by start.
            row = int(np.searchsorted(contents.windows.end[rows[0] : rows[1]], start, "right")) + rows[0]
            low, high = int(members.low[row]), int(members.high[row])
            vs = members.vs[low:high]
            within = low + np.searchsorted(vs, [start, start + self._cuts.width])
            some = Payloads(table, int(within[0]), int(within[1]))
            self.held[key] = self._calls.build(some, Window(start, start + self._cuts.width))
        return self.held[key]

    def _add_earlier(
        self, state: Any, contents: WindowContents, members: Members, table: Table, row: int
    ) -> Any:
        """The state with the events that began before the window and are in it all the same."""
        low, high = int(members.low[row]), int(members.high[row])
        window = Window(int(contents.windows.start[row]), int(contents.windows.end[row]))
        stop = low + int(np.searchsorted(members.vs[low:high], window.start))
        return self._calls.add(state, Payloads(table, low, stop), window) if stop > low else state
