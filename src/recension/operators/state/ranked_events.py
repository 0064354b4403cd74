"""Events of which a few decide an answer: found by their rank, without a look at the others.

"The greatest value in every snapshot of a stretch" asks for two kinds of events. Those that live through
the whole stretch may be very many, but only the first of them in the order of values can matter. The others
have an end point in the stretch.

    snapshots        |-----|---|------|
    through       =========================      in a deep group a million; the first ``count`` of them decide
    others              =======                  each may rank before them somewhere

So the events are walked in the order of their ranks, over those that overlap the stretch, until ``count`` of
them were met that live through it. Every sorted run of the store has a `Ranking`: its rows by group and rank,
and above them a tree of the least start and the greatest end of 16 neighbours, then of 16 such, and so on.
Parts of the tree that overlap nothing are passed over.

Cost        O(log n) an event found; a run is ranked once, when it is first asked. Where events that have
            ended and events that have not begun take turns in the order of ranks, the bounds of neighbours
            say little, and the walk looks at more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.event_store import EventStore
from recension.operators.state.leaf_table import unique_numbers

_BITS: Final = 4
_WIDTH: Final = 1 << _BITS

Order: TypeAlias = Callable[[Ticks, Ticks, pa.RecordBatch], Index]
"""Rows of events in the order of their ranks, given their lifetimes and payloads."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The first ``count`` events in an order decide an answer."""

    order: Order
    count: int


@dataclass(frozen=True, slots=True)
class _Questions:
    """Stretches ``[low, high)``, with the rows ``[first, stop)`` of a ranking that are of their group."""

    low: Ticks
    high: Ticks
    first: Index
    stop: Index


class Ranking:
    """Those rows from ``start`` on that ``order`` names; it is sorted by group."""

    def __init__(self, start: int, order: Index, group: Hashes, vs: Ticks, ve: Ticks) -> None:
        self._start, self._order = start, order.astype(np.int32)
        self._place = np.empty(len(group), np.int32)
        self._place[order] = np.arange(len(order))
        self._groups, self._bounds = np.unique(group[order], return_index=True)
        self._bounds = np.append(self._bounds, len(order))
        self._starts, self._ends = [_fold(vs[order], FOREVER)], [_fold(ve[order], BEGINNING)]
        while len(self._starts[-1]) > 1:
            self._starts.append(_fold(self._starts[-1].min(axis=1), FOREVER))
            self._ends.append(_fold(self._ends[-1].max(axis=1), BEGINNING))

    def nbytes(self) -> int:
        """Memory taken."""
        trees = sum(level.nbytes for level in chain(self._starts, self._ends))
        return self._order.nbytes + self._place.nbytes + trees

    def remove(self, at: Index) -> None:
        """These rows, which have a rank, are gone."""
        places = self._place[at - self._start].astype(np.int64)
        self._ends[0].reshape(-1)[places] = BEGINNING
        for below, level in zip(self._ends, self._ends[1:], strict=False):
            places = unique_numbers(places >> _BITS)
            level.reshape(-1)[places] = below[places].max(axis=1)

    def find_deciding(self, group: Hashes, low: Ticks, high: Ticks, count: int) -> tuple[Index, Index]:
        """Pairs (question, position): what overlaps ``[low, high)``, until ``count`` span it."""
        if not len(self._groups):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self._groups, group), len(self._groups) - 1)
        stop = np.where(self._groups[at] == group, self._bounds[at + 1], 0)
        question, place = self._walk(_Questions(low, high, self._bounds[at], stop), count)
        return question, self._order[place].astype(np.int64) + self._start

    def _walk(self, asked: _Questions, count: int) -> tuple[Index, Index]:
        """All questions abreast; each stands at a place on a level, and all before that place is done."""
        top, missing = len(self._starts) - 1, np.full(len(asked.low), count)
        place, level = asked.first.copy(), np.zeros(len(asked.low), np.int64)
        found: list[tuple[Index, Index]] = []
        for here in cycle((*range(top + 1), *range(top - 1, 0, -1))):
            is_open = (missing > 0) & (level <= top) & (place << (_BITS * level) < asked.stop)
            if not bool(is_open.any()):
                break
            rows = np.flatnonzero(is_open & (level == here))
            if not len(rows):
                continue
            block = place[rows] >> _BITS
            hits = self._overlaps(asked, rows, here, block, place[rows])
            is_hit = hits.any(axis=1)
            # Nothing (more) here: on to the next block, one level up.
            place[rows], level[rows] = block + 1, here + 1
            if here:
                into = rows[is_hit]
                place[into] = (block[is_hit] * _WIDTH + hits[is_hit].argmax(axis=1)) << _BITS
                level[into] = here - 1
            else:
                own, column = np.nonzero(hits)
                at = block[own] * _WIDTH + column
                inside = at < asked.stop[rows[own]]
                question, at = rows[own[inside]], at[inside]
                found.append((question, at))
                np.subtract.at(missing, question[self._span(asked, question, at)], 1)
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *(q for q, _ in found)]), np.concatenate([none, *(p for _, p in found)])

    def _overlaps(self, asked: _Questions, rows: Index, level: int, block: Index, place: Index) -> Mask:
        """Which of the neighbours from ``place`` on may overlap what is asked."""
        hits: Mask = self._starts[level][block] < asked.high[rows, None]
        hits &= self._ends[level][block] > asked.low[rows, None]
        hits &= np.arange(_WIDTH) >= (place & (_WIDTH - 1))[:, None]
        return hits

    def _span(self, asked: _Questions, question: Index, place: Index) -> Mask:
        starts, ends = self._starts[0].reshape(-1)[place], self._ends[0].reshape(-1)[place]
        through: Mask = (starts <= asked.low[question]) & (ends >= asked.high[question])
        return through


def _fold(values: Ticks, filler: int) -> Ticks:
    """Sixteen to a row."""
    rows = max(1, -(-len(values) >> _BITS))
    folded = np.full(rows * _WIDTH, filler)
    folded[: len(values)] = values
    return folded.reshape(rows, _WIDTH)


class RankedEvents(EventStore):
    """Events that are also found by rank; ``own`` names the columns of the lifetimes that go into the order.

    Rankings follow from the events: they are made when they are first asked for, and are in no snapshot.
    """

    def __init__(self, schema: pa.Schema, extras: Sequence[str], own: tuple[str, str]) -> None:
        super().__init__(schema, extras)
        self._own = own
        self._rankings: dict[tuple[int, Order], Ranking] = {}

    def find_deciding(
        self, group: Hashes, low: Ticks, high: Ticks, picks: Sequence[Pick]
    ) -> tuple[Index, Index]:
        """Pairs (question, position), by question: events that overlap, all among them that can be picked."""
        self._forget_rankings()
        low = np.maximum(low, self._expired_until)
        codes = [np.zeros(0, np.int64)]
        for pick in picks:
            for run in self._runs:
                ranking = self._rankings.get((run.serial, pick.order)) or self._rank(run.serial, pick.order)
                question, at = ranking.find_deciding(group, low, high, pick.count)
                codes.append(question * len(self) + at)
        return np.divmod(unique_numbers(np.concatenate(codes)), max(1, len(self)))

    def _rank(self, serial: int, order: Order) -> Ranking:
        run = next(run for run in self._runs if run.serial == serial)
        group, vs, ve = (self._arena[name][run.start : run.stop] for name in ("group", "vs", "ve"))
        # What is dead may have no payload any more, as after taking over the changes of a checkpoint.
        live = np.flatnonzero(ve > self._expired_until)
        at = live + run.start
        start, end = (self.column(name, at) for name in self._own)
        by_rank = live[order(start, end, self.payload(at))]
        if bool((group[by_rank] != group[0]).any()):
            by_rank = by_rank[np.argsort(group[by_rank], kind="stable")]
        ranking = self._rankings[serial, order] = Ranking(run.start, by_rank, group, vs, ve)
        return ranking

    def _forget_rankings(self) -> None:
        """Of runs that are no more."""
        serials = {run.serial for run in self._runs}
        self._rankings = {key: ranking for key, ranking in self._rankings.items() if key[0] in serials}

    def remove(self, at: Index, *, rows_stay: bool = False) -> None:
        super().remove(at, rows_stay=rows_stay)
        for run in self._runs:
            inside = at[(at >= run.start) & (at < run.stop)]
            for (serial, _), ranking in self._rankings.items():
                if serial == run.serial and len(inside):
                    ranking.remove(inside)

    def expire(self, t: int) -> None:
        super().expire(t)
        self._forget_rankings()

    def nbytes(self) -> int:
        return super().nbytes() + sum(ranking.nbytes() for ranking in self._rankings.values())

    def restore(self, name: str, chunks: Mapping[str, pa.Table]) -> None:
        super().restore(name, chunks)
        self._rankings = {}
