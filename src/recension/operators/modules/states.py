"""The states that an incremental module keeps: one for each window in view, changed by what comes and goes.

A window that comes into view, or that was split or merged, gets its state from all of its members at once.
Overlapping windows share the states of panes, where the module can merge them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from recension.core.batch import Index
from recension.core.ticks import Ticks
from recension.modules.members import Payloads, SharedColumns, Window
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import HostedModule, Members, StateCalls
from recension.operators.modules.state_table import StateTable
from recension.operators.windowed.events import Placement


class States:
    """The states of one module; ``panes`` if overlapping windows can share them."""

    def __init__(self, hosted: HostedModule, place: Placement | None, panes: PaneStates | None) -> None:
        self._hosted, self._place, self._panes = hosted, place, panes
        self._calls = StateCalls(hosted)
        self._held = StateTable(self._calls)

    def __len__(self) -> int:
        return len(self._held) + (0 if self._panes is None else len(self._panes))

    def compute(
        self, contents: WindowContents, changes: EventChanges | None, gone: list[tuple[int, int]]
    ) -> list[Any]:
        """What the module gives for each window now; ``gone``: windows that were shown and are no longer."""
        self._held.remove(gone)
        if self._panes is not None and changes is not None:
            self._panes.forget_changed(changes)
        keys, highs = contents.identities(), contents.windows.high.tolist()
        held = [self._held.get(key) for key in keys]
        known = np.array([was == high for (was, _), high in zip(held, highs, strict=True)], np.bool_)
        states = [state for _, state in held]
        fresh = np.flatnonzero(~known)
        if len(fresh):
            built = self._build(contents.take(fresh) if len(fresh) < len(keys) else contents)
            for row, state in zip(fresh.tolist(), built, strict=True):
                states[row] = state
        if changes is not None and len(fresh) < len(keys):
            self._change(contents, changes, known, states)
        for key, high, state in zip(keys, highs, states, strict=True):
            self._held.set(key, high, state)
        return self._results(contents, states)

    def recompute(self, contents: WindowContents) -> list[Any]:
        """What the module gave for windows in view when it was last asked."""
        return self._results(contents, [self._held.get(key)[1] for key in contents.identities()])

    def _results(self, contents: WindowContents, states: list[Any]) -> list[Any]:
        members_for = contents.members_for(self._hosted)
        return [self._calls.compute(state, *members_for(row)) for row, state in enumerate(states)]

    def _build(self, contents: WindowContents) -> list[Any]:
        """The states of windows from all of their members."""
        members = contents.members(self._hosted)
        if self._panes is not None:
            return self._panes.states(contents, members)
        given = self._hosted.windows_with_members(contents.windows, members)
        return [self._calls.build(some, window) for window, some in given]

    def _change(self, contents: WindowContents, changes: EventChanges, known: Any, states: list[Any]) -> None:
        goes, comes = changes.split_by_window(contents.windows, self._place, self._hosted)
        for change, some in ((self._calls.remove, goes), (self._calls.add, comes)):
            table = self._hosted.table(some.payload)
            for row in np.flatnonzero(known & (some.high > some.low)).tolist():
                window = Window(int(contents.windows.start[row]), int(contents.windows.end[row]))
                states[row] = change(states[row], self._slice(table, some, row, window), window)

    def _slice(self, table: Any, some: Members, row: int, window: Window) -> Payloads:
        low, high = int(some.low[row]), int(some.high[row])
        return self._hosted.slice(table, low, high, some.vs[low:high], some.ve[low:high], window)

    def expire(self, closed: int, first_open: int) -> None:
        """Windows that end on the axis by ``closed`` will not be asked for again."""
        self._held.remove_where(lambda _, high: high <= closed)
        if self._panes is not None:
            self._panes.forget_before(first_open)

    def clear(self) -> None:
        """Forget all windows."""
        self._held.clear()
        if self._panes is not None:
            self._panes.clear()

    def parts(self, number: int) -> dict[str, Any]:
        """The states of windows and panes, under names that end with a number."""
        own: dict[str, Any] = {f"states{number}": self._held}
        return own if self._panes is None else own | {f"panes{number}": self._panes.held}

    def restore(self, number: int, chunks: Mapping[str, Any]) -> None:
        """Become what gave these parts, or take over changes."""
        self._held.restore(chunks[f"states{number}"])
        if self._panes is not None:
            self._panes.held.restore(chunks[f"panes{number}"])


class Panes(Protocol):
    """Time cut so that every window consists of ``per_window`` panes in a row."""

    @property
    def per_window(self) -> int:
        """How many panes a window has."""

    def number(self, time: Ticks) -> Index:
        """The pane each time lies in."""

    def start(self, pane: int) -> int:
        """Where a pane starts."""

    def end(self, pane: int) -> int:
        """Where it ends."""


class PaneStates:
    """The panes of a grid for a module that knows no time and can merge its states.

    Each pane has the state of the events that start in it, so that an event is added once and not once for
    every window.

        windows     |-----------|                    a window is the panes it consists of,
                        |-----------|                and the events that began before it
        panes       |---|---|---|---|

    The panes of consecutive windows of ``n`` panes are merged in blocks of ``n``, from each pane to the end
    of its block and from the start of the block to each pane: every window is one of the former with one of
    the latter. So three merges a pane suffice however many there are in a window (van Herk; Gil and Werman).

    Only a grid has panes, by choice: they come from the grid, not from the index, because windows of other
    kinds have no parts in common. Those keep one state for each window.
    """

    def __init__(self, hosted: HostedModule, cuts: Panes, group_hash: Callable[[Index], Any]) -> None:
        self._hosted, self._group_hash, self._calls = hosted, group_hash, StateCalls(hosted)
        self._cuts = cuts
        self._n = cuts.per_window
        self.held = StateTable(self._calls)

    def __len__(self) -> int:
        return len(self.held)

    def forget_changed(self, changes: EventChanges) -> None:
        """Drop the panes in which changed events start."""
        if not len(self.held):
            return
        hashes, panes = self._group_hash(changes.group), self._cuts.number(changes.vs)
        order = np.lexsort((panes, hashes))
        hashes, panes = hashes[order], panes[order]
        first = np.append(True, (hashes[1:] != hashes[:-1]) | (panes[1:] != panes[:-1]))[: len(order)]
        self.held.remove(zip(hashes[first].tolist(), panes[first].tolist(), strict=True))

    def forget_before(self, first_open: int) -> None:
        """No window that starts before then is asked for again."""
        first = int(self._cuts.number(np.array([first_open]))[0])
        self.held.remove_where(lambda key, _: key[1] < first)

    def clear(self) -> None:
        """Forget all panes."""
        self.held.clear()

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
        self,
        contents: WindowContents,
        members: Members,
        table: SharedColumns,
        rows: tuple[int, int],
        pane: int,
    ) -> Any:
        """The state of the events that start in a pane."""
        key = (int(contents.group_hash[rows[0]]), pane)
        known, state = self.held.get(key)
        if known is None:
            start, end = self._cuts.start(pane), self._cuts.end(pane)
            # Every window that holds the pane holds its events, sorted by start.
            row = int(np.searchsorted(contents.windows.end[rows[0] : rows[1]], start, "right")) + rows[0]
            row = min(row, rows[1] - 1)  # an empty pane, a day that is left out, may lie at the end of all
            low, high = int(members.low[row]), int(members.high[row])
            vs = members.vs[low:high]
            within = low + np.searchsorted(vs, [start, end])
            some = Payloads(table, int(within[0]), int(within[1]))
            state = self._calls.build(some, Window(start, end))
            self.held.set(key, 0, state)
        return state

    def _add_earlier(
        self, state: Any, contents: WindowContents, members: Members, table: SharedColumns, row: int
    ) -> Any:
        """The state with the events added that are in the window but began before it."""
        low, high = int(members.low[row]), int(members.high[row])
        window = Window(int(contents.windows.start[row]), int(contents.windows.end[row]))
        stop = low + int(np.searchsorted(members.vs[low:high], window.start))
        return self._calls.add(state, Payloads(table, low, stop), window) if stop > low else state
