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

from recension.core.formats.columns import BATCH, KIND, NEW_VE, SEQ
from recension.core.ticks import FOREVER
from recension.runners.spark.batch.frame import VE, VS
from recension.runners.spark.batch.instants import tick
from recension.runners.spark.batch.table import Table

_STEPS = "steps"
_KNOWN = ("insert", "retract", "cti", "external_cti", "open", "close")


def reconstituted(table: Table, payload: dict[str, Column]) -> DataFrame:
    """The history: `_vs`, `_ve` in ticks, payload columns `c0`, `c1`, ..."""
    names = [f"c{i}" for i in range(len(payload))]
    rows = _elements(table, payload)
    plain = rows.where(f.col(KIND).isin("insert", "retract")).withColumn(_STEPS, _plain_steps())
    walked = _walked(rows.where(f.col(KIND).isin("open", "close")), names)
    each = plain.select(*names, f.explode(_STEPS).alias(_STEPS)).unionAll(
        walked.select(*names, f.explode(_STEPS).alias(_STEPS))
    )
    start, end = f.col(f"{_STEPS}.vs").alias(VS), f.col(f"{_STEPS}.ve").alias(VE)
    net = each.groupBy(start, end, *names).agg(f.sum(f"{_STEPS}.sign").alias("n"))
    orphan = _refusal("no such event to retract: ", list(payload), names, VE)
    kept = net.where(_unless(f.col("n") < 0, orphan)).where(f.col("n") > 0)
    copies = f.explode(f.array_repeat(f.lit(0), f.col("n").cast("int")))
    return kept.select(VS, VE, *names, copies.alias("copy")).drop("copy")


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
        table.column(KIND).cast("string").alias(KIND), table.ticks(VS).alias(VS), *ends, order.alias("order"), *chosen
    )
    return _checked(rows, table.name, list(payload), names)


def _checked(rows: DataFrame, source: str, shown: Sequence[str], names: Sequence[str]) -> DataFrame:
    kind, vs, ve = f.col(KIND), f.col(VS), f.col(VE)
    spans = kind.isin("insert", "retract")
    what = f.concat(f.lit(f"{source}: unknown kind "), f.coalesce(kind, f.lit("null")))
    rows = rows.where(_unless(kind.isNull() | ~kind.isin(*_KNOWN), what))
    for bad, reason in (
        (vs.isNull() & kind.isin("insert", "retract", "open"), "_vs is null"),
        (spans & (ve <= vs), "ends at or before its start"),
        ((kind == "retract") & (f.col(NEW_VE) < vs), "is retracted to an end before its start"),
        ((kind == "open") & (ve != tick(FOREVER)), "an open row with an end"),
    ):
        rows = rows.where(_unless(bad, _refusal(f"{source}: {reason}: ", shown, names, VE)))
    return rows


def _unless(bad: Column, message: Column) -> Column:
    """True, or an error: as a filter, so that no column that is pruned takes the check with it."""
    return f.when(f.coalesce(bad, f.lit(False)), f.raise_error(message).cast("boolean")).otherwise(f.lit(True))


def _refusal(reason: str, shown: Sequence[str], names: Sequence[str], end: str) -> Column:
    payload = f.to_json(f.struct(*(f.col(name).alias(label) for name, label in zip(names, shown, strict=True))))
    until = f.when(f.col(end) == tick(FOREVER), f.lit("∞")).otherwise(f.col(end).cast("string"))
    start = f.coalesce(f.col(VS).cast("string"), f.lit("null"))
    return f.concat(f.lit(f"{reason}["), start, f.lit(", "), until, f.lit(") "), payload)


def _step(vs: Column, ve: Column, sign: int) -> Column:
    return f.struct(vs.alias("vs"), ve.alias("ve"), f.lit(sign).cast("bigint").alias("sign"))


def _moved(vs: Column, before: Column, after: Column) -> Column:
    """An end moved: the steps that change something."""
    steps = f.array(_step(vs, before, -1), _step(vs, after, 1))
    return f.filter(steps, lambda step: step["ve"] > vs)


def _plain_steps() -> Column:
    vs, ve = f.col(VS), f.col(VE)
    return f.when(f.col(KIND) == "insert", f.array(_step(vs, ve, 1))).otherwise(_moved(vs, ve, f.col(NEW_VE)))


def _walked(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Open and close rows with what each changes."""
    is_open = f.col(KIND) == "open"
    in_turn = Window.partitionBy(*names).orderBy("order")
    so_far = in_turn.rowsBetween(Window.unboundedPreceding, 0)
    opener = f.last(f.when(is_open, f.col(VS)), ignorenulls=True).over(so_far)
    number = f.sum(is_open.cast("int")).over(so_far)
    found = rows.withColumn("number", number).withColumn("opened", opener)
    of_one = Window.partitionBy(*names, "number").orderBy("order")
    found = found.withColumn("before", f.lag(VE).over(of_one))
    ends_early = f.coalesce(f.col(VE) < f.col("opened"), f.lit(True))
    what = f.when(f.col("opened").isNull(), f.lit("closes an event that is not open: "))
    what = what.otherwise(f.lit("closes an event before its start: "))
    label = f.concat(what, f.to_json(f.struct(*names)), f.lit(" at "), f.col(VE).cast("string"))
    found = found.where(_unless(~is_open & ends_early, label))
    opened = f.array(_step(f.col(VS), f.col(VE), 1))
    steps = f.when(is_open, opened).otherwise(_moved(f.col("opened"), f.col("before"), f.col(VE)))
    return found.withColumn(_STEPS, steps)
