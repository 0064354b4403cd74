"""Inputs of a batch run as frames: histories, plain tables, and physical streams, which are reconstituted."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER
from recension.plan.nodes import Source
from recension.runners.spark.batch.checks import unless
from recension.runners.spark.batch.frame import VE, VS, Frame, framed
from recension.runners.spark.batch.instants import add, tick
from recension.runners.spark.batch.netting import reconstituted
from recension.runners.spark.batch.table import Table
from recension.runners.spark.batch.times import moments


def source_frame(source: Source, table: Table) -> Frame:
    """The history that a source's DataFrame holds."""
    payload = table.payload(source.columns)
    if not table.layout.is_table:
        if source.on_violation != "raise":
            raise RecensionError(
                f"source {source.name}: on_violation={source.on_violation!r} depends on arrival; a batch run "
                "takes a stream only as it is: give its history, or run the query as a stream"
            )
        return Frame(reconstituted(table, payload), source.columns)
    times = table.layout.times
    start, end = table.ticks(times.vs), f.coalesce(table.ticks(times.ve), tick(FOREVER))
    timed = table.rows.withColumns({VS: start, VE: add(start, 1) if table.layout.is_points else end})
    return framed(_checked(timed, source, table.time_type), payload, source.columns)


def _checked(rows: DataFrame, source: Source, time_type: DataType) -> DataFrame:
    """Rows that live at some time; others are refused, or left out if the source says so."""
    is_alive = f.coalesce(f.col(VS) < f.col(VE), f.lit(False))
    if source.on_violation != "raise":
        return rows.where(is_alive)
    vs, ve = (f.coalesce(_shown(name, time_type), f.lit("null")) for name in (VS, VE))
    lifetime = f.concat(f.lit(f"{source.name}: an event may not live for ["), vs, f.lit(", "), ve, f.lit(")"))
    return rows.where(unless(~is_alive, lifetime))


def _shown(name: str, time_type: DataType) -> Column:
    """A time as text; one without end has no timestamp."""
    time = f.when(f.col(name) != tick(FOREVER), moments(f.col(name), time_type))
    return f.coalesce(time.cast("string"), f.when(f.col(name).isNotNull(), f.lit("∞")))
