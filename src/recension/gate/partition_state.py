"""How far the partitions of a source are, and how rows, or what is heard of them, move them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core import ticks
from recension.core.batch import CTI, Index, Mask
from recension.core.segments import is_greater, values_at
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.gate.partition_rows import PartitionRows

_NOTHING: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition is."""

    name: str
    cti: int
    """Its last CTI; it may be behind that of the source if it was idle then."""
    latest_start: int
    is_idle: bool
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What of it was dropped, moved or skipped, by reason."""

    @property
    def has_ended(self) -> bool:
        """Is nothing more to come of it?"""
        return self.cti == FOREVER


@dataclass(frozen=True, slots=True)
class Heard:
    """What a shard hears of the rows of all shards, its own included.

    ``rows`` is what `summarize` says of them, or a row for each step: the latest start of the rows from each
    order on. With ``delay`` each partition's CTI stays so far behind its latest start. A CTI comes to all
    shards; one of them counts it if it is left out.
    """

    rows: pa.Table
    delay: int | None = None
    counts_ctis: bool = True


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The partitions, in the order in which they spoke first."""

    names: tuple[str, ...] = ()
    cti: Ticks = field(default_factory=lambda: _NOTHING)
    latest: Ticks = field(default_factory=lambda: _NOTHING)
    spoke: Ticks = field(default_factory=lambda: _NOTHING)
    order: tuple[Index, ...] = ()
    has_order: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    source_cti: int = BEGINNING
    promised: int = BEGINNING
    """What was promised of all partitions, also those that have not spoken."""
    began: int | None = None
    now: int = BEGINNING

    def join(self, names: Sequence[str]) -> PartitionState:
        """With partitions that are new: they join at the source's CTI."""
        if not names:
            return self
        more = len(names)
        return replace(
            self,
            names=(*self.names, *names),
            cti=np.append(self.cti, np.full(more, self.source_cti)),
            latest=np.append(self.latest, np.full(more, BEGINNING)),
            spoke=np.append(self.spoke, np.full(more, self.now)),
            order=tuple(np.append(column, np.zeros(more, np.int64)) for column in self.order),
            has_order=np.append(self.has_order, np.zeros(more, np.bool_)),
        )

    def snapshot(self, expected: int | None) -> dict[str, pa.Table]:
        """It as small tables, with the number of partitions that is waited for."""
        order = {f"order_{i}": column for i, column in enumerate(self.order)}
        partitions = {
            "name": pa.array(self.names, pa.string()),
            "cti": self.cti,
            "latest_start": self.latest,
            "spoke": self.spoke,
            "has_order": self.has_order,
        }
        source = {"cti": [self.source_cti], "promised": [self.promised], "now": [self.now]}
        source |= {"expected": pa.array([expected], pa.int64())}
        return {
            "partitions": pa.table(partitions | order),
            "partitions_source": pa.table({**source, "began": pa.array([self.began], pa.int64())}),
        }

    @staticmethod
    def restore(chunks: Mapping[str, pa.Table]) -> tuple[PartitionState, int | None]:
        """What `snapshot` was given."""
        table, source = chunks["partitions"], chunks["partitions_source"].to_pylist()[0]
        orders = [name for name in table.column_names if name.startswith("order_")]
        state = PartitionState(
            names=tuple(table["name"].to_pylist()),
            cti=table["cti"].to_numpy(),
            latest=table["latest_start"].to_numpy(),
            spoke=table["spoke"].to_numpy(),
            order=tuple(table[name].to_numpy() for name in orders),
            has_order=table["has_order"].to_numpy(),
            source_cti=source["cti"],
            promised=source["promised"],
            began=source["began"],
            now=source["now"],
        )
        return state, source["expected"]

    def at(self, now: int) -> PartitionState:
        """The same, at a later time: a clock that is put back does not count."""
        now = max(now, self.now)
        return replace(self, now=now, began=now if self.began is None else self.began)


def advance(
    state: PartitionState, rows: PartitionRows, ignored: Mask, heard: Heard | None, delay: int | None
) -> PartitionState:
    """The partitions after these rows, and after what is heard of others."""
    cti, latest, spoke = state.cti.copy(), state.latest.copy(), state.spoke.copy()
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if len(rows):
        present = rows.partition[rows.at[rows.first]]
        spoke[present] = state.now
        is_cti, counts = rows.batch.kind == CTI, ~ignored
        starts = np.where(is_cti | ignored, np.int64(BEGINNING), rows.batch.vs)[rows.at]
        latest[present] = np.maximum(latest[present], np.maximum.reduceat(starts, rows.first))
        at = np.flatnonzero(is_cti & counts)
        np.maximum.at(cti, rows.partition[at], rows.batch.vs[at])
        if rows.placement.order:
            last = rows.at[np.append(rows.first[1:], len(rows)) - 1]
            tops = [column[last] for column in rows.placement.order]
            order, has_order = _raise_orders(order, has_order, present, tops)
    after = replace(state, cti=cti, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)
    if heard is not None:
        after, delay = _hear(after, heard.rows, state), delay if heard.delay is None else heard.delay
    return (
        after if delay is None else replace(after, cti=np.maximum(after.cti, ticks.add(after.latest, -delay)))
    )


def _raise_orders(
    order: list[Index], has_order: Mask, numbers: Index, tops: list[Index]
) -> tuple[list[Index], Mask]:
    """The highest order of each partition, where these numbers have got to these."""
    order = order or [np.zeros(len(has_order), np.int64) for _ in tops]
    is_higher = ~has_order[numbers] | is_greater(tops, [column[numbers] for column in order])
    for column, top in zip(order, tops, strict=True):
        column[numbers[is_higher]] = top[is_higher]
    has_order[numbers] = True
    return order, has_order


def _hear(state: PartitionState, heard: pa.Table, before: PartitionState) -> PartitionState:
    """After what is heard of the rows of all shards: their partitions have spoken.

    What goes back in order, by what was known before, is left out where it is, and says nothing of starts.
    """
    names: list[str] = heard["name"].to_pylist()
    known = {name: number for number, name in enumerate(state.names)}
    state = state.join([name for name in dict.fromkeys(names) if name not in known])
    known = {name: number for number, name in enumerate(state.names)}
    numbers = np.array([known[name] for name in names], np.int64)
    latest, spoke = state.latest.copy(), state.spoke.copy()
    spoke[numbers] = state.now
    columns = [name for name in heard.column_names if name.startswith("order_")]
    tops = [heard[name].to_numpy() for name in columns]
    counts = np.ones(len(names), np.bool_)
    if before.order:
        has_order = values_at(before.has_order.astype(np.int64), numbers, 0) > 0
        counts = ~has_order | is_greater(tops, [values_at(column, numbers, 0) for column in before.order])
    np.maximum.at(latest, numbers[counts], heard["latest_start"].to_numpy()[counts])
    order, has_order = [column.copy() for column in state.order], state.has_order.copy()
    if columns and len(names):
        # Several tasks may have had rows of one partition: the highest is put in last.
        sort = np.lexsort((*reversed(tops), numbers))
        last = np.append(numbers[sort][1:] != numbers[sort][:-1], True)
        chosen = sort[last]
        order, has_order = _raise_orders(order, has_order, numbers[chosen], [top[chosen] for top in tops])
    return replace(state, latest=latest, spoke=spoke, order=tuple(order), has_order=has_order)
