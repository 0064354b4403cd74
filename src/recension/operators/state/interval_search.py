"""Which intervals in sorted runs overlap given ones: a range of candidates per run and length class.

The ranges are found by sort key, see `interval_index` and `sort_key`; what the key has lost is compared then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from recension.core.batch import Index
from recension.core.netting import distinct, spread
from recension.core.rowhash import Hashes
from recension.core.ticks import Ticks
from recension.operators.state.arena import Arena
from recension.operators.state.sort_key import SortKey, group_bits, level_bits, offset

# So many candidates are looked at together: longer columns would be fresh memory every time.
_AT_ONCE: Final = 1 << 13
# From so many candidates on it pays to find out what need not be compared.
_MANY: Final = 1 << 10
# With more groups than these it is likely that two share bits: as these two do.
_MOST_GROUPS: Final = 1 << 12
_SHARE_BITS: Final = np.array([0, 1], np.uint64)


@dataclass(slots=True, eq=False)
class ArenaRun:
    """Rows ``start`` to ``stop`` of the arena, sorted by key, with the greatest length in each class.

    No two runs ever have the same serial number.
    """

    serial: int
    start: int
    stop: int
    levels: Index
    longest: Hashes
    tags: Hashes | None = None
    by_tag: Index | None = None
    groups: Hashes | None = None

    def __len__(self) -> int:
        return self.stop - self.start


class TooManyCandidatesError(Exception):
    """A question about too much at once."""


@dataclass(frozen=True, slots=True)
class RunSearch:
    """A search in all runs of an arena, whose rows have keys of this kind."""

    arena: Arena
    runs: Sequence[ArenaRun]
    key: SortKey

    def find_overlaps(
        self, group: Hashes, lo: Ticks, hi: Ticks, most: int | None = None
    ) -> tuple[Index, Index]:
        """All pairs (question, position) with the same group, ``vs < hi`` and ``ve > lo``, by question.

        Raises `TooManyCandidatesError` rather than look at more than ``most``.
        """
        order = self.order(group, lo)
        first, last = self.ranges(group, lo, hi, order)
        used = np.flatnonzero(last > first)
        question, first, last = used // first.shape[1], first.take(used), last.take(used)
        ends = np.cumsum(last - first)
        total = int(ends[-1]) if len(ends) else 0
        if most is not None and total > most:
            raise TooManyCandidatesError
        # What the search has told exactly need not be compared again.
        is_exact = total > _MANY and self.key.is_exact_before(hi)
        is_one_group = total > _MANY and self._tells_groups(group.take(order))
        asked = lo, None if is_exact else hi, None if is_one_group else group
        cuts = np.searchsorted(ends, np.arange(_AT_ONCE, total, _AT_ONCE))
        # Memory that is not touched costs nothing.
        questions, found, size = np.empty(total, np.int64), np.empty(total, np.int64), 0
        for start, stop in pairwise([0, *cuts.tolist(), len(used)]):
            owner, at = spread(question[start:stop], first[start:stop], last[start:stop])
            hits = self._hits(owner, at, *asked)
            end = size + len(hits)
            np.take(owner, hits, out=questions[size:end], mode="clip")
            np.take(at, hits, out=found[size:end], mode="clip")
            size = end
        return questions[:size], found[:size]

    def _hits(self, question: Index, at: Index, lo: Ticks, hi: Ticks | None, group: Hashes | None) -> Index:
        """Which candidates are answers; what is None need not be compared."""
        is_hit = self.arena["ve"].take(at) > lo.take(question)
        if hi is not None:
            is_hit &= self.arena["vs"].take(at) < hi.take(question)
        if group is not None:
            is_hit &= self.arena["group"].take(at) == group.take(question)
        return np.flatnonzero(is_hit)

    def _tells_groups(self, asked: Hashes) -> bool:
        """Is all that the search finds of the group that was asked for, these being sorted?

        It is if no two groups, of the runs or asked for, share the bits that a key has of them.
        """
        for run in self.runs:
            if run.groups is None:
                run.groups = _groups_in(self.arena["group"][run.start : run.stop])
        groups = distinct(np.concatenate([_groups_in(asked), *(run.groups for run in self.runs)]))
        bits = group_bits(groups)
        return not bool((bits[1:] == bits[:-1]).any())

    def order(self, group: Hashes, lo: Ticks) -> Index:
        """Sorted questions share cache lines."""
        return np.argsort(group_bits(group) | self.key.code(offset(lo)))

    def ranges(self, group: Hashes, lo: Ticks, hi: Ticks, order: Index) -> tuple[Index, Index]:
        """The positions of the candidates: a row per question, a column per run and length class."""
        needle, low, high = group_bits(group[order]), offset(lo[order]), offset(hi[order]) - np.uint64(1)
        upper = needle | self.key.code(high)
        width = sum(len(run.levels) for run in self.runs)
        first, last = np.empty((len(lo), width), np.int64), np.empty((len(lo), width), np.int64)
        column = 0
        for run in self.runs:
            keys = self.arena["key"][run.start : run.stop]
            for bits, longest in zip(level_bits(run.levels), run.longest, strict=True):
                lower = needle | self.key.code(low - np.minimum(low, longest))
                first[order, column] = np.searchsorted(keys, bits | lower) + run.start
                last[order, column] = np.searchsorted(keys, bits | upper, "right") + run.start
                column += 1
        return first, last


def _groups_in(column: Hashes) -> Hashes:
    """The groups in a column where rows of one group mostly stand together; some may be there twice."""
    first = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    return column.take(first) if len(first) <= _MOST_GROUPS else _SHARE_BITS
