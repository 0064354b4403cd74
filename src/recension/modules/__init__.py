"""Contracts for modules that users write: what a module is given, what it gives back, what it declares."""

from recension.modules.contracts import (
    Aggregate,
    IncrementalAggregate,
    IncrementalOperator,
    IncrementalTimeSensitiveAggregate,
    IncrementalTimeSensitiveOperator,
    Operator,
    TimeSensitiveAggregate,
    TimeSensitiveOperator,
)
from recension.modules.members import Events, Payloads, Window
from recension.modules.module import Incremental, Module

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
