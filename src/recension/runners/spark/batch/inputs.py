"""Inputs of a batch run as frames: histories, plain tables, and physical streams, which are reconstituted.

Columns of a user's DataFrame are read by position: no name meets Spark's rules for names.

A physical stream nets out to its history as a signed bag:

    insert    +1 at (vs, ve)
    retract   -1 at (vs, ve), +1 at (vs, new_ve) unless that is empty
    open      +1 at (vs, forever)
    close     -1 at the end its event had until then, +1 at the new one

Sums do not depend on order. Only open and close do: they are walked payload by payload, in the order of
`_batch` and `_seq`, or without these in the order of the rows. What is less than nothing in the end was
retracted and never there. CTIs say when things are known, which a history does not tell.

Partitions of a source net out each by itself; their events together are the history. Elements that were sent
twice, by run and sequence, count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.errors import RecensionError, SchemaError, suggest_name
from recension.core.formats.columns import BATCH, KIND, NEW_VE, SEQ, Layout, TimeColumns, layout_of
from recension.core.placement import PartitionColumns
from recension.core.ticks import BEGINNING, FOREVER, TICKS_PER
from recension.core.validity import ELSEWHERE
from recension.gate.partition_order import UNORDERED
from recension.plan.nodes import Source
from recension.runners.spark.batch.frame import (
    VE,
    VS,
    Frame,
    describe_event,
    describe_lifetime,
    make_frame,
    raise_if,
    repeat_rows,
)
from recension.runners.spark.batch.times import add, tick, to_ticks, to_times, type_of_kind
from recension.runners.spark.types import arrow_type, carrier

_STEPS = "steps"
_LEVEL = "level"
PARTITION = "partition"
_OUR_TIMES = TimeColumns()
_KINDS = ("insert", "retract", "cti", "external_cti", "open", "close")
_WIDENING = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class NamedFrame:
    """A DataFrame under a name for messages."""

    given: DataFrame
    name: str
    times: TimeColumns = _OUR_TIMES
    are_rows: bool = False
    """Rows of a keyed source may have empty intervals: what is made of them is judged."""
    sub_streams: PartitionColumns | None = None
    """The columns that say in which partition a row stands, and where; not if there are none."""
    closes_once: bool = False
    """Does each of equal events have a close of its own?"""

    @staticmethod
    def of(given: Any, name: str, times: TimeColumns = _OUR_TIMES) -> NamedFrame:
        """What was given, if it is a DataFrame that a batch job can read."""
        if not isinstance(given, DataFrame):
            raise RecensionError(f"{name}: a batch run reads Spark DataFrames, not a {type(given).__name__}")
        if given.isStreaming:
            raise RecensionError(f"{name}: a streaming DataFrame; run it with rc.spark.stream")
        return NamedFrame(given, name, times)

    @cached_property
    def layout(self) -> Layout:
        """What the columns mean, or an error that names the one that is wrong."""
        is_stream = KIND in self.given.columns and not self.times.is_timeless
        times = self.times.ours if is_stream else self.times
        fields = [pa.field(field.name, self._arrow_type(field)) for field in self.given.schema]
        return layout_of(pa.schema(fields), times, self.name)

    def _arrow_type(self, field: spark.StructField) -> pa.DataType:
        try:
            return arrow_type(field.dataType)
        except (PySparkException, TypeError, ValueError):
            kind = field.dataType.simpleString()
            raise SchemaError(f"{self.name}: column {field.name} is {kind}, which is not supported") from None

    @cached_property
    def rows(self) -> DataFrame:
        """The rows, columns by position."""
        return self.given.toDF(*(f"x{i}" for i in range(len(self.given.columns))))

    @cached_property
    def _columns(self) -> Mapping[str, tuple[Column, spark.DataType]]:
        fields = self.given.schema.fields
        return {field.name: (f.col(f"x{i}"), field.dataType) for i, field in enumerate(fields)}

    def has(self, name: str) -> bool:
        """Is there such a column?"""
        return name in self._columns

    def column(self, name: str) -> Column:
        """A column by its name, null where there is none."""
        return self._columns[name][0] if name in self._columns else f.lit(None)

    def ticks(self, name: str) -> Column:
        """A column of times as ticks, null where there is none."""
        if name not in self._columns:
            return f.lit(None).cast("bigint")
        column, kind = self._columns[name]
        if self.times.unit is None or not isinstance(kind, spark.IntegralType):
            return to_ticks(column, kind)
        ends = column.isin(BEGINNING, FOREVER)
        return f.when(ends, column).otherwise(column.cast("bigint") * TICKS_PER[self.times.unit])

    @property
    def has_partitions(self) -> bool:
        """Are its rows of several streams?"""
        return self.sub_streams is not None and bool(self.sub_streams.partition)

    @property
    def partition(self) -> Column:
        """The name of the partition that each row is in."""
        named = () if self.sub_streams is None else self.sub_streams.partition
        return f.concat_ws("/", *(self.column(name).cast("string") for name in named))

    @property
    def time_type(self) -> spark.DataType:
        """The type in which its times are given back."""
        return type_of_kind(self.layout.kind)

    def payload(self, schema: pa.Schema) -> dict[str, Column]:
        """The payload columns as the carriers of their declared types; one that does not fit is refused."""
        return {field.name: self._carry(field) for field in schema}

    def _carry(self, field: pa.Field) -> Column:
        if field.name not in self._columns or field.name not in self.layout.payload.names:
            names = self.layout.payload.names
            hint, there = suggest_name(field.name, names), ", ".join(names) or "none"
            raise SchemaError(f"{self.name}: no column {field.name}{hint}; the payload columns are {there}")
        (column, found), wanted = self._columns[field.name], carrier(field.type, field.name)
        if found.simpleString() == wanted.simpleString():
            return column
        if _is_time(found) and _is_time(wanted):
            return to_times(to_ticks(column, found), wanted)
        if _fits(found, wanted):
            return column.cast(wanted)
        if isinstance(found, spark.FloatType | spark.DoubleType) and isinstance(wanted, spark.DecimalType):
            return self._as_decimal(column, found, wanted, field)
        raise SchemaError(
            f"{self.name}: column {field.name} is {found.simpleString()}, but the source says "
            f"{field.type}, which is {wanted.simpleString()} in Spark; cast it"
        )

    def _as_decimal(
        self, column: Column, found: spark.DataType, wanted: spark.DataType, field: pa.Field
    ) -> Column:
        """The decimal to which a float is the nearest, as in `core.values`; others are refused."""
        made, text = column.cast("string").try_cast(wanted), column.cast("string")
        words = f.concat(
            f.lit(f"{self.name}: column {field.name}: "), text, f.lit(f" is not the same as {field.type}")
        )
        is_same = column.isNull() | f.coalesce(made.cast(found) == column, f.lit(False))
        return f.when(is_same, made).otherwise(f.raise_error(words).cast(wanted))


def _is_time(kind: spark.DataType) -> bool:
    return isinstance(kind, spark.TimestampType | spark.TimestampNTZType)


def _fits(found: spark.DataType, wanted: spark.DataType) -> bool:
    """Does every value survive the cast?"""
    if isinstance(found, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        whole = [kind.precision - kind.scale for kind in (found, wanted)]
        return bool(whole[0] <= whole[1] and found.scale <= wanted.scale)
    small, large = found.simpleString(), wanted.simpleString()
    if small in _WIDENING and large in _WIDENING:
        return _WIDENING.index(small) < _WIDENING.index(large)
    return small == "void" or (small, large) == ("float", "double")


def source_frame(source: Source, table: NamedFrame) -> Frame:
    """The history that a source's DataFrame holds."""
    if (places := source.sub_streams_in(table.given.columns)) is not None:
        table = _take_once(replace(table, sub_streams=places), places)
    payload = table.payload(source.columns)
    if not table.layout.is_table:
        if source.on_violation != "raise":
            raise RecensionError(
                f"source {source.name}: on_violation={source.on_violation!r} depends on arrival; a batch run "
                "takes a stream only as it is: give its history, or run the query as a stream"
            )
        if source.are_rows:
            words = f"{source.name}: a retraction, but the source is keyed: it takes rows and ctis"
            is_plain = raise_if(f.col(KIND).isin("retract", "close"), f.lit(words))
            table = replace(table, given=table.given.where(is_plain), are_rows=True)
        table = replace(table, closes_once=source.closes_once)
        return Frame(reconstitute(table, payload), source.columns)
    times = table.layout.times
    if times.is_timeless:
        always = table.rows.withColumns({VS: tick(BEGINNING), VE: tick(FOREVER)})
        return make_frame(always, payload, source.columns)
    start, end = table.ticks(times.vs), f.coalesce(table.ticks(times.ve), tick(FOREVER))
    timed = table.rows.withColumns({VS: start, VE: add(start, 1) if table.layout.is_points else end})
    return make_frame(_check_lifetimes(timed, source, table.time_type), payload, source.columns)


def _take_once(table: NamedFrame, named: PartitionColumns) -> NamedFrame:
    """The rows without those that were sent twice; two of one partition with the same order are refused."""
    for name in named.names:
        if not table.has(name):
            hint, there = suggest_name(name, table.given.columns), ", ".join(table.given.columns)
            reason = f"no column {name}{hint}, which the source names; the DataFrame has {there}"
            raise SchemaError(f"{table.name}: {reason}")
    rows, order = table.rows, [table.column(name) for name in named.order]
    for name in (*named.partition, *named.order):
        words = f"{table.name}: {name} is null, and says where a row stands"
        rows = rows.where(raise_if(table.column(name).isNull(), f.lit(words)))
    partition = table.partition
    if named.sequence:
        run = f.lit("") if named.run is None else table.column(named.run)
        of_run = Window.partitionBy(partition, run).orderBy(*(order or [f.monotonically_increasing_id()]))
        sequence = [table.column(name) for name in named.sequence]
        is_missing = reduce(Column.__or__, (column.isNull() for column in sequence))
        numbered = f.when(~is_missing, f.struct(*sequence))
        highest = f.max(numbered).over(of_run.rowsBetween(Window.unboundedPreceding, -1))
        is_repeat = f.coalesce(f.col("numbered") <= f.col("highest"), f.lit(False))
        rows = rows.withColumns({"highest": highest, "numbered": numbered})
        rows = rows.where(~is_repeat).drop("highest", "numbered")
    if order:
        together = f.count(f.lit(1)).over(Window.partitionBy(partition, *order))
        place = f.concat_ws(", ", *(f.concat(f.lit(f"{n} "), table.column(n)) for n in named.order))
        twice = f.concat_ws("/", *(table.column(n) for n in named.order))
        begins = f.concat(f.lit(f"{table.name}: partition "), partition, f.lit(", "), place)
        words = f.concat(begins, f.lit(f": {UNORDERED}: order "), twice, f.lit(" twice"))
        rows = rows.withColumn("together", together)
        rows = rows.where(raise_if(f.col("together") > 1, words)).drop("together")
    return replace(table, given=rows.toDF(*table.given.columns))


def _check_lifetimes(rows: DataFrame, source: Source, time_type: spark.DataType) -> DataFrame:
    """Rows that live at some time; others are refused, or dropped if the source says so."""
    is_alive = f.col(VS).isNotNull() if source.are_rows else f.coalesce(f.col(VS) < f.col(VE), f.lit(False))
    if source.on_violation != "raise":
        return rows.where(is_alive)
    begin = f.lit(f"{source.name}: an event may not live for ")
    return rows.where(raise_if(~is_alive, f.concat(begin, describe_lifetime(time_type))))


def reconstitute(table: NamedFrame, payload: dict[str, Column]) -> DataFrame:
    """The history: `_vs`, `_ve` in ticks, payload columns `c0`, `c1`, ..."""
    names = [f"c{i}" for i in range(len(payload))]
    net = net_steps(table, payload)
    event = describe_event(list(payload), names, table.time_type)
    begin = f.lit(f"{table.name}: ")
    message = f.concat(begin, f.lit("no such event to retract: "), event)
    if table.has_partitions:
        least, most = (pick(f.struct("n", PARTITION)) for pick in (f.min, f.max))
        found = net.groupBy(VS, VE, *names).agg(f.sum("n").alias("n"), least.alias("a"), most.alias("b"))
        here, there = (f.concat(f.lit("partition "), f.col(f"{end}.{PARTITION}")) for end in ("a", "b"))
        elsewhere = f.concat(here, f.lit(f": {ELSEWHERE.removesuffix('partition')}"), there, f.lit(": "))
        nowhere = f.concat(here, f.lit(": no such event to retract: "))
        reason = f.when(f.col("b.n") > 0, elsewhere).otherwise(nowhere)
        is_valid = raise_if(f.col("a.n") < 0, f.concat(begin, reason, event))
        return repeat_rows(found.where(is_valid & (f.col("n") > 0)), "n").select(VS, VE, *names)
    kept = net.where(raise_if(f.col("n") < 0, message) & (f.col("n") > 0))
    return repeat_rows(kept, "n").select(VS, VE, *names)


def net_steps(table: NamedFrame, payload: dict[str, Column]) -> DataFrame:
    """For each event, of each partition if there are any, how often it is there in the end, as column `n`."""
    names = [f"c{i}" for i in range(len(payload))]
    rows = _elements(table, payload)
    event = describe_event(list(payload), names, table.time_type)
    if table.has_partitions:
        names.append(PARTITION)
    plain = rows.where(f.col(KIND).isin("insert", "retract"))
    toggles, of_one = rows.where(f.col(KIND).isin("open", "close")), names
    if table.closes_once:
        toggles, of_one = _with_levels(toggles, names), [*names, _LEVEL]
    paired = _open_close_steps(toggles, of_one, event, once=table.closes_once).select(*names, _STEPS)
    each = plain.select(*names, f.explode(_plain_steps()).alias(_STEPS)).unionAll(paired)
    start, end = f.col(f"{_STEPS}.vs").alias(VS), f.col(f"{_STEPS}.ve").alias(VE)
    return each.groupBy(start, end, *names).agg(f.sum(f"{_STEPS}.sign").alias("n"))


def _elements(table: NamedFrame, payload: dict[str, Column]) -> DataFrame:
    """The rows as elements; those that can be none are refused with their reason."""
    names = [f"c{i}" for i in range(len(payload))]
    forever = tick(FOREVER)
    ends = [f.coalesce(table.ticks(name), forever).alias(name) for name in (VE, NEW_VE)]
    order = f.monotonically_increasing_id()
    if table.sub_streams is not None and table.sub_streams.order:
        order = f.struct(*(table.column(name) for name in table.sub_streams.order))
    elif table.has(BATCH) and table.has(SEQ):
        order = f.struct(table.column(BATCH).alias("a"), table.column(SEQ).alias("b"))
    chosen = [column.alias(name) for column, name in zip(payload.values(), names, strict=True)]
    if table.has_partitions:
        chosen.append(table.partition.alias(PARTITION))
    rows = table.rows.select(
        table.column(KIND).cast("string").alias(KIND),
        table.ticks(VS).alias(VS),
        *ends,
        order.alias("order"),
        *chosen,
    )
    event = describe_event(list(payload), names, table.time_type)
    return _check_elements(rows, table.name, event, may_be_empty=table.are_rows)


def _check_elements(rows: DataFrame, source: str, event: Column, *, may_be_empty: bool) -> DataFrame:
    kind, vs, ve = f.col(KIND), f.col(VS), f.col(VE)
    spans = kind.isin("insert", "retract")
    unknown = f.concat(f.lit("unknown kind "), f.coalesce(kind, f.lit("null")), f.lit(": "))
    reason = f.when(kind.isNull() | ~kind.isin(*_KINDS), unknown)
    for bad, words in (
        (vs.isNull() & kind.isin("insert", "retract", "open"), "_vs is null: "),
        (spans & (ve <= vs) & f.lit(not may_be_empty), "ends at or before its start: "),
        ((kind == "retract") & (f.col(NEW_VE) < vs), "is retracted to an end before its start: "),
        ((kind == "open") & (ve != tick(FOREVER)), "an open row with an end: "),
    ):
        reason = reason.when(bad, f.lit(words))
    message = f.concat(f.lit(f"{source}: "), reason, event)
    return rows.where(raise_if(reason.isNotNull(), message))


def _step(vs: Column, ve: Column, sign: int) -> Column:
    return f.struct(vs.alias("vs"), ve.alias("ve"), f.lit(sign).cast("bigint").alias("sign"))


def _move_end(vs: Column, before: Column, after: Column) -> Column:
    """An end moved: the steps that change something."""
    steps = f.array(_step(vs, before, -1), _step(vs, after, 1))
    return f.filter(steps, lambda step: step["ve"] > vs)


def _plain_steps() -> Column:
    vs, ve = f.col(VS), f.col(VE)
    return f.when(f.col(KIND) == "insert", f.array(_step(vs, ve, 1))).otherwise(
        _move_end(vs, ve, f.col(NEW_VE))
    )


def _with_levels(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Open and close rows with their levels, as in `gate.open_close`: how many events are open then."""
    is_open = f.col(KIND) == "open"
    so_far = Window.partitionBy(*names).orderBy("order").rowsBetween(Window.unboundedPreceding, 0)
    total = f.sum(f.when(is_open, 1).otherwise(-1)).over(so_far)
    found = rows.select("*", total.alias("total"))
    after = f.col("total") - f.least(f.lit(0), f.min("total").over(so_far))
    return found.select("*", f.when(is_open, after).otherwise(after + 1).alias(_LEVEL)).drop("total")


def _open_close_steps(rows: DataFrame, names: Sequence[str], event: Column, *, once: bool) -> DataFrame:
    """Open and close rows as what each changes; with ``once`` an end stands."""
    is_open = f.col(KIND) == "open"
    so_far = Window.partitionBy(*names).orderBy("order").rowsBetween(Window.unboundedPreceding, 0)
    opener = f.last(f.when(is_open, f.col(VS)), ignorenulls=True).over(so_far)
    number = f.sum(is_open.cast("int")).over(so_far)
    found = rows.select("*", number.alias("number"), opener.alias("opened"))
    of_one = Window.partitionBy(*names, "number").orderBy("order")
    found = found.select("*", f.lag(VE).over(of_one).alias("before"))
    opened, end = f.col("opened"), f.col(VE)
    what = f.when(opened.isNull(), f.lit("closes an event that is not open: "))
    if once:
        what = what.when(f.col("before") != tick(FOREVER), f.lit("closes an event that is not open: "))
    what = what.when(end < opened, f.lit("closes an event before its start: "))
    faults = raise_if(~is_open & what.isNotNull(), f.concat(what, event))
    steps = f.when(is_open, f.array(_step(opened, end, 1))).otherwise(_move_end(opened, f.col("before"), end))
    return found.where(faults).select(*names, f.explode(steps).alias(_STEPS))
