"""Calling users' code: the members a module is given, and errors that name the module, the window and them.

Members come by (vs, payload, ve). Where events neither outlast each other nor count by their ends, the
members of a window lie together; otherwise every (window, event) pair is written out:

    events by start     a  b  c  d  e  f  g
    windows             |--------|
                              |--------|          slices, nothing is copied

`add` and `remove` of an incremental module may change its state in place. To call them twice, where that is
verified, the state is stored before and restored for the second call. So what is compared is what is stored,
and states may be objects of any class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, take_rows
from recension.core.errors import ModuleError, RecensionError, describe_error
from recension.core.ticks import Ticks
from recension.core.values import MISFITS, describe_misfit, exact_array, unwrap_scalar
from recension.modules.calls import (
    NotDeterministicError,
    call_twice,
    module_error,
    require_same,
)
from recension.modules.members import Events, Payloads, SharedColumns, Window
from recension.modules.module import Clipping, Incremental, Module
from recension.modules.stored_state import from_bytes, to_bytes
from recension.operators.value_order import payload_order
from recension.operators.windowed.events import CoveringEvents

Given: TypeAlias = Payloads | Callable[[], Payloads]
"""What a module was given; or where to find it, if it is needed for an error only."""
MembersFor: TypeAlias = Callable[[int], tuple[Window, Given]]
"""The window in a row of a list, and what a module was given of it."""


class Caller:
    """Calls one module; ``verify`` makes every call twice and compares."""

    def __init__(self, name: str, *, verify: bool) -> None:
        self.name, self.verify = name, verify

    def call(self, fn: Callable[[], Any], window: Window, given: Given) -> Any:
        """What the module's code gives."""
        return self.call_once((lambda: call_twice(fn)) if self.verify else fn, window, given)

    def call_once(self, fn: Callable[[], Any], window: Window, given: Given, verb: str = "") -> Any:
        """The same once, whatever is verified; ``verb`` names the method if it is not `compute`."""
        try:
            return fn()
        except NotDeterministicError as why:
            raise self.failure(f"{verb}{why}", window, given) from None
        except Exception as why:
            raise self.failure(f"{verb}{describe_error(why)}", window, given) from why

    def failure(self, reason: str, window: Window, given: Given) -> ModuleError:
        """An error in one line."""
        return module_error(self.name, reason, window, given() if callable(given) else given)


@dataclass(frozen=True, slots=True)
class HostedModule:
    """A module with the stored columns that are its inputs, and how lifetimes are clipped for it."""

    module: Module
    columns: Sequence[str]
    inputs: pa.Schema
    clip: Clipping
    caller: Caller
    order: Order
    """What matters of the order in which members come."""

    def table(self, payload: pa.RecordBatch) -> SharedColumns:
        """The stored columns by the names the module knows."""
        columns = [payload.column(name) for name in self.columns]
        return SharedColumns(pa.RecordBatch.from_arrays(columns, schema=self.inputs))

    def windows_with_members(
        self, windows: WindowList, members: Members
    ) -> Iterator[tuple[Window, Payloads]]:
        """Each window with what the module sees of its members."""
        table, is_timed = self.table(members.payload), self.module.is_time_sensitive
        bounds = (windows.start, windows.end, members.low, members.high)
        for start, end, low, high in zip(*(column.tolist() for column in bounds), strict=True):
            window = Window(start, end)
            if not is_timed:
                yield window, Payloads(table, low, high)
                continue
            yield window, self.slice(table, low, high, members.vs[low:high], members.ve[low:high], window)

    def slice(
        self, table: SharedColumns, low: int, high: int, vs: Ticks, ve: Ticks, window: Window
    ) -> Payloads:
        """Some rows as the module sees them in a window."""
        if not self.module.is_time_sensitive:
            return Payloads(table, low, high)
        return Events(table, low, high, *_clip(vs, ve, window, self.clip))

    def compute(self, window: Window, members: Payloads) -> Any:
        """What a module that is not incremental gives."""
        timed = (window,) if self.module.is_time_sensitive else ()
        return self.caller.call(lambda: self.module.compute(members, *timed), window, members)

    def to_array(self, values: list[Any], kind: pa.DataType, given: MembersFor) -> pa.Array:
        """The value of each window as the module gave it, in the declared type."""
        answers = [unwrap_scalar(value) for value in values]
        try:
            return exact_array(answers, kind)
        except MISFITS:
            bad = next(row for row, value in enumerate(answers) if describe_misfit(value, kind) is not None)
        raise self.caller.failure(f"it gave {answers[bad]!r}, but declares {kind}", *given(bad))


def _clip(vs: Ticks, ve: Ticks, window: Window, clip: Clipping) -> tuple[Ticks, Ticks]:
    """Lifetimes cut to the window on the left, the right, both sides or neither."""
    return (
        np.maximum(vs, window.start) if clip in ("left", "full") else vs,
        np.minimum(ve, window.end) if clip in ("right", "full") else ve,
    )


class StateCalls:
    """Calls that make and change the states of one incremental module, one at a time."""

    def __init__(self, hosted: HostedModule) -> None:
        assert isinstance(hosted.module, Incremental)
        self._module, self._caller = hosted.module, hosted.caller

    def window_argument(self, window: Window) -> tuple[Window, ...]:
        """The last argument of time-sensitive modules; others do not get it."""
        return (window,) if self._module.is_time_sensitive else ()

    def build(self, members: Payloads, window: Window) -> Any:
        """The state of these members alone."""
        begun = self._make(
            "initial: ", lambda: self._module.initial(*self.window_argument(window)), window, members
        )
        return self.add(begun, members, window) if len(members) else begun

    def add(self, state: Any, members: Payloads, window: Window) -> Any:
        """The state with these members too."""
        return self._change("add", state, members, window)

    def remove(self, state: Any, members: Payloads, window: Window) -> Any:
        """The state without these members."""
        return self._change("remove", state, members, window)

    def merge(self, a: Any, b: Any, window: Window, given: Given) -> Any:
        """The state of the members of both."""
        merge = self._module.merge
        assert merge is not None
        return self._make("merge: ", lambda: merge(a, b), window, given)

    def compute(self, state: Any, window: Window, given: Given) -> Any:
        """What the module gives for a state."""
        timed = self.window_argument(window)
        return self._caller.call(lambda: self._module.compute(state, *timed), window, given)

    def _make(self, verb: str, make: Callable[[], Any], window: Window, given: Given) -> Any:
        """A new state; to make it changes no other state."""

        def make_twice() -> Any:
            state = make()
            self._require_same(state, make())
            return state

        return self._caller.call_once(make_twice if self._caller.verify else make, window, given, verb)

    def _change(self, verb: str, state: Any, members: Payloads, window: Window) -> Any:
        method = getattr(self._module, verb)

        def change(before: Any) -> Any:
            return method(before, members, *self.window_argument(window))

        def change_twice() -> Any:
            before = self.store(state)
            after = change(state)
            self._require_same(after, change(self.restore(before)))
            return after

        call = change_twice if self._caller.verify else lambda: change(state)
        return self._caller.call_once(call, window, members, f"{verb}: ")

    def _require_same(self, state: Any, again: Any) -> None:
        require_same(self._module.stored(state), self._module.stored(again))

    def store(self, state: Any) -> bytes:
        """A state as bytes."""
        try:
            return to_bytes(self._module.stored(state))
        except RecensionError as why:
            raise ModuleError(f"{self._module.name}: {why}") from None

    def restore(self, stored: bytes) -> Any:
        """The state that these bytes are."""
        return self._module.restored(from_bytes(stored))


@dataclass(frozen=True, slots=True)
class WindowList:
    """Windows in order of (group, low): ``[low, high)`` on the axis, ``[start, end)`` in time."""

    group: Index
    low: Index
    high: Index
    start: Ticks
    end: Ticks

    def __len__(self) -> int:
        return len(self.group)


Order: TypeAlias = Literal["payload", "start", "any"]
"""How members are sorted: by start and payload, by start alone, or not at all."""


@dataclass(frozen=True, slots=True)
class Members:
    """Window ``w`` has the rows ``low[w]`` to ``high[w]``."""

    low: Index
    high: Index
    vs: Ticks
    ve: Ticks
    payload: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.low)


def members_of(found: CoveringEvents, *, by_start: bool, order: Order) -> Members:
    """The members of each window, in the order that matters."""
    windows, in_order = np.arange(found.snapshots), order == "payload"
    if order == "any" and _never_falls(found.first) and _never_falls(found.stop):
        low, high = _slices(found.first, found.stop, windows)
        return Members(low, high, found.vs, found.ve, found.payload)
    by = order_by_start_and_payload(found.first, found.vs, found.ve, found.payload, in_order=in_order)
    first, stop = found.first[by], found.stop[by]
    if by_start and _never_falls(stop):
        rows = by
        low, high = _slices(first, stop, windows)
    else:
        if not by_start:
            nowhere = np.zeros(len(by), np.int64)
            by = order_by_start_and_payload(nowhere, found.vs, found.ve, found.payload, in_order=in_order)
        window, rows = found.incidence_in(by)
        low, high = np.searchsorted(window, windows), np.searchsorted(window, windows, "right")
    return Members(low, high, found.vs[rows], found.ve[rows], take_rows(found.payload, rows))


def _never_falls(places: Index) -> bool:
    return bool((places[1:] >= places[:-1]).all())


def _slices(first: Index, stop: Index, windows: Index) -> tuple[Index, Index]:
    """Where the members of each window lie, if events begin and end in the order in which they are."""
    low = np.searchsorted(stop, windows, "right")
    return low, np.maximum(low, np.searchsorted(first, windows, "right"))


def order_by_start_and_payload(
    first: Index, vs: Ticks, ve: Ticks, payload: pa.RecordBatch, *, in_order: bool
) -> Index:
    """Rows by (first, vs); and where those are equal by payload and end, if that matters."""
    order = _order_by_start(first, vs)
    if not in_order:
        return order
    a, b = first[order], vs[order]
    tied = np.append(False, (a[1:] == a[:-1]) & (b[1:] == b[:-1]))[: len(order)]
    tied |= np.append(tied[1:], False)[: len(order)]
    if bool(tied.any()):
        rows = order[tied]
        by_payload = payload_order_with(ve[rows], take_rows(payload, rows))
        rank = np.empty(len(rows), np.int64)
        rank[by_payload] = np.arange(len(rows))
        order[tied] = rows[np.lexsort((rank, vs[rows], first[rows]))]
    return order


def _order_by_start(first: Index, vs: Ticks) -> Index:
    """Rows by (first, vs); they often come in this order already."""
    apart, together = first[1:] > first[:-1], first[1:] == first[:-1]
    if bool((apart | (together & (vs[1:] >= vs[:-1]))).all()):
        return np.arange(len(vs))
    return np.lexsort((vs, first))


def payload_order_with(ve: Ticks, payload: pa.RecordBatch) -> Index:
    """Row numbers by (payload, ve)."""
    by_end = np.argsort(ve, kind="stable")
    return by_end[payload_order(take_rows(payload, by_end), len(by_end))]
