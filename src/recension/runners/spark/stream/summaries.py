"""Summaries: what every shard must know of the partitions of a source, without getting their rows.

A task sends every shard a summary of the rows that it has read:

    rows of a task    partition  order  start          summary    partition  order  start
                      a          7      10                        a          9      12
                      a          8      12                        b          4      30
                      a          9      11
                      b          4      30

Where rows that go back in order are dropped, these do not count. A task cannot know which they are. So the
summary says then how late the rows *from each order on* start: here (a, 8, 12) and (a, 9, 11), not (9, 12).

The orders themselves go to one shard, the keeper of a partition: two rows with one order may be in tasks and
shards that know nothing of each other. Consecutive ones are sent as a run.

Assumes     every task of a micro-batch sends its summary to every shard.
Guarantees  all shards learn the same; of the rows after any order, the latest start.
Cost        a row for each partition, step and run; a sort of what a task reads, if it is not in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, Index, Mask
from recension.core.errors import StreamError
from recension.core.formats.decode import CLOSE
from recension.core.placement import Placement
from recension.core.ticks import BEGINNING, Ticks
from recension.gate.partition_order import UNORDERED
from recension.runners.spark.stream.codec import pack_tables, unpack_tables

_NAME: Final = "name"
_START: Final = "latest_start"
_ORDER: Final = "order_"
_LENGTH: Final = "length"
_HEARD: Final = "heard"
_ORDERS: Final = "orders"


class Summary:
    """Sums up the rows of one task.

    With ``is_stepwise`` it tells the latest start of the rows from each order on. With ``keeps_orders`` it
    has the orders too, for the keepers.
    """

    def __init__(self, *, is_stepwise: bool, keeps_orders: bool) -> None:
        self._is_stepwise, self._keeps_orders = is_stepwise, keeps_orders
        self._heard: list[pa.Table] = []
        self._orders: list[pa.Table] = []

    def add(self, events: EventBatch, placement: Placement) -> None:
        """Add rows that were read."""
        if not len(events):
            return
        is_row = (events.kind != CTI) & (events.kind != EXTERNAL_CTI) & (events.kind != CLOSE)
        start = np.where(is_row, events.vs, np.int64(BEGINNING))
        rows = _Rows.of(placement, start)
        self._heard.append(_to_table(placement, rows.summed_up(is_stepwise=self._is_stepwise)))
        if self._keeps_orders and placement.order:
            first, length = rows.runs()
            self._orders.append(_to_table(placement, first).append_column(_LENGTH, pa.array(length)))

    def to_bytes(self, shard: int, shards: int, *, with_orders: bool) -> bytes | None:
        """What one of the shards is sent, with the orders of those it keeps; None if there is nothing."""
        if not self._heard:
            return None
        tables = {_HEARD: pa.concat_tables(self._heard)}
        if with_orders and self._orders:
            orders = pa.concat_tables(self._orders)
            kept = [n for n in orders[_NAME].unique().to_pylist() if crc32(n.encode()) % shards == shard]
            is_kept = pc.is_in(orders[_NAME], pa.array(kept, pa.string()))
            tables[_ORDERS] = orders.filter(is_kept).drop_columns(_START)
        return pack_tables(tables)


class _Rows(NamedTuple):
    """Rows by partition and order."""

    at: Index
    code: Index
    order: tuple[Index, ...]
    start: Ticks

    @staticmethod
    def of(placement: Placement, start: Ticks) -> _Rows:
        at = _sorted(placement.code, placement.order)
        return _Rows(at, placement.code[at], tuple(column[at] for column in placement.order), start[at])

    def take(self, rows: Index | Mask) -> _Rows:
        return _Rows(self.at[rows], self.code[rows], tuple(c[rows] for c in self.order), self.start[rows])

    def is_last(self) -> Mask:
        """Which are the last of their partitions."""
        return np.append(self.code[1:] != self.code[:-1], True)

    def summed_up(self, *, is_stepwise: bool) -> _Rows:
        """The last row of each partition, with the latest start of all; or the steps."""
        is_last = self.is_last()
        if is_stepwise and self.order:
            return self.take(is_last | self._starts_after_rest())
        first = np.flatnonzero(np.append(True, is_last[:-1]))
        return self.take(is_last)._replace(start=np.maximum.reduceat(self.start, first))

    def _starts_after_rest(self) -> Mask:
        """Which rows start later than all that follow in their partition."""
        rank = np.unique(self.start, return_inverse=True)[1]
        # From the end on, each partition begins above all that were before.
        level = (int(self.code[-1]) - self.code) * len(rank) + rank
        after = np.append(np.maximum.accumulate(level[::-1])[::-1][1:], np.int64(-1))
        return level > after

    def runs(self) -> tuple[_Rows, Index]:
        """The first of each run of consecutive orders, and the lengths of the runs."""
        is_new = np.append(True, self.is_last()[:-1] | (np.diff(self.order[-1]) != 1))
        for column in self.order[:-1]:
            is_new[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(is_new)
        return self.take(first), np.diff(np.append(first, len(self.code)))


def _sorted(code: Index, order: tuple[Index, ...]) -> Index:
    """Rows by partition and order; where each partition is in order already, that costs little."""
    at = np.arange(len(code))
    if bool((code[1:] < code[:-1]).any()):
        at = np.argsort(code.astype(np.uint16) if code.max() < 1 << 16 else code, kind="stable")
    if len(order) == 1:
        is_same, key = code[at[1:]] == code[at[:-1]], order[0][at]
        if not bool((is_same & (key[1:] < key[:-1])).any()):
            return at
    return np.lexsort((*reversed(order), code)) if order else at


def _to_table(placement: Placement, rows: _Rows) -> pa.Table:
    names = pa.array(placement.names, pa.string()).take(pa.array(rows.code))
    order = {f"{_ORDER}{i}": column for i, column in enumerate(rows.order)}
    return pa.table({_NAME: names, _START: rows.start, **order})


def read_summaries(summaries: Iterable[bytes | None]) -> tuple[pa.Table | None, list[pa.Table]]:
    """What all tasks say together, and the orders that a keeper was sent."""
    tables = [unpack_tables(summary) for summary in summaries if summary is not None]
    if not tables:
        return None, []
    heard = pa.concat_tables([named[_HEARD] for named in tables])
    return heard, [named[_ORDERS] for named in tables if _ORDERS in named]


def refuse_equal_orders(orders: Sequence[pa.Table], source: str, columns: Sequence[str]) -> None:
    """Refuse two rows of one partition with the same order, which may be in different shards."""
    runs = pa.concat_tables(orders) if orders else None
    if runs is None or not len(runs):
        return
    encoded = runs[_NAME].combine_chunks().dictionary_encode()
    names, code = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    order = [runs[name].to_numpy() for name in runs.column_names if name.startswith(_ORDER)]
    at = np.lexsort((*reversed(order), code))
    is_twice = code[at[1:]] == code[at[:-1]]
    for column in order[:-1]:
        is_twice &= column[at[1:]] == column[at[:-1]]
    # If a run reaches into a later one, it reaches into the next one.
    is_twice &= order[-1][at[1:]] - order[-1][at[:-1]] < runs[_LENGTH].to_numpy()[at[:-1]]
    if bool(is_twice.any()):
        row = int(at[int(is_twice.argmax()) + 1])
        where = ", ".join(f"{name} {column[row]}" for name, column in zip(columns, order, strict=True))
        twice = "/".join(str(column[row]) for column in order)
        reason = f"partition {names[code[row]]}, {where}: {UNORDERED}: order {twice} twice"
        raise StreamError(reason, file=source)
