"""All logical nodes."""

from recension.plan.aggregate import SnapshotAggregate
from recension.plan.coalesce import Coalesce, Edges
from recension.plan.consistency import (
    AdvanceTime,
    AdvanceTimeByClock,
    Align,
    AlignByClock,
    Cleanse,
    Finalize,
    ImportTime,
)
from recension.plan.due import Due, DueBy, Progress
from recension.plan.each_group import GroupApply, Port
from recension.plan.extents import CoalesceExtent, CoalesceMany
from recension.plan.interval_join import IntervalJoin, Unless
from recension.plan.join import How, Join
from recension.plan.keyed import ByKey, ChangesByKey, RestateByKey, RowSource
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.merge import Merge
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node, Outputs, Speculate, walk
from recension.plan.pattern import Pattern
from recension.plan.source import Source, Table
from recension.plan.span import Distinct, Map, Project, Span, Union, Where
from recension.plan.timed_span import TimedSpan
from recension.plan.windows import CountAggregate, SessionAggregate, WindowAggregate

__all__ = [
    "AdvanceTime",
    "AdvanceTimeByClock",
    "Align",
    "AlignByClock",
    "AlterLifetime",
    "ByKey",
    "ChangesByKey",
    "Cleanse",
    "Clip",
    "Coalesce",
    "CoalesceExtent",
    "CoalesceMany",
    "CountAggregate",
    "Distinct",
    "Due",
    "DueBy",
    "Edges",
    "Finalize",
    "GroupApply",
    "How",
    "ImportTime",
    "IntervalJoin",
    "Join",
    "Map",
    "Merge",
    "ModuleWindow",
    "Node",
    "Outputs",
    "Pattern",
    "Port",
    "Progress",
    "Project",
    "RestateByKey",
    "RowSource",
    "SessionAggregate",
    "SnapshotAggregate",
    "Source",
    "Span",
    "Speculate",
    "Table",
    "TimedSpan",
    "Union",
    "Unless",
    "Where",
    "WindowAggregate",
    "walk",
]
