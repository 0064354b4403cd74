"""A bag of intervals, each in a group, for asking which of a group overlap a given interval.

Intervals are sorted by (length class, group, start), see `sort_key`. Within a class no interval is longer
than some ``longest``, so whatever overlaps ``[lo, hi)`` starts in one range per class:

    lo - longest        lo          hi
         |---------------|===========|        starts of the candidates; those that end by lo are dropped

Kept as consecutive sorted runs in one arena, each several times as long as the next (a log-structured
merge). Only an end ever changes in place, to the beginning of time: then the interval is dead. Merges and
compactions leave out what is dead.

Not `core.sorted_runs`: an answer is a position among all rows, so that all runs share one memory, and a row
is removed by position. And the sort key is lossy: when starts no longer fit it, all rows get a new key.

Cost        O((q + m) log n) for q questions and m answers, if the lengths of a class are alike (at worst
            16 candidates an answer); adding and forgetting: O(log n) an interval, over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.change_log import Change
from recension.core.memory import keep_columns
from recension.core.netting import cancel, distinct, expand
from recension.core.rowhash import Hashes
from recension.core.sorted_runs import Column, Columns
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.operators.state.arena import Arena
from recension.operators.state.interval_log import IntervalLog
from recension.operators.state.interval_search import ArenaRun, RunSearch
from recension.operators.state.sort_key import LEVELS, SortKey, level_bits, levels_of, may_unite

# A run is merged with the one before it when it has grown to a quarter of its length.
_RATIO = 4
# How many rows a call of `expire` may look at for free.
_GRACE = 1024
# So much more room than needed is kept: the next rows would take new memory.
_SPARE: Final = 8
_NO_ROW: Final = -1


class IntervalIndex:
    """Intervals with a group, a tag to find them by, a row of their own, and further int64 columns.

    Answers name intervals by their position; positions are good until the next `add` or `expire`.
    """

    key: Final = ("row",)

    def __init__(self, extras: Sequence[str] = ()) -> None:
        self.extras = ("row", *extras)
        types = {"key": np.uint64, "group": np.uint64, "vs": np.int64, "ve": np.int64, "tag": np.uint64}
        self._arena = Arena(types | dict.fromkeys(self.extras, np.int64))
        self._expired_until = BEGINNING
        self._serial = self._numbered = 0
        self._log: IntervalLog | None = None
        # The log while changes are taken over, which are stored.
        self._paused_log: IntervalLog | None = None
        self._clear()

    def _clear(self) -> None:
        self._arena.clear()
        self._runs: list[ArenaRun] = []
        self._key: SortKey | None = None
        self._credit = 0

    def __len__(self) -> int:
        """Rows held, including removed rows not yet compacted."""
        return len(self._arena)

    def count_live(self) -> int:
        """How many intervals are there; looks at all of them."""
        return int(np.count_nonzero(self._arena["ve"] > self._expired_until))

    @property
    def expired_until(self) -> int:
        """What ends at or before it has been dropped."""
        return self._expired_until

    def positions(self) -> Index:
        """Where the intervals are; looks at all of them."""
        return np.flatnonzero(self._arena["ve"] > self._expired_until)

    def nbytes(self) -> int:
        """Memory held."""
        return self._arena.nbytes()

    @property
    def rows(self) -> Index:
        """The row of every interval by position."""
        return self._arena["row"]

    def column(self, name: str, at: Index) -> Column:
        """``group``, ``vs``, ``ve``, ``tag`` or an extra column of the intervals at these positions."""
        return self._arena[name].take(at)

    def find_overlaps(
        self, group: Hashes, lo: Ticks, hi: Ticks, most: int | None = None
    ) -> tuple[Index, Index]:
        """All pairs (question, position) with the same group, ``vs < hi`` and ``ve > lo``, by question.

        Raises `TooManyCandidatesError` rather than look at more than ``most`` intervals.
        """
        lo = np.maximum(lo, self._expired_until)
        if not self._runs or not len(lo):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self._search().find_overlaps(group, lo, hi, most)

    def _search(self) -> RunSearch:
        assert self._key is not None
        return RunSearch(self._arena, self._runs, self._key)

    def find(self, tags: Hashes) -> Index:
        """The position of an interval with each tag, -1 if there is none; equal tags get different ones."""
        found = np.full(len(tags), -1)
        wanted = distinct(tags)
        at = self._find_all(wanted)
        _, which, tag = cancel(self._arena["tag"][at], tags)
        found[tag] = at[which]
        return found

    def _find_all(self, wanted: Hashes) -> Index:
        """The positions of all intervals with these tags."""
        at = np.concatenate([np.zeros(0, np.int64), *(self._find_tags(run, wanted) for run in self._runs)])
        found: Index = at[self._arena["ve"][at] > self._expired_until]
        return found

    def _find_tags(self, run: ArenaRun, wanted: Hashes) -> Index:
        if run.tags is None or run.by_tag is None:
            tags = self._arena["tag"][run.start : run.stop]
            order = np.argsort(tags)
            kept = keep_columns({"tags": tags[order], "order": order})
            run.tags, run.by_tag = kept["tags"], kept["order"]
        first = np.searchsorted(run.tags, wanted)
        last = np.searchsorted(run.tags, wanted, "right")
        return run.by_tag[expand(first, last)[1]] + run.start

    def remove(self, at: Index, *, rows_stay: bool = False) -> None:
        """Take away the intervals at these positions; other positions stay good.

        With ``rows_stay`` they come back, with other ends.
        """
        if self._log is not None:
            self._log.remove({name: self.column(name, at) for name in ("row", "tag", "ve")})
        self._arena["ve"][at] = BEGINNING
        if rows_stay:
            self._arena["row"][at] = _NO_ROW

    def add(self, group: Hashes, vs: Ticks, ve: Ticks, tag: Hashes, **extras: Index) -> None:
        """Add intervals, none of them empty; unless their rows are given, they get the next numbers."""
        if not len(vs):
            return
        self._credit += len(vs)
        fresh: Columns = {"row": np.arange(self._numbered, self._numbered + len(vs)), **extras}
        fresh |= {"group": group, "vs": vs, "ve": ve, "tag": tag}
        self._numbered = max(self._numbered, int(fresh["row"].max()) + 1)
        if self._log is not None:
            self._log.add(fresh, self._numbered)
        if self._key is None or not self._key.fits(vs):
            self._rebuild(fresh)
            return
        total, keep = len(vs), len(self._runs)
        while keep and len(self._runs[keep - 1]) <= _RATIO * total:
            keep -= 1
            total += len(self._runs[keep])
        self._append_sorted(fresh | {"key": self._key.pack(group, vs, ve)}, keep)

    def _append_sorted(self, fresh: Columns, keep: int) -> None:
        """One run from ``fresh`` and all runs but the first ``keep``."""
        start = self._runs[keep].start if keep < len(self._runs) else len(self._arena)
        order = np.argsort(fresh["key"])
        if start < len(self._arena):
            live, size = self._part_live(start) - start, len(self._arena) - start
            fresh = {name: np.concatenate([self._arena[name][start:], fresh[name]]) for name in fresh}
            # Sorted runs one after the other are quickly merged.
            sorted_runs = np.concatenate([live, order + size])
            order = sorted_runs.take(np.argsort(fresh["key"].take(sorted_runs), kind="stable"))
        self._arena.truncate(start)
        self._arena.append(fresh, order)
        del self._runs[keep:]
        self._runs.append(self._run(start, len(self._arena)))

    def _part_live(self, start: int) -> Index:
        """Which intervals from a position on are to stay when they are written anew."""
        is_live = self._arena["ve"][start:] > self._expired_until
        rows = self._arena["row"][start:][~is_live]
        self._let_go(rows[rows != _NO_ROW])
        return np.flatnonzero(is_live) + start

    def _let_go(self, rows: Index) -> None:
        """These rows are in no answer any more, nor ever will be."""
        if (log := self._log or self._paused_log) is not None:
            log.let_go(rows)

    def _run(self, start: int, stop: int) -> ArenaRun:
        """Sorted rows of the arena as a run."""
        vs = self._arena["vs"][start:stop]
        # What is dead ends before it begins.
        length = np.maximum(self._arena["ve"][start:stop], vs)
        length -= vs
        first = np.searchsorted(self._arena["key"][start:stop], level_bits(LEVELS))
        levels = np.flatnonzero(np.diff(first, append=stop - start))
        longest = np.maximum.reduceat(length.view(np.uint64), first[levels])
        self._serial += 1
        return ArenaRun(self._serial, start, stop, levels, longest)

    def _rebuild(self, fresh: Columns | None = None, live: Index | None = None) -> None:
        """One run from everything that is alive, and ``fresh``; ``live`` if it is known what is."""
        live = self._part_live(0) if live is None else live
        columns = {name: self._arena[name].take(live) for name in self._columns()}
        if fresh is not None:
            columns = {name: np.concatenate([column, fresh[name]]) for name, column in columns.items()}
        credit = self._credit
        self._clear()
        if len(columns["vs"]):
            self._key = SortKey.for_starts(columns["vs"])
            columns["key"] = self._key.pack(columns["group"], columns["vs"], columns["ve"])
            self._append_sorted(columns, 0)
            self._credit = credit

    def expire(self, t: int) -> None:
        """Drop all intervals that end at or before ``t``.

        They are out of every answer at once. Their room is given back when looking for them costs no more
        than what was done since the last look.
        """
        self._expired_until = max(self._expired_until, t)
        if t == FOREVER:
            self._clear()
        self._credit += _GRACE
        if 2 * self._credit >= len(self._arena) > 0:
            self._credit = 0
            if 2 * self.count_live() <= len(self._arena):
                self._compact()

    def _compact(self) -> None:
        """One run from everything that is alive, mostly with the keys it has."""
        live = self._part_live(0)
        keys = self._arena["key"].take(live)
        if not len(live) or len(self._runs) > 1 or may_unite(levels_of(keys)):
            self._rebuild(live=live)
            return
        columns = {name: self._arena[name].take(live) for name in self._arena}
        if self._arena.room > _SPARE * len(live) + _GRACE:
            self._arena.clear()
        self._arena.truncate(0)
        self._arena.append(columns)
        self._runs = [self._run(0, len(live))]

    def parts(self, name: str) -> dict[str, Any]:
        """The state under names that begin with ``name``."""
        # How rows lie in memory is no part of it: it depends on when the index was loaded.
        head = {"frontier": [self._expired_until], "numbered": [self._numbered]}
        return {f"{name}/head": pa.table(head), f"{name}/intervals": self}

    def snapshot(self) -> pa.Table:
        """All intervals that are there, by row."""
        at = self.positions()
        at = at[np.argsort(self._arena["row"][at])]
        return pa.table({name: self.column(name, at) for name in self._columns()})

    def restore(self, name: str, chunks: Mapping[str, Any]) -> None:
        """Become the index that gave these parts under this name, or take over changes."""
        head, given = chunks[f"{name}/head"].to_pylist()[0], chunks[f"{name}/intervals"]
        if isinstance(given, Change) and not given.is_whole:
            self._apply(given)
            # What is kept beside the intervals was stored after it had expired.
            IntervalIndex.expire(self, head["frontier"])
            return
        self._clear()
        self._expired_until, self._log = head["frontier"], None
        self.add(**self._read_open(given.rows if isinstance(given, Change) else given))
        self._numbered = max(self._numbered, head["numbered"])
        if isinstance(given, Change):
            self._log = IntervalLog(given.memo["version"], given.memo["base"])
            self._note_stored(given)

    def _note_stored(self, change: Change) -> None:
        assert self._log is not None
        assert change.versions is not None
        self._numbered = max(self._numbered, change.memo["numbered"])
        is_open = change.rows["ve"].to_numpy() > self._expired_until
        self._log.load(change.rows["row"].to_numpy()[is_open], change.versions[is_open], self._numbered)

    def _apply(self, change: Change) -> None:
        """Take away what is gone or has another end, and add what came."""
        log = self._paused_log = self._log
        assert log is not None
        self._log = None
        fresh = self._read_open(change.rows)
        is_known = log.holds(fresh["row"])
        tags, numbers = (
            np.append(change.gone[name].to_numpy(), fresh[name][is_known]) for name in ("tag", "row")
        )
        if len(numbers):
            at = self._find_all(distinct(tags))
            at = at[np.isin(self._arena["row"][at], numbers)]
            is_back = np.isin(self._arena["row"][at], fresh["row"])
            self.remove(at[~is_back])
            self.remove(at[is_back], rows_stay=True)
        self.add(**fresh)
        self._log, self._paused_log = log, None
        log.forget(change)
        self._note_stored(change)

    def _read_open(self, rows: pa.Table) -> Columns:
        """The intervals that have not expired."""
        rows = rows.filter(pa.array(rows["ve"].to_numpy() > self._expired_until))
        return {name: rows[name].to_numpy() for name in self._columns()}

    def take_changes(self, version: int) -> Change:
        """See `Logged.take_changes`."""
        if self._log is None:
            rows = self.snapshot()
            self._log = IntervalLog(version, version)
            numbers = rows["row"].to_numpy()
            self._log.load(numbers, np.full(len(numbers), version), self._numbered)
            gone = rows.select(["row", "tag", "ve"]).slice(0, 0)
            return Change(rows, gone, is_whole=True, memo=self._log.memo())
        empty = {name: self._arena[name][:0] for name in self._columns()}
        return self._log.take_changes(version, empty, self._expired_until)

    def find_current(self, change: Change, version: int) -> tuple[Mask, Mask]:
        """See `Logged.find_current`."""
        assert self._log is not None
        return self._log.find_current(change, version, self._expired_until)

    def _columns(self) -> tuple[str, ...]:
        return ("group", "vs", "ve", "tag", *self.extras)
