"""Temporal streams for Spark pipelines."""

from narwhals import col, lit, when

from recension.api.aggregates import (
    aggregate,
    collect,
    count,
    first,
    last,
    max,
    mean,
    min,
    quantile,
    stddev,
    sum,
    top_k,
)
from recension.api.aggregation import GroupedStream
from recension.api.running import run, session
from recension.api.stream import Stream, source
from recension.core.errors import FormatError, RecensionError, SchemaError, StreamError, TimeError
from recension.core.events import Cti, Event, ExternalCti, Insert, Retract
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.plan.levels import MIDDLE, STRONG, WEAK, Level
from recension.plan.properties import Properties
from recension.runners.result import Result

__all__ = [
    "BEGINNING",
    "FOREVER",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Cti",
    "Event",
    "ExternalCti",
    "FormatError",
    "GroupedStream",
    "History",
    "Insert",
    "Level",
    "Properties",
    "RecensionError",
    "Result",
    "Retract",
    "SchemaError",
    "Stream",
    "StreamError",
    "TimeError",
    "aggregate",
    "col",
    "collect",
    "count",
    "first",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "quantile",
    "run",
    "session",
    "source",
    "stddev",
    "sum",
    "top_k",
    "when",
]
