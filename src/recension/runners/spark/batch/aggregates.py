"""Aggregates per snapshot and per window.

Sums (counts, and sums and means of whole numbers) sweep over end points; on a grid of windows the axis is
that of window numbers, and each stretch of equal answers becomes its windows. The least and greatest of
windows are plain groups of (key, window). All else, where order, ties or digits of floats matter, runs on
the local engine's operators, partitioned by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from recension.core.window_limit import WindowLimit
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Max
from recension.plan.nodes import CountAggregate, SnapshotAggregate, WindowAggregate
from recension.runners.spark.batch.frame import VE, VS, Frame, position
from recension.runners.spark.batch.grid import each_window, lifetime, numbered
from recension.runners.spark.batch.hosted import each_partition, ported, stand_in
from recension.runners.spark.batch.span import beside
from recension.runners.spark.batch.sums import EVENTS, Summed, is_extreme, is_summed, summed
from recension.runners.spark.batch.sweep import sweep
from recension.runners.spark.types import carrier

A = TypeVar("A", bound=AggregateNode)


def snapshot_aggregate(node: SnapshotAggregate, frame: Frame) -> Frame:
    """One answer for every snapshot of every group."""
    if not _is_sums(node):
        return hosted(node, frame)
    read = _Read.of(node, frame)
    found = sweep(read.rows, read.keys, read.parts)
    return read.answers(found, [f.col(VS), f.col(VE)])


def window_aggregate(node: WindowAggregate, frame: Frame) -> Frame:
    """One answer for every window of every group that holds an event."""
    grid, limit = node.windows, WindowLimit(node.label, node.windows.max_windows)
    if _is_sums(node):
        read = _Read.of(node, frame)
        stretches = sweep(numbered(read.rows, grid), read.keys, read.parts)
        return read.answers(each_window(stretches, limit, grid), lifetime(grid))
    if _is_plain(node):
        read = _Read.of(node, frame)
        windows = each_window(numbered(read.rows, grid), limit, grid)
        return read.answers(windows.groupBy(*read.keys, VS).agg(*read.totals()), lifetime(grid))
    return hosted(node, frame)


def count_aggregate(node: CountAggregate, frame: Frame) -> Frame:
    """One answer for every run of moments."""
    return hosted(node, frame)


def hosted(node: A, frame: Frame) -> Frame:
    """The local engine's operator on partitions that hold whole groups."""
    wider, keys = beside(frame, [key for _, key in node.keys])
    rows = ported([Frame(wider.df, frame.schema)], [keys])
    # Perfect input: the variant that waits shows every answer once, so that only inserts come out.
    return each_partition(replace(node, input=stand_in(frame), speculate="perfect"), rows)


def _is_sums(node: AggregateNode) -> bool:
    return all(is_summed(aggregate, node.input.schema) for _, aggregate in node.aggregates)


def _is_plain(node: AggregateNode) -> bool:
    return all(is_extreme(a) or is_summed(a, node.input.schema) for _, a in node.aggregates)


@dataclass(frozen=True)
class _Read:
    """What an aggregate reads: rows with keys and arguments as columns."""

    node: AggregateNode
    rows: DataFrame
    keys: list[str]
    arguments: list[str | None]

    @staticmethod
    def of(node: AggregateNode, frame: Frame) -> _Read:
        wanted = [aggregate.argument for _, aggregate in node.aggregates]
        given = [argument for argument in wanted if argument is not None]
        wider, names = beside(frame, [*(key for _, key in node.keys), *given])
        keys, rest = names[: len(node.keys)], iter(names[len(node.keys) :])
        return _Read(node, wider.df, keys, [None if a is None else next(rest) for a in wanted])

    @property
    def measures(self) -> Sequence[Summed]:
        """How each aggregate is made of sums."""
        return [
            self._extreme(i, argument) if is_extreme(aggregate) else summed(aggregate, argument, f"s{i}")
            for i, ((_, aggregate), argument) in enumerate(
                zip(self.node.aggregates, self.arguments, strict=True)
            )
        ]

    def _extreme(self, i: int, argument: str | None) -> Summed:
        assert argument is not None
        return Summed({}, lambda: f.col(f"s{i}"))

    @property
    def parts(self) -> dict[str, Column]:
        """All columns to be summed."""
        return {name: part for measure in self.measures for name, part in measure.parts.items()}

    def totals(self) -> list[Column]:
        """The sums, and the extremes, of a plain group."""
        extremes = [
            (f.max if isinstance(aggregate, Max) else f.min)(str(argument)).alias(f"s{i}")
            for i, ((_, aggregate), argument) in enumerate(
                zip(self.node.aggregates, self.arguments, strict=True)
            )
            if is_extreme(aggregate)
        ]
        sums = [f.sum(part).alias(name) for name, part in self.parts.items()]
        return [f.count(f.lit(1)).alias(EVENTS), *sums, *extremes]

    def answers(self, found: DataFrame, times: Sequence[Column]) -> Frame:
        """The group's keys, then the answers."""
        schema = self.node.schema
        columns = [f.col(key) for key in self.keys] + [measure.answer() for measure in self.measures]
        typed = [
            column.cast(carrier(field.type, field.name)).alias(position(i))
            for i, (column, field) in enumerate(zip(columns, schema, strict=True))
        ]
        return Frame(found.select(times[0].alias(VS), times[1].alias(VE), *typed), schema)
