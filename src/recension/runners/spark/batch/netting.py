"""Reconstitution, distributed: a physical stream nets out to its history as a signed bag.

    insert    +1 at (vs, ve)
    retract   -1 at (vs, ve), +1 at (vs, new_ve) unless that is empty
    open      +1 at (vs, forever)
    close     -1 at the end its event had until then, +1 at the new one

Sums do not depend on order. Only open and close do: they are walked payload by payload, in the order of
`_batch` and `_seq`, or without these in the order of the rows. What is less than nothing in the end was
retracted and never there. CTIs say when things are known, which a history does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.formats.columns import BATCH, KIND, NEW_VE, SEQ
from recension.core.ticks import FOREVER
from recension.runners.spark.batch.checks import unless
from recension.runners.spark.batch.frame import VE, VS
from recension.runners.spark.batch.instants import tick
from recension.runners.spark.batch.table import Table
from recension.runners.spark.batch.times import moments

_STEPS = "steps"
_KNOWN = ("insert", "retract", "cti", "external_cti", "open", "close")


def reconstituted(table: Table, payload: dict[str, Column]) -> DataFrame:
    """The history: `_vs`, `_ve` in ticks, payload columns `c0`, `c1`, ..."""
    names = [f"c{i}" for i in range(len(payload))]
    rows = _elements(table, payload)
    plain = rows.where(f.col(KIND).isin("insert", "retract"))
    event = in_words(list(payload), names, table.time_type)
    walked = _walked(rows.where(f.col(KIND).isin("open", "close")), names, event)
    each = plain.select(*names, f.explode(_plain_steps()).alias(_STEPS)).unionAll(walked)
    start, end = f.col(f"{_STEPS}.vs").alias(VS), f.col(f"{_STEPS}.ve").alias(VE)
    net = each.groupBy(start, end, *names).agg(f.sum(f"{_STEPS}.sign").alias("n"))
    orphan = f.concat(f.lit(f"{table.name}: no such event to retract: "), event)
    kept = net.where(unless(f.col("n") < 0, orphan) & (f.col("n") > 0))
    return as_often(kept, "n").select(VS, VE, *names)


def as_often(rows: DataFrame, count: str) -> DataFrame:
    """Every row as often as a column says."""
    copies = f.explode(f.array_repeat(f.lit(0), f.col(count).cast("int")))
    return rows.select("*", copies.alias("copy")).drop("copy")


def _elements(table: Table, payload: dict[str, Column]) -> DataFrame:
    """The rows as elements; those that can be none are refused with their reason."""
    names = [f"c{i}" for i in range(len(payload))]
    forever = tick(FOREVER)
    ends = [f.coalesce(table.ticks(name), forever).alias(name) for name in (VE, NEW_VE)]
    order = f.monotonically_increasing_id()
    if table.has(BATCH) and table.has(SEQ):
        order = f.struct(table.column(BATCH).alias("a"), table.column(SEQ).alias("b"))
    chosen = [column.alias(name) for column, name in zip(payload.values(), names, strict=True)]
    rows = table.rows.select(
        table.column(KIND).cast("string").alias(KIND),
        table.ticks(VS).alias(VS),
        *ends,
        order.alias("order"),
        *chosen,
    )
    return _checked(rows, table.name, in_words(list(payload), names, table.time_type))


def _checked(rows: DataFrame, source: str, event: Column) -> DataFrame:
    kind, vs, ve = f.col(KIND), f.col(VS), f.col(VE)
    spans = kind.isin("insert", "retract")
    unknown = f.concat(f.lit("unknown kind "), f.coalesce(kind, f.lit("null")), f.lit(": "))
    reason = f.when(kind.isNull() | ~kind.isin(*_KNOWN), unknown)
    for bad, words in (
        (vs.isNull() & kind.isin("insert", "retract", "open"), "_vs is null: "),
        (spans & (ve <= vs), "ends at or before its start: "),
        ((kind == "retract") & (f.col(NEW_VE) < vs), "is retracted to an end before its start: "),
        ((kind == "open") & (ve != tick(FOREVER)), "an open row with an end: "),
    ):
        reason = reason.when(bad, f.lit(words))
    message = f.concat(f.lit(f"{source}: "), reason, event)
    return rows.where(unless(reason.isNotNull(), message))


def in_words(shown: Sequence[str], names: Sequence[str], time_type: spark.DataType | None = None) -> Column:
    """An event in words, its times as the user gave them."""

    def moment(ticks: Column) -> Column:
        return (ticks if time_type is None else moments(ticks, time_type)).cast("string")

    payload = f.to_json(
        f.struct(*(f.col(name).alias(label) for name, label in zip(names, shown, strict=True)))
    )
    until = f.when(f.col(VE) == tick(FOREVER), f.lit("∞")).otherwise(moment(f.col(VE)))
    start = f.coalesce(moment(f.col(VS)), f.lit("null"))
    return f.concat(f.lit("["), start, f.lit(", "), until, f.lit(") "), payload)


def _step(vs: Column, ve: Column, sign: int) -> Column:
    return f.struct(vs.alias("vs"), ve.alias("ve"), f.lit(sign).cast("bigint").alias("sign"))


def _moved(vs: Column, before: Column, after: Column) -> Column:
    """An end moved: the steps that change something."""
    steps = f.array(_step(vs, before, -1), _step(vs, after, 1))
    return f.filter(steps, lambda step: step["ve"] > vs)


def _plain_steps() -> Column:
    vs, ve = f.col(VS), f.col(VE)
    return f.when(f.col(KIND) == "insert", f.array(_step(vs, ve, 1))).otherwise(_moved(vs, ve, f.col(NEW_VE)))


def _walked(rows: DataFrame, names: Sequence[str], event: Column) -> DataFrame:
    """Open and close rows as what each changes."""
    is_open = f.col(KIND) == "open"
    so_far = Window.partitionBy(*names).orderBy("order").rowsBetween(Window.unboundedPreceding, 0)
    opener = f.last(f.when(is_open, f.col(VS)), ignorenulls=True).over(so_far)
    number = f.sum(is_open.cast("int")).over(so_far)
    found = rows.select("*", number.alias("number"), opener.alias("opened"))
    of_one = Window.partitionBy(*names, "number").orderBy("order")
    found = found.select("*", f.lag(VE).over(of_one).alias("before"))
    opened, end = f.col("opened"), f.col(VE)
    what = f.when(opened.isNull(), f.lit("closes an event that is not open: "))
    what = what.when(end < opened, f.lit("closes an event before its start: "))
    faults = unless(~is_open & what.isNotNull(), f.concat(what, event))
    steps = f.when(is_open, f.array(_step(opened, end, 1))).otherwise(_moved(opened, f.col("before"), end))
    return found.where(faults).select(*names, f.explode(steps).alias(_STEPS))
