"""Retractions that have come before what they retract.

An event's end goes through a chain of values. A retraction whose predecessor is missing is *broken*: it
waits, and becomes one with broken neighbours in its chain. All this is done for the few events whose
chains are broken, an element at a time; a chain is known by the hash of (payload, start).

What waits is found by chain and by the end it leads from or to. What must be dropped when the frontier moves,
and the CTI that the waiting ones still allow, are found by deadline. No call looks at all that waits.
Payloads are only touched batch by batch: an element has the number of its payload.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from recension.core.batch import RETRACT, EventBatch, Index, Mask
from recension.core.event_bag import LiveEnds
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state.row_store import RowStore

_SLACK: Final = 1024
# What waits and has something in common, by number, in the order in which it began to wait.
_Shared: TypeAlias = "OrderedDict[int, BrokenRun]"
_Key = TypeVar("_Key")
_STALE: Final = 64


class WaitingRetraction(NamedTuple):
    """One retraction, and the number under which its payload is kept."""

    ve: int
    vn: int
    payload: int


@dataclass(slots=True, eq=False)
class BrokenRun:
    """A run of retractions from ``ve`` to ``vn`` that waits; ``elements`` are those it is made of."""

    vs: int
    ve: int
    vn: int
    elements: tuple[WaitingRetraction, ...]

    @property
    def sync(self) -> int:
        """The earliest time it can change anything."""
        return min(self.ve, self.vn)


class RetractionChains:
    """What is broken. The ends that are alive are the caller's to keep: ``ends`` below is {end: how many}."""

    def __init__(self, schema: pa.Schema) -> None:
        self._payloads = RowStore(schema)
        self._clear()

    def _clear(self) -> None:
        self._payloads.clear()
        self._elements = 0
        self._numbers = count()
        self._waiting: dict[int, tuple[int, BrokenRun]] = {}
        self._of: dict[int, _Shared] = {}
        self._from: dict[tuple[int, int], _Shared] = {}
        self._to: dict[tuple[int, int], _Shared] = {}
        self._syncs, self._ends, self._alive = Deadlines(), Deadlines(), Deadlines()

    def __len__(self) -> int:
        return len(self._waiting)

    def nbytes(self) -> int:
        """Memory taken."""
        return 40 * self._elements + self._payloads.nbytes()

    def holds(self, chains: Hashes) -> Mask:
        """Which of these chains have something broken."""
        if len(self._of) <= len(chains):
            return np.isin(chains, np.fromiter(self._of, np.uint64, len(self._of)))
        return np.fromiter((chain in self._of for chain in chains.tolist()), np.bool_, len(chains))

    def first_sync(self) -> int:
        """The earliest time at which anything that waits can change something; FOREVER if nothing waits."""
        return self._syncs.earliest_deadline()

    def insert(self, key: int, ends: dict[int, int], vs: int, ve: int) -> int:
        """An event has come: the end it has, all that waited for it considered; its start if it is gone."""
        if (after := self._take(self._from.get((key, ve)))) is not None:
            ve = after.vn
        if ve > vs:
            ends[ve] = ends.get(ve, 0) + 1
        self._set_last_end(key, ends, vs)
        return ve

    def keep(self, payloads: pa.RecordBatch, size: int) -> Index:
        """Keep the payloads of retractions that may have to wait; gives their numbers.

        When all of them have come, `tidy` lets go of those that do not wait.
        """
        return self._payloads.append(payloads, size)

    def tidy(self) -> None:
        """Let go of the payloads that nothing waiting has, when they are the most."""
        if len(self._payloads) <= 2 * self._elements + (_SLACK if self._elements else 0):
            return
        waiting = [broken for _, broken in self._waiting.values()]
        self._payloads.retain(_numbers(waiting))

    def retract(
        self, key: int, ends: dict[int, int], vs: int, element: WaitingRetraction
    ) -> tuple[int, int] | None:
        """A retraction has come: the change of end it makes now, None if it waits or changes nothing."""
        merged = BrokenRun(vs, element.ve, element.vn, (element,))
        if element.ve not in ends and (before := self._take(self._to.get((key, element.ve)))) is not None:
            merged = BrokenRun(vs, before.ve, element.vn, (*before.elements, element))
        if (after := self._take(self._from.get((key, element.vn)))) is not None:
            merged = BrokenRun(vs, merged.ve, after.vn, merged.elements + after.elements)
        moved = None
        if merged.ve != merged.vn:
            if merged.ve in ends:
                moved = _move_end(ends, merged)
            else:
                self._add(key, merged)
        self._set_last_end(key, ends, vs)
        return moved

    def elements_of(self, waiting: Sequence[BrokenRun]) -> EventBatch:
        """The retractions that these are made of."""
        rows = [(b.vs, e.ve, e.vn) for b in waiting for e in b.elements]
        vs, ve, vn = np.array(rows, np.int64).reshape(-1, 3).T
        kind, none = np.full(len(rows), RETRACT, np.uint8), np.zeros(len(rows), np.int64)
        return EventBatch(kind, vs, ve, vn, none, self._payloads.take(_numbers(waiting)))

    def _set_last_end(self, key: int, ends: dict[int, int], vs: int) -> None:
        """Once the frontier is past the start and all ends nothing can lead on to what waits (F7)."""
        if key in self._of:
            self._alive.set(key, max(vs, max(ends, default=BEGINNING)))

    def _add(self, key: int, broken: BrokenRun) -> None:
        number = next(self._numbers)
        self._waiting[number] = key, broken
        self._of.setdefault(key, OrderedDict())[number] = broken
        self._from.setdefault((key, broken.ve), OrderedDict())[number] = broken
        self._to.setdefault((key, broken.vn), OrderedDict())[number] = broken
        self._syncs.set(number, broken.sync)
        self._ends.set(number, broken.ve)
        self._elements += len(broken.elements)

    def _remove(self, number: int) -> BrokenRun:
        key, broken = self._waiting.pop(number)
        _discard(self._of, key, number)
        _discard(self._from, (key, broken.ve), number)
        _discard(self._to, (key, broken.vn), number)
        self._syncs.discard(number)
        self._ends.discard(number)
        if key not in self._of:
            self._alive.discard(key)
        self._elements -= len(broken.elements)
        return broken

    def _take(self, shared: _Shared | None) -> BrokenRun | None:
        """Take out the first of these."""
        return self._remove(next(iter(shared))) if shared else None

    def take_lost(self, frontier: int, aged: int) -> list[BrokenRun]:
        """Take out what can no longer be mended, or may not change the past before ``aged``.

        What comes changes no end before the frontier, so that only an event alive there can still lead on
        to a retraction that waits (F7, whatever the CTI is that this retraction holds back).
        """
        lost = [self._remove(number) for number in self._syncs.pop_before(aged)]
        lost += [self._remove(number) for number in self._ends.pop_before(frontier)]
        for key in self._alive.pop_before(frontier):
            lost += [self._remove(number) for number in list(self._of[key])]
        return lost

    def snapshot(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        waiting = [broken for _, broken in self._waiting.values()]
        elements = self.elements_of(waiting)
        columns = {
            name: pa.array([getattr(b, name) for b in waiting], pa.int64()) for name in ("vs", "ve", "vn")
        }
        columns["size"] = pa.array([len(b.elements) for b in waiting], pa.int64())
        control = {name: getattr(elements, name) for name in ("vs", "ve", "new_ve")}
        keys = pa.array([key for key, _ in self._waiting.values()], pa.uint64())
        return {
            "broken": pa.table({"key": keys, **columns}),
            "broken elements": pa.table({name: pa.array(column) for name, column in control.items()}),
            "broken payloads": pa.Table.from_batches([elements.payload], elements.schema),
        }

    def restore(self, chunks: dict[str, pa.Table], live: LiveEnds) -> None:
        """Become what gave these chunks, with these ends alive."""
        self._clear()
        _, ve, vn = (column.to_pylist() for column in chunks["broken elements"].columns)
        payloads = chunks["broken payloads"].combine_chunks().to_batches()
        numbers = self.keep(payloads[0], len(ve)).tolist() if payloads else range(len(ve))
        elements = [WaitingRetraction(*row) for row in zip(ve, vn, numbers, strict=True)]
        start = 0
        for row in chunks["broken"].to_pylist():
            stop = start + row["size"]
            self._add(row["key"], BrokenRun(row["vs"], row["ve"], row["vn"], tuple(elements[start:stop])))
            start = stop
        for key, ends in live.ends_of(np.fromiter(self._of, np.uint64, len(self._of))).items():
            self._set_last_end(key, ends, next(iter(self._of[key].values())).vs)


def _numbers(waiting: Sequence[BrokenRun]) -> Index:
    """The numbers of their payloads, in their order."""
    return np.array([element.payload for broken in waiting for element in broken.elements], np.int64)


def _discard(places: dict[_Key, _Shared], key: _Key, number: int) -> None:
    del places[key][number]
    if not places[key]:
        del places[key]


def _move_end(ends: dict[int, int], merged: BrokenRun) -> tuple[int, int]:
    """Move an end that is alive."""
    ends[merged.ve] -= 1
    if not ends[merged.ve]:
        del ends[merged.ve]
    if merged.vn > merged.vs:
        ends[merged.vn] = ends.get(merged.vn, 0) + 1
    return merged.ve, merged.vn


class Deadlines:
    """The time at which something is due, for each of many things that are known by number.

    A deadline that was changed or given up stays in the heap until it comes up, or until such are the most.
    """

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def set(self, thing: int, time: int) -> None:
        """The deadline of a thing."""
        if self._of.get(thing) == time:
            return
        self._of[thing] = time
        heappush(self._heap, (time, thing))
        if len(self._heap) > 2 * len(self._of) + _STALE:
            self._heap = [(time, thing) for thing, time in self._of.items()]
            heapify(self._heap)

    def discard(self, thing: int) -> None:
        """A thing has no deadline any more."""
        self._of.pop(thing, None)

    def earliest_deadline(self) -> int:
        """The earliest deadline, FOREVER if there is none."""
        while self._heap and self._of.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else FOREVER

    def pop_before(self, t: int) -> list[int]:
        """Take out the things whose deadlines are before ``t``, in their order."""
        due = []
        while self._heap and self._heap[0][0] < t:
            time, thing = heappop(self._heap)
            if self._of.get(thing) == time:
                del self._of[thing]
                due.append(thing)
        return due
