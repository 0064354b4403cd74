"""Aggregates per snapshot and per window, and users' modules over windows.

Sums (counts, any and all, and sums and means of whole numbers) sweep over end points; on a grid of windows
the axis is that of window numbers, and each stretch of equal answers becomes its windows (those of a calendar
are numbered by the local engine's grid). The least and greatest of windows are plain groups of (key, window),
and so are sessions, by their numbers. All else, where order, ties or digits of floats matter, runs on the
local engine's operators, partitioned by key.

A whole number is added in two halves of 32 bits. Neither overflows, both can be taken back, and put
together they give the sum, or tell that it does not fit in int64: an error, as on the local engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import kind_in_messages
from recension.core.window_limit import FROM, WindowLimit
from recension.lowering.windowed import grid_of, limit_of
from recension.operators.windowed.grid import AT_BEGINNING, GAP, NEAR_GAP
from recension.operators.windowed.numbered import ENDLESS
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Aggregate, AllTrue, AnyTrue, Count, Max, Mean, Min, Sum
from recension.plan.nodes import ModuleWindow, SessionAggregate, SnapshotAggregate, WindowAggregate
from recension.plan.windows import CalendarWindows, Windows
from recension.runners.spark.batch.frame import VE, VS, Frame, column_name, describe_time
from recension.runners.spark.batch.local_operators import map_partitions, stand_in_source, union_ports
from recension.runners.spark.batch.span import add_columns
from recension.runners.spark.batch.times import add, floor_divide, tick, type_of_kind
from recension.runners.spark.types import carrier

EVENTS = "events"
BEYOND = "a sum of whole numbers does not fit in int64; give the column as float64"
_AT = "_at"
_BEGINS, _SESSION = "_begins", "_session"
_LOW = 0xFFFFFFFF

A = TypeVar("A", bound=AggregateNode)


def snapshot_aggregate(node: SnapshotAggregate, frame: Frame) -> Frame:
    """One answer for every snapshot of every group."""
    if not _is_sums(node):
        return map_groups(node, frame)
    read = _AggregateInput.of(node, frame)
    found = sweep(read.rows, read.keys, read.parts)
    return read.answers(found, [f.col(VS), f.col(VE)])


def window_aggregate(node: WindowAggregate, frame: Frame) -> Frame:
    """One answer for every window of every group that holds an event."""
    grid, limit = node.windows, limit_of(node.windows, node)
    if _is_sums(node):
        read = _AggregateInput.of(node, frame)
        stretches = sweep(number_windows(read.rows, grid), read.keys, read.parts)
        return read.answers(explode_windows(stretches, limit, grid), window_lifetime(grid))
    if _is_plain(node):
        read = _AggregateInput.of(node, frame)
        windows = explode_windows(number_windows(read.rows, grid), limit, grid)
        return read.answers(windows.groupBy(*read.keys, VS).agg(*read.totals()), window_lifetime(grid))
    return map_groups(node, frame)


def session_aggregate(node: SessionAggregate, frame: Frame) -> Frame:
    """One answer for every session of every group."""
    if not _is_plain(node):
        return map_groups(node, frame)
    read = _AggregateInput.of(node, frame)
    numbered = number_sessions(read.rows, read.keys, node.windows.gap)
    lifetime = [f.min(VS).alias(VS), f.max(VE).alias(VE)]
    found = numbered.groupBy(*read.keys, _SESSION).agg(*lifetime, *read.totals())
    return read.answers(found, [f.col(VS), f.col(VE)])


def number_sessions(rows: DataFrame, keys: Sequence[str], gap: int) -> DataFrame:
    """The rows with the number of the session each is in, among those of its key."""
    by_start = Window.partitionBy(*keys).orderBy(VS)
    reach = f.max(VE).over(by_start.rowsBetween(Window.unboundedPreceding, -1))
    # The first row has none before it: it begins a session, as does one that begins beyond the gap.
    begins = f.when(f.col(VS) < add(reach, gap), 0).otherwise(1)
    number = f.sum(_BEGINS).over(by_start.rowsBetween(Window.unboundedPreceding, 0))
    return rows.withColumn(_BEGINS, begins).withColumn(_SESSION, number)


def map_groups(node: A, frame: Frame) -> Frame:
    """The local engine's operator on partitions that hold whole groups."""
    # Perfect input: the variant that waits shows every answer once, so that only inserts come out.
    waiting = replace(node, input=stand_in_source(frame), speculate="perfect")
    return map_partitions(waiting, _rows_by_group(node, frame))


def module_window(node: ModuleWindow, frame: Frame) -> Frame:
    """What the modules say of every window of every group."""
    # Perfect input: a window that is shown when it has ended is shown once.
    policies = replace(node.policies, speculate="perfect")
    waiting = replace(node, input=stand_in_source(frame), policies=policies)
    return map_partitions(waiting, _rows_by_group(node, frame))


def _rows_by_group(node: AggregateNode | ModuleWindow, frame: Frame) -> DataFrame:
    wider, keys = add_columns(frame, [key for _, key in node.keys])
    return union_ports([Frame(wider.df, frame.schema)], [keys])


def _is_sums(node: AggregateNode) -> bool:
    return all(is_sum(aggregate, node.input.schema) for _, aggregate in node.aggregates)


def _is_plain(node: AggregateNode) -> bool:
    return all(is_extreme(a) or is_sum(a, node.input.schema) for _, a in node.aggregates)


@dataclass(frozen=True)
class _AggregateInput:
    """What an aggregate reads: rows with keys and arguments as columns."""

    node: AggregateNode
    rows: DataFrame
    keys: list[str]
    arguments: list[str | None]

    @staticmethod
    def of(node: AggregateNode, frame: Frame) -> _AggregateInput:
        wanted = [aggregate.argument for _, aggregate in node.aggregates]
        given = [argument for argument in wanted if argument is not None]
        wider, names = add_columns(frame, [*(key for _, key in node.keys), *given])
        keys, rest = names[: len(node.keys)], iter(names[len(node.keys) :])
        return _AggregateInput(node, wider.df, keys, [None if a is None else next(rest) for a in wanted])

    @property
    def measures(self) -> Sequence[SumParts]:
        """How each aggregate is made of sums."""
        return [
            self._extreme(i, argument) if is_extreme(aggregate) else sum_parts(aggregate, argument, f"s{i}")
            for i, ((_, aggregate), argument) in enumerate(
                zip(self.node.aggregates, self.arguments, strict=True)
            )
        ]

    def _extreme(self, i: int, argument: str | None) -> SumParts:
        assert argument is not None
        return SumParts({}, lambda: f.col(f"s{i}"))

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
            column.cast(carrier(field.type, field.name)).alias(column_name(i))
            for i, (column, field) in enumerate(zip(columns, schema, strict=True))
        ]
        return Frame(found.select(times[0].alias(VS), times[1].alias(VE), *typed), schema)


def sweep(rows: DataFrame, keys: Sequence[str], parts: Mapping[str, Column]) -> DataFrame:
    """The sums of every snapshot that holds an event, with the number of events, for every key by itself.

    #   events     |------ 3 ------|
    #                   |--- 5 ---------|
    #   steps      +3   +5         -3  -5
    #   sums       | 3  |    8     | 5  |      each from its end point to the next

    Cost: one sort of the end points of each key; those that coincide are added up before the shuffle.
    """
    ends = f.array(_end_point(VS, 1), _end_point(VE, -1))
    steps = rows.select(
        *keys, *(part.alias(name) for name, part in parts.items()), f.explode(ends).alias(_AT)
    )
    sign = f.col(f"{_AT}.sign")
    at_once = steps.groupBy(*keys, f.col(f"{_AT}.t").alias(VS)).agg(
        f.sum(sign).alias(EVENTS), *(f.sum(f.col(name) * sign).alias(name) for name in parts)
    )
    by_time = Window.partitionBy(*keys).orderBy(VS)
    so_far = by_time.rowsBetween(Window.unboundedPreceding, 0)
    running = [f.sum(name).over(so_far).alias(name) for name in (EVENTS, *parts)]
    snapshots = at_once.select(*keys, VS, f.lead(VS).over(by_time).alias(VE), *running)
    return snapshots.where(f.col(EVENTS) > 0)


def _end_point(name: str, sign: int) -> Column:
    return f.struct(f.col(name).alias("t"), f.lit(sign).cast("bigint").alias("sign"))


@dataclass(frozen=True)
class SumParts:
    """One aggregate: the columns whose sums it needs, by name, and its answer from those sums."""

    parts: dict[str, Column] = field(default_factory=dict)
    answer: Callable[[], Column] = lambda: f.col(EVENTS)


def is_sum(aggregate: Aggregate, schema: pa.Schema) -> bool:
    """Counts, and sums and means of whole numbers; floats need sums that forget nothing."""
    if isinstance(aggregate, Count | AnyTrue | AllTrue):
        return True
    if not isinstance(aggregate, Sum | Mean):
        return False
    kind = aggregate.argument_type(schema)
    return bool(pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()))


def is_extreme(aggregate: Aggregate) -> bool:
    """The least or the greatest: Spark has the order of values that we have."""
    return isinstance(aggregate, Min | Max)


def sum_parts(aggregate: Aggregate, argument: str | None, name: str) -> SumParts:
    """How an aggregate is made of sums; ``name`` tells its parts from those of others."""
    if argument is None:
        return SumParts()
    valid = f.col(argument).isNotNull().cast("bigint")
    if isinstance(aggregate, Count):
        return SumParts({f"{name}n": valid}, lambda: f.col(f"{name}n"))
    value = f.coalesce(f.col(argument).cast("bigint"), f.lit(0).cast("bigint"))
    if isinstance(aggregate, AnyTrue | AllTrue):
        true = f.col(f"{name}true")
        holds = true == f.col(f"{name}n") if isinstance(aggregate, AllTrue) else true > 0
        return SumParts(
            {f"{name}n": valid, f"{name}true": value}, lambda: f.when(f.col(f"{name}n") > 0, holds)
        )
    halves = {
        f"{name}n": valid,
        f"{name}high": f.shiftright(value, 32),
        f"{name}low": value.bitwiseAND(f.lit(_LOW)),
    }
    answer = _whole_sum if isinstance(aggregate, Sum) else _mean
    return SumParts(halves, lambda: f.when(f.col(f"{name}n") > 0, answer(name)))


def _whole_sum(name: str) -> Column:
    low = f.col(f"{name}low")
    high = f.col(f"{name}high") + f.shiftright(low, 32)
    fits = (high >= f.lit(-(1 << 31))) & (high < f.lit(1 << 31))
    total = f.shiftleft(high, 32).bitwiseOR(low.bitwiseAND(f.lit(_LOW)))
    return f.when(fits, total).otherwise(f.raise_error(f.lit(BEYOND)).cast("bigint"))


def _mean(name: str) -> Column:
    high, low, n = (f.col(f"{name}{part}").cast("double") for part in ("high", "low", "n"))
    return (high * f.lit(float(1 << 32)) + low) / n


def number_windows(rows: DataFrame, grid: Windows) -> DataFrame:
    """The rows with `_vs`, `_ve` as the first window each overlaps and the first it does not."""
    if isinstance(grid, CalendarWindows):
        return _number_calendar_windows(rows, grid)
    vs, ve = f.col(VS), f.col(VE)
    first, stop = (_first_window(grid), _stop_window(grid)) if grid.hop > 1 else _every_tick(grid)
    first = f.when(vs == tick(BEGINNING), f.raise_error(AT_BEGINNING).cast("bigint")).otherwise(first)
    if grid.until is None:
        stop = f.when(ve == tick(FOREVER), f.raise_error(ENDLESS).cast("bigint")).otherwise(stop)
    else:
        last = tick(-((grid.offset % grid.hop - grid.until) // grid.hop))
        first, stop = f.least(first, last), f.when(ve == tick(FOREVER), last).otherwise(f.least(stop, last))
    others = [name for name in rows.columns if name not in (VS, VE)]
    return rows.select(first.alias(VS), stop.alias(VE), *others).where(f.col(VS) < f.col(VE))


def _number_calendar_windows(rows: DataFrame, grid: CalendarWindows) -> DataFrame:
    """Spark has no table of boundaries that is ours: the local engine's grid numbers whole Arrow arrays."""

    def place(vs: pa.Array, ve: pa.Array) -> pa.Array:
        numbers = grid_of(grid).place(vs.to_numpy(), ve.to_numpy())
        return pa.StructArray.from_arrays([pa.array(part) for part in numbers], ["first", "stop"])

    others = [name for name in rows.columns if name not in (VS, VE)]
    placed = rows.withColumn(_AT, f.arrow_udf(place, "first bigint, stop bigint")(VS, VE))
    first, stop = f.col(f"{_AT}.first"), f.col(f"{_AT}.stop")
    stop = f.when(stop == tick(FOREVER), f.raise_error(ENDLESS).cast("bigint")).otherwise(stop)
    return placed.select(first.alias(VS), stop.alias(VE), *others).where(f.col(VS) < f.col(VE))


def _first_window(grid: Windows) -> Column:
    """Times are divided by the hop before anything is taken from them: only quotients are sure to fit."""
    hops, past = divmod(grid.size + grid.offset % grid.hop, grid.hop)
    is_past = f.pmod(f.col(VS), tick(grid.hop)) >= tick(past)
    return floor_divide(f.col(VS), grid.hop) - tick(hops) + f.when(is_past, tick(1)).otherwise(tick(0))


def _stop_window(grid: Windows) -> Column:
    is_past = f.pmod(f.col(VE), tick(grid.hop)) > tick(grid.offset % grid.hop)
    return floor_divide(f.col(VE), grid.hop) + f.when(is_past, tick(1)).otherwise(tick(0))


def _every_tick(grid: Windows) -> tuple[Column, Column]:
    """Below the gap windows are numbered by their ends."""
    vs, ve = f.col(VS), f.col(VE)
    below, above = tick(max(BEGINNING, GAP - grid.size)), tick(GAP + grid.size - 1)
    nowhere = f.raise_error(NEAR_GAP).cast("bigint")
    first = f.when((vs < above) & (ve > below), nowhere).when(vs < above, add(vs, 1))
    return first.otherwise(add(vs, 1 - grid.size)), f.when(ve <= below, add(ve, grid.size)).otherwise(ve)


def explode_windows(rows: DataFrame, limit: WindowLimit, grid: Windows) -> DataFrame:
    """Rows over a stretch of windows, once for every window: `_vs` is its number."""
    others = [name for name in rows.columns if name not in (VS, VE)]
    # As decimals, since the difference may not fit.
    count = f.col(VE).cast("decimal(20,0)") - f.col(VS).cast("decimal(20,0)")
    names = {name: getattr(limit, name).replace("%", "%%") for name in ("step", "with_units")}
    words = replace(limit, **names).message(f"an event {FROM} %s", "%s")
    start = describe_time(window_lifetime(grid)[0], type_of_kind(kind_in_messages()))
    refused = f.raise_error(f.format_string(words, start, f.format_number(count, 0)))
    numbers = f.sequence(f.col(VS), f.col(VE) - 1)
    numbers = f.when(count > limit.most, refused.cast("array<bigint>")).otherwise(numbers)
    return rows.select(f.explode(numbers).alias(VS), *others)


def window_lifetime(grid: Windows) -> list[Column]:
    """The lifetimes of windows given by number."""
    if isinstance(grid, CalendarWindows):
        return _calendar_lifetime(grid)
    window, offset = f.col(VS), grid.offset % grid.hop
    if grid.hop > 1:
        return [
            _scale_window(grid.hop, offset).alias(VS),
            _scale_window(grid.hop, offset + grid.size).alias(VE),
        ]
    start = f.when(window < tick(GAP), add(window, -grid.size)).otherwise(window)
    return [start.alias(VS), f.when(window < tick(GAP), window).otherwise(add(window, grid.size)).alias(VE)]


def _calendar_lifetime(grid: CalendarWindows) -> list[Column]:
    def start(window: pa.Array) -> pa.Array:
        return pa.array(grid_of(grid).start(window.to_numpy()))

    def end(window: pa.Array) -> pa.Array:
        return pa.array(grid_of(grid).end(window.to_numpy()))

    return [f.arrow_udf(moment, "bigint")(VS).alias(name) for moment, name in ((start, VS), (end, VE))]


def _scale_window(hop: int, shift: int) -> Column:
    """``shift + window * hop``, saturated."""
    low, high = max(BEGINNING, -((shift - BEGINNING) // hop)), (FOREVER - shift) // hop
    window = f.col(VS)
    hops, rest = divmod(shift, hop)
    within = f.greatest(f.least(window, tick(high)), tick(low)) + tick(hops)
    # The product is taken on the near side of zero, so that it does not leave the range the sum is in.
    at = f.when(within < 0, (within + 1) * tick(hop) + tick(rest - hop)).otherwise(
        within * tick(hop) + tick(rest)
    )
    return f.when(window < tick(low), tick(BEGINNING)).when(window > tick(high), tick(FOREVER)).otherwise(at)
