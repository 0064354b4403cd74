"""Contracts for modules that users write: what a module is given, what it gives back, what it declares."""

from recension.modules.aggregates import (
    Aggregate,
    IncrementalAggregate,
    IncrementalTimeSensitiveAggregate,
    TimeSensitiveAggregate,
)
from recension.modules.members import Events, Payloads, Window
from recension.modules.module import Incremental, Module
from recension.modules.operators import (
    IncrementalOperator,
    IncrementalTimeSensitiveOperator,
    Operator,
    TimeSensitiveOperator,
)

__all__ = [
    "Aggregate",
    "Events",
    "Incremental",
    "IncrementalAggregate",
    "IncrementalOperator",
    "IncrementalTimeSensitiveAggregate",
    "IncrementalTimeSensitiveOperator",
    "Module",
    "Operator",
    "Payloads",
    "TimeSensitiveAggregate",
    "TimeSensitiveOperator",
    "Window",
]
