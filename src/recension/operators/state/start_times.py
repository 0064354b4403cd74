"""How far a stream has got, by the starts of its rows and its CTIs; a start far ahead of all others waits.

    time so far      rows that come
        |         x  x              x        ahead = the width of x  x
                     ^ time         waits: alone, and further ahead than that

What batches have is summed up first (`sum_up`), so that all shards can know of all rows at little cost.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, Index, Mask
from recension.core.ticks import BEGINNING, FOREVER, Ticks


class StartTimes:
    """``until`` is just after the time so far; ``waiting`` are the starts that are alone, in order."""

    def __init__(self, ahead: int | None) -> None:
        self._ahead = ahead
        self.until = BEGINNING
        self._waiting = np.zeros(0, np.int64)

    def take(self, start: Ticks, rows: Index) -> int:
        """Take in what `sum_up` gave; says how many more starts wait than had to be expected.

        Before there is any time no start is far ahead of it, though it waits for another one.
        """
        if self._ahead is None:
            self.reach(int(start.max(initial=BEGINNING)) if len(start) else None)
            return 0
        there, count = _add_up(
            np.concatenate([self._waiting, start]), np.append(np.ones(len(self._waiting), np.int64), rows)
        )
        there, count = there[count > 0], count[count > 0]
        is_fresh, has_time = np.isin(there, start[rows > 0]), self.until > BEGINNING
        moves = ~_is_alone(there, count, self._ahead)
        if has_time:
            moves |= is_fresh & (there <= min(self.until - 1 + self._ahead, FOREVER))
        self._waiting, known = there, is_fresh
        self.reach(int(there[moves][-1]) if bool(moves.any()) else None)
        return int(np.count_nonzero(known & (there >= self.until))) if has_time else 0

    def reach(self, time: int | None) -> int:
        """Time is there, if that is further; gives what is just after."""
        if time is not None:
            self.until = max(self.until, min(time, FOREVER - 1) + 1)
            self._waiting = self._waiting[self._waiting >= self.until]
        return self.until

    @staticmethod
    def sum_up(batch: EventBatch, ahead: int | None) -> tuple[Ticks, Index]:
        """The starts in a batch that may move the time of a stream, and how many rows more have each.

        Of starts near each other only the last such matters, and what is beyond.
        """
        came = batch.vs[batch.kind == INSERT]
        if ahead is None:
            latest = came[:1] if not len(came) else came.max(keepdims=True)
            return latest, np.ones(len(latest), np.int64)
        gone = batch.vs[(batch.kind == RETRACT) & (batch.new_ve == batch.vs)]
        start, rows = _add_up(np.concatenate([came, gone]), np.repeat([1, -1], [len(came), len(gone)]))
        there = start[rows > 0]
        sure = there[~_is_alone(there, rows[rows > 0], ahead)]
        if not len(sure):
            return start, rows
        beyond = start >= sure[-1]
        start, rows = start[beyond], rows[beyond]
        rows[0] = 2  # as good as a row beside it
        return start, rows

    def trace(self) -> tuple[int, ...]:
        """All that it remembers."""
        return self.until, *self._waiting.tolist()

    def snapshot(self) -> pa.Table:
        """The state; the first row is the time."""
        return pa.table({"start": np.append(np.int64(self.until), self._waiting)})

    def restore(self, table: pa.Table) -> None:
        """Become what `snapshot` gave."""
        times = table["start"].to_numpy()
        self.until, self._waiting = int(times[0]), times[1:].copy()


def _add_up(start: Ticks, rows: Index) -> tuple[Ticks, Index]:
    """Each start once, in order, with its rows; those whose rows come to nothing are left out."""
    once, inverse = np.unique(start, return_inverse=True)
    count = np.zeros(len(once), np.int64)
    np.add.at(count, inverse, rows)
    return once[count != 0], count[count != 0]


def _is_alone(start: Ticks, rows: Index, ahead: int) -> Mask:
    """Which starts, each once and in order, have no other row within ``ahead``."""
    unsigned = start.view(np.uint64)  # a distance may be longer than half of all time
    is_far = unsigned[1:] - unsigned[:-1] > np.uint64(ahead)
    edge = np.ones(min(len(start), 1), np.bool_)
    alone: Mask = np.append(edge, is_far) & np.append(is_far, edge) & (rows == 1)
    return alone
