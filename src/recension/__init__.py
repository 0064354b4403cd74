"""Temporal streams for Spark pipelines."""

import typing as _typing
from difflib import get_close_matches as _get_close_matches
from importlib import import_module as _import_module

from recension.api import functions as _functions
from recension.api import scenarios
from recension.api.aggregation import GroupedStream
from recension.api.coalescing import ExtentSet, coalescing, range, rows, within
from recension.api.feeds import debezium, delta_changes, scd2, to_scd2
from recension.api.functions import *  # noqa: F403  (its __all__ is part of the one below)
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
    "any_horizontal",
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
    "session",
    "source",
    "spark",
    "start",
    "started_by",
    "starts",
    "sum_horizontal",
    "table",
    "to_scd2",
    "valid",
    "wall_clock",
    "when",
    "why",
    "within",
]
__all__ += _functions.__all__


if not _typing.TYPE_CHECKING:  # to a type checker, what is not above is not there
    # Loaded when they are asked for: who only writes a query needs no engine.
    _LATER = {
        "Recording": "recension.runners.recording",
        "Result": "recension.runners.result",
        "Session": "recension.runners.local",
        "read_recording": "recension.runners.recording",
        "record": "recension.api.running",
        "run": "recension.api.running",
        "session": "recension.api.running",
        "why": "recension.api.why",
    }

    def __getattr__(name: str) -> object:
        if name in ("kafka", "spark"):  # load what most programs that import this do not need
            return _import_module(f"recension.api.{name}")
        if name in _LATER:
            return globals().setdefault(name, getattr(_import_module(_LATER[name]), name))
        near = _get_close_matches(name, __all__, n=1)
        raise AttributeError(f"recension has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def __dir__() -> list[str]:
    """Only what is meant for users: completion shows no internals."""
    return sorted(__all__)
