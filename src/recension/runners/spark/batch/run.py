"""A query over history DataFrames: a DataFrame, computed when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from recension.core.ticks import FOREVER
from recension.plan.node import Node
from recension.plan.source import require_one_kind
from recension.runners.intake import require_inputs
from recension.runners.spark.batch.frame import VE, VS, Frame
from recension.runners.spark.batch.instants import tick
from recension.runners.spark.batch.lower import lower, sources_of
from recension.runners.spark.batch.netting import reconstituted
from recension.runners.spark.batch.sources import source_frame
from recension.runners.spark.batch.table import Table
from recension.runners.spark.batch.times import moments, type_of_kind
from recension.runners.spark.session import check


def batch(spark_session: SparkSession, query: Node, inputs: Mapping[str, Any]) -> DataFrame:
    """The query's history: `_vs`, `_ve` (null = forever) and the payload."""
    check(spark_session)
    sources = sources_of(query)
    require_inputs(inputs, sources)
    tables = {
        name: Table.of(inputs[name], name, source.start, source.end) for name, source in sources.items()
    }
    kind = require_one_kind(query, {name: table.layout.kind for name, table in tables.items()})
    found = lower(query, lambda source: source_frame(source, tables[source.name]))
    return shown(found, type_of_kind(kind))


def history(given: DataFrame) -> DataFrame:
    """The history of a physical stream: what is left when every retraction is applied."""
    table = Table.of(given, "history")
    schema = table.layout.payload
    if table.layout.is_table:
        return table.given
    return shown(Frame(reconstituted(table, table.payload(schema)), schema), table.time_type)


def shown(frame: Frame, time_type: spark.DataType) -> DataFrame:
    """A frame as users see it: their names, times in their type, null for an end that never comes."""
    end = f.when(f.col(VE) != tick(FOREVER), f.col(VE))
    times = [moments(f.col(VS), time_type).alias(VS), moments(end, time_type).alias(VE)]
    payload = [f.col(own).alias(name) for own, name in zip(frame.payload, frame.schema.names, strict=True)]
    return frame.df.select(*times, *payload)
