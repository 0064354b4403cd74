"""Which events a step must see together: what decides how a query can be spread over shards.

A step that looks at each event by itself can run anywhere. A grouped step needs the events of a group in
one place; which columns tell groups apart in its output decides whether the step above it needs them moved.
A step that looks at all events, or promises an order among all of them, needs them in one place.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TypeAlias

from recension.core.errors import RecensionError
from recension.plan.expressions import column
from recension.plan.extents import Range
from recension.plan.nodes import (
    AdvanceTime,
    Align,
    AlterLifetime,
    Cleanse,
    Clip,
    Coalesce,
    CoalesceExtent,
    CoalesceMany,
    Distinct,
    Edges,
    Finalize,
    GroupApply,
    ImportTime,
    Join,
    Map,
    Merge,
    ModuleWindow,
    Node,
    Outputs,
    Project,
    SnapshotAggregate,
    Source,
    Span,
    Union,
    Where,
)
from recension.plan.partial import PartialAggregate, PartialWindowAggregate

# For each input, the values by which events are brought together; no values at all mean one place.
Needs: TypeAlias = tuple[Outputs, ...]


@singledispatch
def needs(node: Node) -> Needs | None:
    """What a step needs of each input; None if it can run anywhere."""
    raise RecensionError(f"{node.label!r} cannot be spread over shards")


@needs.register(Source)
@needs.register(Where)
@needs.register(Project)
@needs.register(Span)
@needs.register(Map)
@needs.register(AlterLifetime)
@needs.register(Union)
def _anywhere(node: Node) -> None:
    return None


@needs.register(Finalize)
@needs.register(AdvanceTime)
@needs.register(ImportTime)
def _one_place(node: Node) -> Needs:
    """They speak of, or put in order, all events: shards do not wait for each other."""
    return tuple(() for _ in node.inputs)


@needs.register(PartialAggregate)
@needs.register(PartialWindowAggregate)
def _spread(node: Node) -> None:
    return None


def is_spread(node: Node) -> bool:
    """Does it run in every shard, on whatever events are there? Unlike a step that moves with its reader."""
    return isinstance(node, PartialAggregate | PartialWindowAggregate)


@needs.register
def _cleanse(node: Cleanse) -> Needs:
    return (tuple((name, column(name)) for name in node.by),)


@needs.register
def _align(node: Align) -> Needs | None:
    return (tuple((name, column(name)) for name in node.by),) if node.block else None


@needs.register
def _distinct(node: Distinct) -> Needs:
    return (tuple((name, column(name)) for name in node.schema.names),)


@needs.register
def _grouped(node: Edges) -> Needs:
    """A group in one place."""
    return (tuple((name, column(name)) for name in node.group_by),)


@needs.register
def _coalesce(node: Coalesce) -> Needs:
    """Equal facts in one place; where they need only be equivalent, a group."""
    names = node.columns if node.equivalence is None else node.group_by
    return (tuple((name, column(name)) for name in names),)


@needs.register
def _coalesce_extent(node: CoalesceExtent) -> Needs:
    """A group in one place; all of them where the readings of all are counted."""
    names = node.group_by if isinstance(node.window, Range) else ()
    return (tuple((name, column(name)) for name in names),)


@needs.register
def _coalesce_many(node: CoalesceMany) -> Needs:
    """What all queries group by in one place."""
    names = node.common_groups if isinstance(node.window, Range) else ()
    return (tuple((name, column(name)) for name in names),)


@needs.register
def _merge(node: Merge) -> Needs:
    """What R3 and R4 decide of an event they decide from its payload and the inputs' stables, which all know.

    The other cases promise an order, to follow a leader is to look at all that the inputs have sent, and a
    merge that falls falls as a whole.
    """
    is_by_payload = node.chosen().case in ("R3", "R3-", "R4") and node.policy != "lead"
    names = node.schema.names if is_by_payload and node.on_mismatch == "raise" else []
    return (tuple((name, column(name)) for name in names),) * len(node.streams)


@needs.register
def _aggregate(node: SnapshotAggregate) -> Needs:
    return (node.keys,)


@needs.register
def _modules(node: ModuleWindow) -> Needs:
    return (node.keys,)


@needs.register
def _each_group(node: GroupApply) -> Needs:
    """A group in one place; all of them where they read what is the same for every group."""
    keys = tuple((name, column(name)) for name in node.keys) if node.split == len(node.streams) else ()
    return (keys,) * len(node.streams)


@needs.register(Join)
@needs.register(Clip)
def _matched(node: Join | Clip) -> Needs:
    keys = tuple((name, column(name)) for name in node.on)
    return (keys, keys)


def carried(node: Node, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The output columns that hold these input columns as they are; None if one is lost."""
    match node:
        case Where() | AlterLifetime() | Union() | Merge() | Align() | Cleanse() | Finalize() | AdvanceTime():
            return names
        case Project() | Span():
            new = {computed.column: name for name, computed in reversed(node.outputs) if computed.column}
            return tuple(new[name] for name in names) if all(name in new for name in names) else None
    return None


def traced(node: Node, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The input columns that these output columns are, if they are passed on as they are."""
    match node:
        case Where() | AlterLifetime() | Union():
            return names
        case Project() | Span():
            old = {name: computed.column for name, computed in node.outputs}
            found = [old[name] for name in names]
            return tuple(name for name in found if name) if all(found) else None
    return None
