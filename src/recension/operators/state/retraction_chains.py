"""Retractions that have come before what they retract.

An event's end goes through a chain of values. A retraction whose predecessor is missing is *broken*: it
waits, and becomes one with broken neighbours in its chain. All this is done for the few events whose
chains are broken, an element at a time; a chain is known by the hash of (payload, start).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import RETRACT, EventBatch, concat, empty
from recension.core.rowhash import Hashes


@dataclass(slots=True)
class Broken:
    """A run of retractions from ``ve`` to ``vn`` that waits; ``elements`` are those it is made of."""

    vs: int
    ve: int
    vn: int
    elements: EventBatch

    @property
    def sync(self) -> int:
        """The earliest time it can change anything."""
        return min(self.ve, self.vn)


class RetractionChains:
    """What is broken. The ends that are alive are the caller's to keep: ``ends`` below is {end: how many}."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._broken: dict[int, list[Broken]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._broken.values()))

    def nbytes(self) -> int:
        """Memory taken."""
        return sum(40 * len(b.elements) + b.elements.payload.nbytes for b in self)

    def __iter__(self) -> Iterator[Broken]:
        for waiting in self._broken.values():
            yield from waiting

    def keys(self) -> Hashes:
        """The chains that have something broken."""
        return np.fromiter(self._broken, np.uint64, len(self._broken))

    def insert(self, key: int, ends: dict[int, int], vs: int, ve: int) -> int:
        """An event has come: the end it has, all that waited for it considered; its start if it is gone."""
        if (after := self._take(key, ve=ve)) is not None:
            ve = after.vn
        if ve > vs:
            ends[ve] = ends.get(ve, 0) + 1
        return ve

    def retract(self, key: int, ends: dict[int, int], element: EventBatch) -> tuple[int, int] | None:
        """A retraction has come: the change of end it makes now, None if it waits or changes nothing."""
        vs, ve, vn = (int(column[0]) for column in (element.vs, element.ve, element.new_ve))
        merged = Broken(vs, ve, vn, element)
        if ve not in ends and (before := self._take(key, vn=ve)) is not None:
            merged = Broken(vs, before.ve, vn, concat([before.elements, merged.elements]))
        if (after := self._take(key, ve=vn)) is not None:
            merged = Broken(vs, merged.ve, after.vn, concat([merged.elements, after.elements]))
        if merged.ve == merged.vn:
            return None
        if merged.ve not in ends:
            # Rows of their own, so that they do not keep the batch they came in.
            merged.elements = merged.elements.take(np.arange(len(merged.elements)))
            self._broken.setdefault(key, []).append(merged)
            return None
        ends[merged.ve] -= 1
        if not ends[merged.ve]:
            del ends[merged.ve]
        if merged.vn > vs:
            ends[merged.vn] = ends.get(merged.vn, 0) + 1
        return merged.ve, merged.vn

    def _take(self, key: int, *, ve: int | None = None, vn: int | None = None) -> Broken | None:
        """Take out a broken retraction from or to an end, if there is one."""
        for waiting in self._broken.get(key, ()):
            if waiting.ve == ve or waiting.vn == vn:
                self._keep(key, [other for other in self._broken[key] if other is not waiting])
                return waiting
        return None

    def take_lost(self, key: int, is_lost: Callable[[Broken], bool]) -> list[Broken]:
        """Take out the broken retractions of a chain for which this holds."""
        waiting = self._broken.get(key, [])
        lost = [broken for broken in waiting if is_lost(broken)]
        if lost:
            self._keep(key, [broken for broken in waiting if not is_lost(broken)])
        return lost

    def _keep(self, key: int, waiting: list[Broken]) -> None:
        if waiting:
            self._broken[key] = waiting
        else:
            del self._broken[key]

    def chunks(self) -> dict[str, pa.Table]:
        """The state as named tables."""
        waiting = [(key, b) for key, own in self._broken.items() for b in own]
        elements = concat([b.elements for _, b in waiting]) if waiting else empty(self._schema)
        names = ("vs", "ve", "vn")
        columns = {name: pa.array([getattr(b, name) for _, b in waiting], pa.int64()) for name in names}
        columns["size"] = pa.array([len(b.elements) for _, b in waiting], pa.int64())
        control = {name: getattr(elements, name) for name in ("vs", "ve", "new_ve")}
        return {
            "broken": pa.table({"key": pa.array([key for key, _ in waiting], pa.uint64()), **columns}),
            "broken elements": pa.table({name: pa.array(column) for name, column in control.items()}),
            "broken payloads": pa.Table.from_batches([elements.payload], self._schema),
        }

    def load(self, chunks: dict[str, pa.Table]) -> None:
        """Become what gave these chunks."""
        self._broken = {}
        vs, ve, new_ve = (column.to_numpy() for column in chunks["broken elements"].columns)
        payload = chunks["broken payloads"].combine_chunks().to_batches() or [empty(self._schema).payload]
        kind, count = np.full(len(vs), RETRACT, np.uint8), np.zeros(len(vs), np.int64)
        elements = EventBatch(kind, vs, ve, new_ve, count, payload[0])
        start = 0
        for row in chunks["broken"].to_pylist():
            stop = start + row["size"]
            broken = Broken(row["vs"], row["ve"], row["vn"], elements.slice(start, stop))
            self._broken.setdefault(row["key"], []).append(broken)
            start = stop
