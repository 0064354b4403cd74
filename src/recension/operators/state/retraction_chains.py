"""Events and the retractions that have come before what they retract.

An event's end goes through a chain of values. A retraction whose predecessor is missing is *broken*: it
waits, and becomes one with broken neighbours in its chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, concat, empty
from recension.core.ticks import FOREVER

Key: TypeAlias = tuple[int, int]
"""The hash of a payload, and a start."""


@dataclass(slots=True)
class Broken:
    """A run of retractions from ``ve`` to ``vn`` that waits; ``elements`` are those it is made of."""

    ve: int
    vn: int
    elements: EventBatch

    @property
    def sync(self) -> int:
        """The earliest time it can change anything."""
        return min(self.ve, self.vn)


class RetractionChains:
    """What is alive, and what is broken."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._live: dict[Key, dict[int, int]] = {}
        self._ends: list[tuple[int, Key]] = []
        self._broken: dict[Key, list[Broken]] = {}

    def __len__(self) -> int:
        return sum(sum(ends.values()) for ends in self._live.values()) + sum(1 for _ in self.broken())

    def is_live(self, key: Key, ve: int) -> bool:
        """Is there an event of this key with this end?"""
        return ve in self._live.get(key, ())

    def add(self, key: Key, ve: int) -> None:
        """An event is there."""
        ends = self._live.get(key)
        if ends is None:
            self._live[key] = {ve: 1}
        else:
            ends[ve] = ends.get(ve, 0) + 1
        heappush(self._ends, (ve, key))

    def remove(self, key: Key, ve: int) -> None:
        """One event of this key and end is there no more."""
        ends = self._live[key]
        ends[ve] -= 1
        if not ends[ve]:
            del ends[ve]
        if not ends:
            del self._live[key]

    def forget_before(self, t: int) -> None:
        """Forget the events that ended before ``t``, at the end of time all."""
        if t == FOREVER:
            self._live, self._ends = {}, []
        while self._ends and self._ends[0][0] < t:
            ve, key = heappop(self._ends)
            if (ends := self._live.get(key)) is not None:
                ends.pop(ve, None)
                if not ends:
                    del self._live[key]

    def broken(self) -> Iterator[Broken]:
        """All that waits."""
        for waiting in self._broken.values():
            yield from waiting

    def break_off(self, key: Key, broken: Broken) -> None:
        """Let a retraction wait for its predecessor."""
        self._broken.setdefault(key, []).append(broken)

    def take(self, key: Key, *, ve: int | None = None, vn: int | None = None) -> Broken | None:
        """Take out a broken retraction from or to an end, if there is one."""
        for waiting in self._broken.get(key, ()):
            if waiting.ve == ve or waiting.vn == vn:
                self._discard(key, waiting)
                return waiting
        return None

    def take_all(self, is_lost: Callable[[Key, Broken], bool]) -> list[Broken]:
        """Take out the broken retractions for which this holds."""
        lost = [(key, b) for key, waiting in self._broken.items() for b in waiting if is_lost(key, b)]
        for key, broken in lost:
            self._discard(key, broken)
        return [broken for _, broken in lost]

    def has_live(self, key: Key) -> bool:
        """Is there an event of this key at all?"""
        return key in self._live

    def _discard(self, key: Key, broken: Broken) -> None:
        waiting = [other for other in self._broken[key] if other is not broken]
        if waiting:
            self._broken[key] = waiting
        else:
            del self._broken[key]

    def chunks(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        live = [(key, ve, n) for key, ends in self._live.items() for ve, n in ends.items()]
        waiting = [(key, b) for key, own in self._broken.items() for b in own]
        elements = concat([b.elements for _, b in waiting]) if waiting else empty(self._schema)
        control = {name: getattr(elements, name) for name in ("kind", "vs", "ve", "new_ve", "count")}
        return {
            "live": _keyed([key for key, _, _ in live], ve=[row[1] for row in live], n=[r[2] for r in live]),
            "broken": _keyed(
                [key for key, _ in waiting],
                ve=[b.ve for _, b in waiting],
                vn=[b.vn for _, b in waiting],
                size=[len(b.elements) for _, b in waiting],
            ),
            "broken elements": pa.table({name: pa.array(column) for name, column in control.items()}),
            "broken payloads": pa.Table.from_batches([elements.payload], self._schema),
        }

    def load(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self._live, self._ends, self._broken = {}, [], {}
        for row in chunks["live"].to_pylist():
            for _ in range(row["n"]):
                self.add((row["hash"], row["vs"]), row["ve"])
        kind, vs, ve, new_ve, count = (c.to_numpy() for c in chunks["broken elements"].columns)
        payload = chunks["broken payloads"].combine_chunks().to_batches() or [empty(self._schema).payload]
        elements = EventBatch(kind, vs, ve, new_ve, count, payload[0])
        start = 0
        for row in chunks["broken"].to_pylist():
            stop = start + row["size"]
            broken = Broken(row["ve"], row["vn"], elements.slice(start, stop))
            self.break_off((row["hash"], row["vs"]), broken)
            start = stop


def _keyed(keys: list[Key], **columns: list[int]) -> pa.Table:
    own = {"hash": pa.array([key[0] for key in keys], pa.uint64())}
    own["vs"] = pa.array([key[1] for key in keys], pa.int64())
    return pa.table(own | {name: pa.array(column, pa.int64()) for name, column in columns.items()})
