"""Valid streams in disorder, drawn an element at a time; what a rehearsal tells of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from recension.core.events import Cti, Element, Insert, Retract
from recension.core.validity import STALE_CTI
from recension.runners.exchange.packets import METRICS, Packet


class Feed:
    """A stream that grows: inserts around a time, retractions of what is alive, CTIs."""

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self._alive: list[Insert] = []
        self._frontier = 0

    def grow(self, draw: Callable[[Any], Any], kind: str, now: int, disorder: int) -> None:
        """By a CTI (``c``), a retraction (``r``), if there is something to retract, or an insert."""
        if kind == "c":
            self._frontier = max(self._frontier, draw(st.integers(0, now)))
            self.elements.append(Cti(self._frontier))
        elif kind == "r" and self._alive:
            self._retract(draw, self._alive.pop(draw(st.integers(0, len(self._alive) - 1))))
        else:
            start = max(self._frontier, now + draw(st.integers(-disorder, disorder)))
            payload = {"k": draw(st.integers(0, 3)), "v": draw(st.integers(0, 3))}
            self._alive.append(Insert(payload, start, start + draw(st.integers(1, 9))))
            self.elements.append(self._alive[-1])

    def _retract(self, draw: Callable[[Any], Any], event: Insert) -> None:
        end = draw(st.integers(event.vs, event.ve + 5))
        if end == event.ve or min(end, event.ve) < self._frontier:
            self._alive.append(event)
            return
        self.elements.append(Retract(event.payload, event.vs, event.ve, end))
        if end > event.vs:
            self._alive.append(Insert(event.payload, event.vs, end))


def count_dropped(packets: Iterable[Packet]) -> Counter[str]:
    """What was dropped or moved, by reason. Every shard counts the CTIs that do not advance."""
    found: Counter[str] = Counter()
    for packet in packets:
        if packet.edge == METRICS:
            for counts in json.loads(packet.info)["counts"].values():
                found.update(counts)
    return without_ctis(found)


def without_ctis(counts: Counter[str]) -> Counter[str]:
    """All reasons but that of CTIs that do not advance."""
    return Counter({reason: count for reason, count in counts.items() if reason != STALE_CTI})


def write(elements: Iterable[Element]) -> Counter[str]:
    """Elements in any order, as text."""
    return Counter(map(str, elements))
