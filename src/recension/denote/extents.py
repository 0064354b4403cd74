"""Coalescing over a window extent: at every slide, what the readings in the window say, coalesced.

Source: coalescing rulings 1-5 and 23; the guide. A reading is an event taken at its ``vs``. Answers are
rows (group, ``on`` columns, ``valid_start``, ``valid_end``) that live from their slide to the next.
Arrival order does not exist in a history: readings of equal time are in the order of their groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recension.core.errors import RecensionError
from recension.core.events import Event, Payload
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.coalesce import Equivalence, pick_columns
from recension.denote.edges import readings_by_group
from recension.denote.grouped import with_keys
from recension.denote.intervals import plus, saturate
from recension.denote.lineage import Bases, Basis, Lineage, Region, Seen, Words, region_of
from recension.denote.order import Columns, History, key_of, names


def coalesce_range(
    history: History,
    span: int,
    slide: int,
    on: Columns,
    group_by: Columns = (),
    equivalence: Equivalence | None = None,
) -> History:
    """Time-based: at every multiple ``s`` of ``slide`` the readings of ``[s - span, s]``, both inclusive.

    >>> h = [Event({"v": v}, t) for v, t in [("a", 1), ("a", 3), ("b", 4)]]
    >>> print(*coalesce_range(h, span=2, slide=5, on="v"), sep="; ")
    [5, 10) {'v': 'a', 'valid_start': 3, 'valid_end': 4}; [5, 10) {'v': 'b', 'valid_start': 4, 'valid_end': 4}
    """
    if slide <= 0 or span < 0 or span >= FOREVER:
        raise RecensionError(
            f"a window of {span} ticks that slides by {slide}: both must be finite, slide > 0"
        )
    readings_by_group(history, group_by)  # refuses two readings of a group at one time
    slides: set[int] = set()
    for reading in history:
        first = -(-reading.vs // slide) * slide
        slides.update(range(first, min(reading.vs + span + 1, FOREVER), slide))
    result = []
    for s in sorted(slides):
        extent = [reading for reading in history if s - span <= reading.vs <= s]
        result += [Event(row, s, saturate(s + slide)) for row in _answer(extent, on, group_by, equivalence)]
    return result


def coalesce_rows(
    history: History,
    size: int,
    slide: int,
    on: Columns,
    group_by: Columns = (),
    equivalence: Equivalence | None = None,
) -> History:
    """Tuple-based: after every ``slide``-th reading the latest ``size`` of them, until the next slide.

    The answers of the last slide live for ever; a slide at the time of the next one leaves no trace.

    >>> h = [Event({"v": v}, t) for v, t in [("a", 1), ("a", 3), ("b", 4), ("b", 9)]]
    >>> print(*coalesce_rows(h, size=2, slide=2, on="v"), sep="; ")
    [3, 9) {'v': 'a', 'valid_start': 1, 'valid_end': 3}; [9, ∞) {'v': 'b', 'valid_start': 4, 'valid_end': 9}
    """
    if size <= 0 or slide <= 0:
        raise RecensionError(f"a window of {size} readings that slides by {slide}: both must be positive")
    readings_by_group(history, group_by)  # refuses two readings of a group at one time
    ordered, result = sorted(history, key=lambda e: (e.vs, key_of(e.payload, group_by))), []
    for seen in range(slide, len(ordered) + 1, slide):
        s = ordered[seen - 1].vs
        next_s = ordered[seen + slide - 1].vs if seen + slide <= len(ordered) else FOREVER
        if s < next_s:
            extent = ordered[max(0, seen - size) : seen]
            result += [Event(row, s, next_s) for row in _answer(extent, on, group_by, equivalence)]
    return result


def _answer(
    extent: History,
    on: Columns,
    group_by: Columns,
    equivalence: Equivalence | None,
) -> list[Payload]:
    """One row for every maximal run of equivalent neighbours of a group (ruling 2)."""
    rows = []
    for readings in readings_by_group(extent, group_by):
        runs = _runs(readings, on, equivalence)
        ends = [run[0].vs for run in runs[1:]] + [runs[-1][-1].vs]
        for run, end in zip(runs, ends, strict=True):
            first = dict(pick_columns(run[0].payload, on))
            valid = {"valid_start": run[0].vs, "valid_end": end}
            rows.append(with_keys(run[0].payload, first | valid, group_by))
    return rows


def _runs(readings: History, on: Columns, equivalence: Equivalence | None) -> list[History]:
    def is_same(one: Event, other: Event) -> bool:
        if equivalence is None:
            return key_of(one.payload, on) == key_of(other.payload, on)
        return bool(equivalence(pick_columns(one.payload, on), pick_columns(other.payload, on)))

    runs: list[History] = []
    for reading in readings:
        if runs and is_same(runs[-1][-1], reading):
            runs[-1].append(reading)
        else:
            runs.append([reading])
    return runs


class RangeLineage(Lineage):
    """What the answer of a slide rests on: all readings of its group in the window."""

    def __init__(self, span: int, slide: int, group_by: Columns) -> None:
        super().__init__([{name: name for name in names(group_by)}])
        self._span, self._slide = span, slide

    def reach(self, region: Region) -> list[Region]:
        return [super().reach(region)[0].stretch(self._slide + self._span, 0)]

    def presence(self, event: Event, inputs: Sequence[Seen]) -> Bases:
        begin = plus(event.vs, -self._span)
        there = replace(region_of(event).below(self.columns[0]), start=begin, end=event.vs)
        return [Basis([e for e in inputs[0].touching(there) if begin <= e.vs], [there])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        readings = words.count(0, bases[0].kept, "reading")
        return f"{readings} in the window at the slide: {words.names(bases[0].kept)}"


class RowsLineage(Lineage):
    """What the answer of a slide rests on: its readings, and those before by which the slides are counted.

    If every reading is a slide, nothing is counted: the latest readings, and the next.
    """

    def __init__(self, size: int, slide: int) -> None:
        super().__init__([{}])
        self._size, self._slide = size, slide

    def reach(self, region: Region) -> list[Region]:
        return [Region()]

    def everything(self, region: Region, inputs: Sequence[Seen]) -> Bases:
        readings = sorted((e for e in inputs[0].touching(Region()) if e.vs <= region.end), key=lambda e: e.vs)
        since = BEGINNING
        if self._slide == 1 and (before := [e for e in readings if e.vs <= region.start]):
            since = before[-self._size].vs if len(before) >= self._size else BEGINNING
        return [Basis([e for e in readings if e.vs >= since], [Region(since, region.end)])]

    def sentence(self, event: Event, bases: Bases, words: Words) -> str:
        return f"{words.count(0, bases[0].kept, 'reading')}, counted: {words.names(bases[0].kept)}"
