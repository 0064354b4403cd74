"""A query over history DataFrames: a DataFrame, computed when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.errors import RecensionError
from recension.core.formats.columns import CONTROL
from recension.core.history import History
from recension.core.ticks import FOREVER
from recension.core.time_kind import TimesInMessages
from recension.plan.node import Node
from recension.plan.nodes import Source
from recension.plan.source import require_one_kind, sources_of
from recension.runners.finite import require_inputs
from recension.runners.meaning import warn_of_frames
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.inputs import NamedFrame, reconstitute, source_frame
from recension.runners.spark.batch.lower import lower
from recension.runners.spark.batch.times import tick, to_times, type_of_kind
from recension.runners.spark.failures import reason_of
from recension.runners.spark.session import check, delay_interrupts, quiet_session
from recension.runners.spark.stream.inputs import source_names


def batch(spark_session: SparkSession, query: Node, inputs: Mapping[str, Any]) -> DataFrame:
    """The query's history: `_vs`, `_ve` (null = forever) and the payload."""
    check(spark_session)
    sources = sources_of(query)
    require_inputs(inputs, sources)
    tables = {
        name: NamedFrame.of(inputs[name], name, source.time_columns) for name, source in sources.items()
    }
    tables = {name: _with_source_names(table, sources[name]) for name, table in tables.items()}
    warn_of_frames(query, sources, {name: table.given.columns for name, table in tables.items()})
    kind = require_one_kind(query, {name: table.layout.kind for name, table in tables.items()})
    with TimesInMessages(kind):
        found = lower(query, lambda source: source_frame(source, tables[source.name]))
    return to_user_columns(found, type_of_kind(kind))


def _with_source_names(table: NamedFrame, source: Source) -> NamedFrame:
    """The columns called as the source calls them: as Spark does, it may overlook case."""
    times = source.time_columns
    wanted = [*CONTROL, times.vs, times.ve, *source.columns.names]
    named = source_names(table.given, wanted)
    other = {there: name for there, name in named.items() if there != name}
    return replace(table, given=table.given.withColumnsRenamed(other)) if other else table


def history(given: DataFrame) -> DataFrame:
    """The history of a physical stream: what is left when every retraction is applied."""
    table = NamedFrame.of(given, "history")
    schema = table.layout.payload
    if table.layout.is_table:
        return table.given
    return to_user_columns(Frame(reconstitute(table, table.payload(schema)), schema), table.time_type)


def to_user_columns(frame: Frame, time_type: spark.DataType) -> DataFrame:
    """A frame as users see it: their names, times in their type, null for an end that never comes."""
    end = f.when(f.col(VE) != tick(FOREVER), f.col(VE))
    times = [to_times(f.col(VS), time_type).alias(VS), to_times(end, time_type).alias(VE)]
    payload = [f.col(own).alias(name) for own, name in zip(frame.payload, frame.schema.names, strict=True)]
    return frame.df.select(*times, *payload)


def history_of_files(plan: Node, paths: Mapping[str, str], log: Path) -> History:
    """The query's history over histories in Parquet files; an error of the job is one line."""
    with delay_interrupts():
        spark = quiet_session(log)
    try:
        found = batch(spark, plan, {name: spark.read.parquet(path) for name, path in paths.items()})
        history = History.from_arrow(found.toArrow())
    except PySparkException as why:
        raise RecensionError(reason_of(why)) from None
    return History(history.vs, history.ve, history.payload.cast(plan.schema))
