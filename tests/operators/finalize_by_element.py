"""Finalize the obvious way, an element at a time as rulings F1 to F10 print it: judges the columnar one.

Payloads are compared as values, state is plain Python, and every question scans all there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER

Key = tuple[int, tuple[tuple[str, object], ...]]


@dataclass
class Broken:
    key: Key
    ve: int
    vn: int
    elements: list[Element]

    @property
    def sync(self) -> int:
        return min(self.ve, self.vn)


@dataclass
class FinalizeByElement:
    """What comes out is in ``output``, what was left out in ``dropped``."""

    remember: int
    since: int = 0
    output: list[Element] = field(default_factory=list)
    dropped: list[Element] = field(default_factory=list)
    last: int = BEGINNING
    frontier: int = BEGINNING
    latest: int = BEGINNING
    live: Counter[tuple[Key, int]] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)
    intervals: list[tuple[int, int, int]] = field(default_factory=list)
    syncs: Counter[int] = field(default_factory=Counter)

    def take(self, e: Element) -> None:
        match e:
            case ExternalCti(vs, ve, n):
                if vs >= self.last:
                    self.intervals = sorted([*self.intervals, (vs, ve, n)])
            case Cti(t):
                self._advance(t)
                self._drop_orphans(t if t == FOREVER else BEGINNING)
            case Insert(_, vs, _) if self._is_in_time(e, vs):
                self._insert(e)
            case Retract(_, _, ve, vn) if self._is_in_time(e, min(ve, vn)):
                self._retract(e)
        self._progress()

    def _is_in_time(self, e: Element, sync: int) -> bool:
        self.syncs[sync] += 1
        self.latest = max(self.latest, sync)
        if sync < self.last:
            self.dropped.append(e)
        return sync >= self.last

    def _insert(self, e: Insert) -> None:
        key, ve = _key(e), e.ve
        if (after := self._taken(key, ve=ve)) is not None:
            ve = after.vn
        if ve > e.vs:
            self.output.append(Insert(e.payload, e.vs, ve))
            self.live[key, ve] += 1

    def _retract(self, e: Retract) -> None:
        key, merged = _key(e), Broken(_key(e), e.ve, e.new_ve, [e])
        if not self.live[key, e.ve] and (before := self._taken(key, vn=e.ve)) is not None:
            merged = Broken(key, before.ve, merged.vn, before.elements + merged.elements)
        if (after := self._taken(key, ve=e.new_ve)) is not None:
            merged = Broken(key, merged.ve, after.vn, merged.elements + after.elements)
        if merged.ve == merged.vn:
            return
        if self.live[key, merged.ve]:
            self.output.append(Retract(e.payload, e.vs, merged.ve, merged.vn))
            self.live[key, merged.ve] -= 1
            self.live[key, merged.vn] += merged.vn > e.vs
        else:
            self.broken.append(merged)
        self._drop_orphans()

    def _taken(self, key: Key, *, ve: int | None = None, vn: int | None = None) -> Broken | None:
        for broken in self.broken:
            if broken.key == key and (broken.ve == ve or broken.vn == vn):
                self.broken.remove(broken)
                return broken
        return None

    def _drop_orphans(self, lost_before: int = BEGINNING) -> None:
        alive = {key for (key, end), n in self.live.items() if n and end >= self.frontier}
        for b in list(self.broken):
            is_orphan = b.key[0] < self.frontier and b.key not in alive
            if is_orphan or b.ve < self.frontier or b.sync < lost_before:
                self.broken.remove(b)
                self.dropped += b.elements

    def _progress(self) -> None:
        self._settle()
        self._drop_orphans()
        if self.remember < FOREVER and self.latest - self.remember > self.last:
            self._advance(self.latest - self.remember)
            self._drop_orphans(self.latest - self.remember)
            self._settle()
            self._drop_orphans()
        t = min([self.frontier, *(b.sync for b in self.broken)])
        if t > self.last:
            self.last = t
            self.output.append(Cti(t))
            self.live = Counter({(k, ve): n for (k, ve), n in self.live.items() if t <= ve and t < FOREVER})

    def _settle(self) -> None:
        """Only the interval that begins first, of those the one that ends first, is asked (F4, F5)."""
        while self.intervals and self.intervals[0][0] <= max(self.frontier, self.since):
            vs, ve, n = self.intervals[0]
            if sum(m for sync, m in self.syncs.items() if vs <= sync < ve) != n:
                break
            self.intervals.pop(0)
            self._advance(ve)

    def _advance(self, t: int) -> None:
        self.frontier = max(self.frontier, t)
        self.intervals = [i for i in self.intervals if i[1] > self.frontier]


def _key(e: Insert | Retract) -> Key:
    return e.vs, tuple(e.payload.items())
