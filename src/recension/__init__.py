"""Temporal streams for Spark pipelines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narwhals import col, lit, when

from recension.api import scenarios
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
from recension.api.coalescing import range, rows, within
from recension.api.extent_set import ExtentSet, coalescing
from recension.api.functions import udf
from recension.api.merge import merge
from recension.api.module_windows import module
from recension.api.running import run, session
from recension.api.stream import Stream, source
from recension.core.errors import (
    FormatError,
    ModuleError,
    RecensionError,
    SchemaError,
    StreamError,
    TimeError,
)
from recension.core.events import Cti, Event, ExternalCti, Insert, Retract
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.wall_clock import wall_clock
from recension.modules import (
    Aggregate,
    IncrementalAggregate,
    IncrementalOperator,
    IncrementalTimeSensitiveAggregate,
    IncrementalTimeSensitiveOperator,
    Operator,
    TimeSensitiveAggregate,
    TimeSensitiveOperator,
    Window,
)
from recension.plan.allen import (
    after,
    before,
    contains,
    during,
    equals,
    finished_by,
    finishes,
    meets,
    met_by,
    overlapped_by,
    overlaps,
    relation,
    started_by,
    starts,
)
from recension.plan.intervals import Interval, duration, intersect, intersects, interval, valid
from recension.plan.levels import MIDDLE, STRONG, WEAK, Level
from recension.plan.properties import Properties
from recension.runners.result import Result

if TYPE_CHECKING:
    from recension.api import spark

__all__ = [
    "BEGINNING",
    "FOREVER",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Aggregate",
    "Cti",
    "Event",
    "ExtentSet",
    "ExternalCti",
    "FormatError",
    "GroupedStream",
    "History",
    "IncrementalAggregate",
    "IncrementalOperator",
    "IncrementalTimeSensitiveAggregate",
    "IncrementalTimeSensitiveOperator",
    "Insert",
    "Interval",
    "Level",
    "ModuleError",
    "Operator",
    "Properties",
    "RecensionError",
    "Result",
    "Retract",
    "SchemaError",
    "Stream",
    "StreamError",
    "TimeError",
    "TimeSensitiveAggregate",
    "TimeSensitiveOperator",
    "Window",
    "after",
    "aggregate",
    "before",
    "coalescing",
    "col",
    "collect",
    "contains",
    "count",
    "duration",
    "during",
    "equals",
    "finished_by",
    "finishes",
    "first",
    "intersect",
    "intersects",
    "interval",
    "last",
    "lit",
    "max",
    "mean",
    "meets",
    "merge",
    "met_by",
    "min",
    "module",
    "overlapped_by",
    "overlaps",
    "quantile",
    "range",
    "relation",
    "rows",
    "run",
    "scenarios",
    "session",
    "source",
    "spark",
    "started_by",
    "starts",
    "stddev",
    "sum",
    "top_k",
    "udf",
    "valid",
    "wall_clock",
    "when",
    "within",
]


def __getattr__(name: str) -> Any:
    if name == "spark":  # loads pyspark, which most programs that import this do not need
        return import_module("recension.api.spark")
    raise AttributeError(f"module 'recension' has no attribute {name!r}")
