"""All names of ``import recension as rc``. They are loaded when the first of them is asked for."""

import typing as _typing

from recension.api import functions as _functions
from recension.api import scenarios
from recension.api.aggregation import GroupedStream
from recension.api.coalescing import ExtentSet, coalescing, range, rows, within
from recension.api.feeds import debezium, delta_changes, scd2, to_scd2
from recension.api.functions import *  # noqa: F403  (its __all__ is part of the one below)
from recension.api.patterns import all_of, at_least, sequence, unless
from recension.api.scenarios import merge
from recension.api.stream import Stream, changes, source, table
from recension.api.windows import module
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
from recension.plan.expressions import (
    Expr,
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    end,
    lifetime,
    lit,
    max_horizontal,
    mean_horizontal,
    min_horizontal,
    start,
    sum_horizontal,
    when,
)
from recension.plan.intervals import (
    Interval,
    after,
    before,
    contains,
    duration,
    during,
    equals,
    finished_by,
    finishes,
    intersect,
    intersects,
    interval,
    meets,
    met_by,
    overlapped_by,
    overlaps,
    relation,
    started_by,
    starts,
    valid,
)
from recension.plan.levels import MIDDLE, STRONG, WEAK, Level
from recension.plan.properties import Properties

if _typing.TYPE_CHECKING:
    from recension.api import kafka, spark
    from recension.api.running import record, run, session
    from recension.api.why import why
    from recension.runners.local import Session
    from recension.runners.recording import Recording, read_recording
    from recension.runners.result import Result

__all__ = [
    "BEGINNING",
    "FOREVER",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Aggregate",
    "Cti",
    "Event",
    "Expr",
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
    "Recording",
    "Result",
    "Retract",
    "SchemaError",
    "Session",
    "Stream",
    "StreamError",
    "TimeError",
    "TimeSensitiveAggregate",
    "TimeSensitiveOperator",
    "Window",
    "after",
    "all_horizontal",
    "all_of",
    "any_horizontal",
    "at_least",
    "before",
    "changes",
    "coalesce",
    "coalescing",
    "col",
    "concat_str",
    "contains",
    "debezium",
    "delta_changes",
    "duration",
    "during",
    "end",
    "equals",
    "finished_by",
    "finishes",
    "intersect",
    "intersects",
    "interval",
    "kafka",
    "lifetime",
    "lit",
    "max_horizontal",
    "mean_horizontal",
    "meets",
    "merge",
    "met_by",
    "min_horizontal",
    "module",
    "overlapped_by",
    "overlaps",
    "range",
    "read_recording",
    "record",
    "relation",
    "rows",
    "run",
    "scd2",
    "scenarios",
    "sequence",
    "session",
    "source",
    "spark",
    "start",
    "started_by",
    "starts",
    "sum_horizontal",
    "table",
    "to_scd2",
    "unless",
    "valid",
    "wall_clock",
    "when",
    "why",
    "within",
]
__all__ += _functions.__all__
