"""Sessions: windows that events make, each from its first start to its latest end.

Two events of a group belong together if the later one begins before the earlier one's end plus the gap.

    gap            ....
    events      |---|....  |--|....        |--|....
                   |--|....
    sessions    |-------------|            |--|

An insert joins what it reaches, so that the sessions before a batch and its new events are intervals, and the
sessions after it are those that the intervals make. Only where a retraction is among them, the points at
which events begin and end are looked at (`session_points`).

A session is shown once the watermark has come to its end plus the gap, or at once. It is closed by a CTI at
that time: no later event reaches it, and no end in it can move. So its first start holds the CTI until then.

Source      docs/design/026-sessions.md
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask
from recension.core.sorted_runs import Columns, take_columns
from recension.core.ticks import BEGINNING, Ticks, add
from recension.operators.base import Chunks
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import align_moments, never_inserted_error
from recension.operators.state.leaf_table import LeafExtract, LeafTable
from recension.operators.state.session_rows import SessionRows
from recension.operators.windowed.events import Placement
from recension.operators.windowed.index import (
    Closing,
    IndexSpec,
    Stretches,
    WindowChange,
    WindowIndex,
    is_in_view,
)
from recension.operators.windowed.session_points import (
    Elements,
    MergedPoints,
    SessionPoints,
    Spans,
    add_up,
    firsts,
)
from recension.operators.windowed.steps import Contributions
from recension.operators.windowed.working_set import Sums, state_columns

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions in order of (group, start), with the sums of their events."""

    group: Index
    start: Ticks
    end: Ticks
    sums: Sums

    def __len__(self) -> int:
        return len(self.group)

    def take(self, which: Mask) -> Sessions:
        """Some of them."""
        rows = which.nonzero()[0]
        return Sessions(self.group[rows], self.start[rows], self.end[rows], self.sums.take(rows))

    def columns(self) -> Columns:
        """As they are kept."""
        return {"group": self.group, "time": self.start, "end": self.end, **self.sums.columns()}


class SessionIndex(WindowIndex):
    """Session windows; of events that are never taken back (``insert_only``) no points are kept."""

    is_lived_through = False

    def __init__(self, spec: IndexSpec, gap: int, *, insert_only: bool = False) -> None:
        columns = state_columns(spec.ints, spec.pairs)
        del columns["refs"]
        self._sessions = SessionRows({"end": np.int64, **columns}, spec.key_schema)
        self._inside = None if insert_only else SessionPoints(columns)
        super().__init__(self._sessions, spec)
        # A session begins with an insert, which moves the watermark to its start: it has always begun.
        self._view = "ended" if spec.view == "ended" else "all"
        self._gap, self._ints, self._pairs = gap, spec.ints, spec.pairs
        self._settled = BEGINNING

    @property
    def place(self) -> Placement | None:
        return None

    def widen(self, pairs: int) -> None:
        super().widen(pairs)
        self._pairs = pairs

    def _tables(self) -> list[LeafTable]:
        return [self._sessions.table, *([] if self._inside is None else [self._inside])]

    def change(self, batch: EventBatch, group: Index, amounts: Contributions, watermark: int) -> WindowChange:
        ended = self._upcoming.pop_until(self._horizon(watermark))
        if not len(batch) and not len(ended[0]):
            return self._move_to(watermark)
        looked = self._find_ended(*ended)
        if not len(batch):
            return self._compare(looked, looked, watermark, lambda: self._set_watermark(watermark))
        elements = Elements.sort(batch, group, amounts)
        clusters = self._cluster(elements)
        points = None if elements.is_plain else self._merge_points(elements, clusters)
        now = self._unite(elements, clusters, points)

        def write_back() -> None:
            self._write(clusters, now, watermark)
            if points is not None:
                points.write_back()
            elif self._inside is not None:
                self._inside.add(elements)
            if self._inside is not None:
                self._trim_later(elements, clusters)
            self.watermark = watermark

        looked = looked.take(~_are_among(looked, clusters.was))
        old, new = (_merge([sessions, looked]) for sessions in (clusters.was, now))
        return self._compare(old, new, watermark, write_back)

    def _horizon(self, watermark: int) -> int:
        """Sessions that end by then have ended for good if the watermark is right."""
        return int(add(np.array([watermark]), -self._gap)[0])

    def _find_ended(self, end: Ticks, group: Index) -> Sessions:
        """The sessions of groups that end at these times, if they still do."""
        if not len(end):
            return Sessions(_NONE, _NONE, _NONE, self._no_sums(0))
        order = np.argsort(sort_keys([group], [end])[0])
        group, end = group[order], end[order]
        rows = self._sessions.extract(group, end, end).columns
        known, asked = sort_keys([rows["group"], group], [rows["end"], end])
        return self._read(take_columns(rows, np.append(asked, -1)[asked.searchsorted(known)] == known))

    def _read(self, columns: Columns) -> Sessions:
        sums = Sums.from_columns(columns.__getitem__, self._ints, self._pairs)
        return Sessions(columns["group"], columns["time"], columns["end"], sums)

    def _no_sums(self, size: int) -> Sums:
        ints = [np.zeros(size, np.int64) for _ in range(self._ints)]
        pairs = [(np.zeros(size), np.zeros(size)) for _ in range(self._pairs)]
        return Sums(np.zeros(size, np.int64), ints, pairs)

    def _cluster(self, elements: Elements) -> Clusters:
        """What hangs together of the sessions so far and the lifetimes of the elements."""
        begins, reach = find_begins(elements.group, elements.vs, elements.end, self._gap)
        spans = Spans.between(begins, elements.group, elements.vs, reach)
        extract = self._sessions.extract(spans.group, spans.start, add(spans.end, self._gap - 1))
        own = extract.columns
        if bool(extract.follower.any()):
            own = take_columns(own, ~extract.follower)
        size = len(own["time"])
        keys = sort_keys([own["group"], spans.group], [own["time"], spans.start])
        order = np.argsort(np.concatenate(keys), kind="stable")  # two sorted runs
        group, start, end = (
            np.append(*parts)[order]
            for parts in ((own["group"], spans.group), (own["time"], spans.start), (own["end"], spans.end))
        )
        parts, reach = find_begins(group, start, end, self._gap)
        part = np.empty(len(order), np.int64)
        part[order] = parts.cumsum() - 1
        of_session, of_span = part[:size], part[size:]
        every = Spans.between(parts, group, start, reach)
        is_met = np.zeros(len(every.group), np.bool_)
        is_met[of_span] = True
        number, is_touched = is_met.cumsum() - 1, is_met[of_session]
        return Clusters(
            extract,
            take_columns(own, ~is_touched),
            self._read(take_columns(own, is_touched)),
            every.take(is_met),
            number[of_session[is_touched]],
            number[of_span][begins.cumsum() - 1],
        )

    def _unite(self, elements: Elements, clusters: Clusters, points: MergedPoints | None) -> Sessions:
        """The sessions that the clusters are now."""
        size, spans = len(clusters), clusters.spans
        sums = self._no_sums(size)
        if len(clusters.was):
            first = firsts(clusters.of_session)
            sums.put(clusters.of_session[first], add_up(clusters.was.sums, first))
        sums = sums.add(add_up(elements.sums, firsts(clusters.of_element)))
        united = Sessions(spans.group, spans.start, spans.end, sums)
        if points is None:
            return united
        is_taken = np.zeros(size, np.bool_)
        is_taken[clusters.of_element[elements.sign != 1]] = True
        parts = self._part(united, points, is_taken)
        return _merge([united.take(~is_taken), parts])

    def _part(self, united: Sessions, points: MergedPoints, is_taken: Mask) -> Sessions:
        """What is left of clusters in which something was taken back: the parts between their gaps."""
        cluster, rows = points.find_within(Spans(united.group, united.start, united.end).take(is_taken))
        which = is_taken.nonzero()[0]
        time, sums = points.time[rows], points.sums.take(rows)
        leaves = points.ends[rows] - sums.n
        last = np.append(cluster[1:] != cluster[:-1], True)[: len(rows)]
        # Alive after each point: what ends later, less what begins later.
        later = leaves[::-1].cumsum()[::-1]
        beyond = np.append(later, 0)[np.append(last.nonzero()[0], 0)[last.cumsum() - last] + 1]
        alive = later - leaves - beyond
        ends = last | ((alive == 0) & (np.append(time[1:], 0)[: len(time)] >= add(time, self._gap)))
        begins = np.append(True, ends[:-1])[: len(ends)]
        first = begins.nonzero()[0]
        of_part, start, sums = which[cluster[first]], time[first], add_up(sums, first)
        # A part that reaches back beyond the points is all there is, less the other parts.
        is_first = np.append(True, of_part[1:] != of_part[:-1])[: len(of_part)]
        old = (is_first & (united.start[of_part] <= self._settled)).nonzero()[0]
        if len(old):
            start[old] = united.start[of_part[old]]
            rest = self._no_sums(len(united))
            others = (~is_first).nonzero()[0]
            if len(others):
                own = firsts(of_part[others])
                rest.put(of_part[others][own], add_up(sums.take(others), own))
            whole = united.sums.take(of_part[old])
            sums.put(old, whole.add(_negate(rest.take(of_part[old]))))
        return Sessions(united.group[of_part], start, time[ends], sums)

    def _merge_points(self, elements: Elements, clusters: Clusters) -> MergedPoints:
        """The points of the clusters, with what the batch changes."""
        if self._inside is None:
            raise never_inserted_error()
        self._inside.settle_waiting()
        return self._inside.merge(elements, clusters.spans)

    def _write(self, clusters: Clusters, now: Sessions, watermark: int) -> None:
        columns = now.columns()
        if len(clusters.rest["time"]):
            rest = clusters.rest
            keys = sort_keys([rest["group"], now.group], [rest["time"], now.start])
            order = np.argsort(np.concatenate(keys), kind="stable")
            columns = {name: np.append(rest[name], column)[order] for name, column in columns.items()}
        was = clusters.was
        fresh = now.take(~_are_among(now, was))
        gone = was.take(~_are_among(was, now))
        self._sessions.replace(clusters.extract, columns, (fresh.group, fresh.end), (gone.group, gone.end))
        if self._view == "ended":
            later = fresh.end > self._horizon(watermark)
            self._upcoming.push(fresh.end[later], fresh.group[later])

    def _trim_later(self, elements: Elements, clusters: Clusters) -> None:
        """Where a session goes on for long, its points are dropped before it ends."""
        last = np.append(firsts(clusters.of_element)[1:], len(elements)) - 1
        start = elements.vs[last]
        rows = (clusters.spans.end > add(add(start, self._gap), self._gap)).nonzero()[0]
        self._sessions.look_again(start[rows], clusters.spans.group[rows])

    def _compare(
        self, old: Sessions, new: Sessions, watermark: int, write_back: Callable[[], None]
    ) -> WindowChange:
        """The windows shown before and after; those that begin together have one slot."""
        old, new = (
            sessions.take(is_in_view(self._view, self._horizon(m), sessions.start, sessions.end))
            for sessions, m in ((old, self.watermark), (new, watermark))
        )
        group, low, was, now = align_moments({"group": old.group, "time": old.start}, new.group, new.start)

        def stretches_of(slot: Index, sessions: Sessions) -> tuple[Ticks, Stretches]:
            end = low.copy()
            end[slot] = sessions.end
            return end, Stretches(slot, slot, group, low, end, sessions.sums)

        (had, before), (has, after) = stretches_of(was, old), stretches_of(now, new)
        return WindowChange(low, had, has, before, after, write_back)

    def is_endless(self) -> bool:
        return self._sessions.is_endless()

    def close(self, t: int, earliest: int) -> Closing:
        # Ends that can still move are in sessions that are open anyway.
        self._settled = closed = self._horizon(t)
        groups, gone = self._sessions.forget_until(closed)
        if self._inside is not None:
            self._inside.settle(groups, closed)
        first_open = min(t, self._sessions.earliest_held())
        rows = (gone["end"] > first_open).nonzero()[0]
        where = gone["group"][rows], gone["time"][rows], gone["end"][rows]
        return Closing(first_open, first_open, closed, first_open, where)

    def clear(self) -> None:
        super().clear()
        if self._inside is not None:
            self._inside.clear()

    def __len__(self) -> int:
        return super().__len__() + (0 if self._inside is None else len(self._inside))

    def nbytes(self) -> int:
        return super().nbytes() + (0 if self._inside is None else self._inside.nbytes())

    def snapshot(self) -> Chunks:
        own = {"settled": pa.table({"t": [self._settled]})}
        inside = {} if self._inside is None else {"inside": self._inside}
        return {**super().snapshot(), **own, **inside}

    def restore(self, chunks: Chunks) -> None:
        super().restore(chunks)
        self._settled = chunks["settled"]["t"][0].as_py()
        if self._inside is not None:
            self._inside.restore(chunks["inside"])
            self._inside.settled = self._settled
        self._pairs = self.count_pairs()


@dataclass(frozen=True, slots=True)
class Clusters:
    """What a batch touches: ``spans`` in which sessions and elements hang together.

    ``was`` are the sessions in them and ``rest`` the other rows of the ``extract``; ``of_session`` and
    ``of_element`` are the numbers of their clusters.
    """

    extract: LeafExtract
    rest: Columns
    was: Sessions
    spans: Spans
    of_session: Index
    of_element: Index

    def __len__(self) -> int:
        return len(self.spans.group)


def find_begins(group: Index, start: Ticks, end: Ticks, gap: int) -> tuple[Mask, Ticks]:
    """Which of the intervals, sorted by (group, start), begin a session; and how far each group has come.

    >>> one = np.zeros(4, np.int64)
    >>> begins, reach = find_begins(one, np.array([0, 2, 11, 20]), np.array([8, 3, 12, 21]), gap=4)
    >>> begins.tolist(), reach.tolist()
    ([True, False, False, True], [8, 8, 12, 21])
    """
    (keys,) = sort_keys([group], [end])
    is_furthest = keys == np.maximum.accumulate(keys)
    reach = end[np.maximum.accumulate(np.where(is_furthest, np.arange(len(keys)), 0))]
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = (group[1:] != group[:-1]) | (start[1:] >= add(reach[:-1], gap))
    return begins, reach


def _negate(sums: Sums) -> Sums:
    return Sums(-sums.n, [-column for column in sums.ints], [(-high, -low) for high, low in sums.pairs])


def _are_among(some: Sessions, others: Sessions) -> Mask:
    """Which sessions have the group and the end of one of the others?"""
    one, other = sort_keys([some.group, others.group], [some.end, others.end])
    place = other.searchsorted(one)
    is_found: Mask = np.append(other, -1)[place] == one
    return is_found


def _merge(parts: list[Sessions]) -> Sessions:
    """All of them, in order."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = [part.columns() for part in parts]
    joined = {name: np.concatenate([own[name] for own in columns]) for name in columns[0]}
    order = np.argsort(sort_keys([joined["group"]], [joined["time"]])[0], kind="stable")
    joined = take_columns(joined, order)
    ints, pairs = len(parts[0].sums.ints), len(parts[0].sums.pairs)
    sums = Sums.from_columns(joined.__getitem__, ints, pairs)
    return Sessions(joined["group"], joined["time"], joined["end"], sums)
