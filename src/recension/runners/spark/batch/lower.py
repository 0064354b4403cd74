"""From a logical plan to Spark: one function a node, the plan itself being the lineage.

Steps that wait or send CTIs change nothing on a history. What depends on arrival is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER
from recension.plan import nodes
from recension.plan.consistency import Consistency
from recension.plan.due import without_waiting
from recension.plan.group_apply import apply_by_keys
from recension.plan.node import Node, rebuild, walk
from recension.plan.rewrites import optimize
from recension.plan.span import SpanNode
from recension.runners.spark.batch import (
    aggregates,
    coalescing,
    interval_joins,
    joins,
    lifetimes,
    merging,
    span,
)
from recension.runners.spark.batch.frame import Frame
from recension.runners.spark.batch.local_operators import map_batches


def lower(query: Node, sources: Callable[[nodes.Source], Frame]) -> Frame:
    """The query's history as a frame."""
    done: dict[Node, Frame] = {}
    for node in (steps := require_runnable(query)):
        if isinstance(node, nodes.Source):
            done[node] = sources(node)
        else:
            done[node] = _lowering_of(node)(node, *(done[child] for child in node.inputs))
    return done[steps[-1]]


def require_runnable(query: Node) -> list[Node]:
    """The steps of a query, inputs before their readers; refuses one that depends on arrival."""
    (root,) = optimize(rebuild(rebuild([query], _apply_to_all_groups), without_waiting))
    steps = list(walk(root))
    for node in steps:
        if not isinstance(node, nodes.Source):
            _lowering_of(node)
        if isinstance(node, nodes.ByKey):
            _require_versions(node)
        if isinstance(node, Consistency | nodes.Merge | nodes.Pattern):
            _CHECKS[type(node)](node)
    return steps


def _apply_to_all_groups(node: Node) -> Node:
    """Apply to all groups what is done group by group only because of the order of arrival.

    A history has no arrival order.
    """
    return apply_by_keys(node) if isinstance(node, nodes.GroupApply) else node


def _keep(node: Node, frame: Frame, clock: Frame | None = None) -> Frame:
    """A history has no order to wait for and nothing that is not final. In a history nothing is late."""
    return frame


def _require_nothing(node: Node) -> None:
    """It drops nothing, in whatever order elements come."""


def _require_endless_memory(node: nodes.Finalize) -> None:
    if node.remember == FOREVER:
        return
    level = " (rc.WEAK)" if node.remember == 0 else ""
    raise RecensionError(
        f"{node.label}{level}: what a finite memory forgets depends on arrival, and a history has none; "
        "run the query as a stream, or leave the memory (finalize, consistency) out of the batch query"
    )


def _require_nothing_late(node: nodes.AdvanceTime | nodes.ImportTime) -> None:
    if node.input.properties.is_ordered:
        return
    raise RecensionError(
        f"{node.label}: what comes late depends on arrival, and a history has none; "
        "run the query as a stream, or leave advance_time out of the batch query"
    )


def _require_no_drops(node: nodes.Pattern) -> None:
    if node.on_limit == "drop" and node.most is not None:
        raise RecensionError(
            f"{node.label}: which events on_limit='drop' drops depends on arrival, and a history has none; "
            "run the query as a stream, or leave most= out of the batch query"
        )


def _require_versions(node: nodes.ByKey) -> None:
    if node.needs_arrival:
        raise RecensionError(
            f"{node.label}: without version= the last row to arrive counts, and a batch has no arrival; "
            "name a version, or run the query as a stream"
        )
    if node.policy != "raise":
        raise RecensionError(
            f"{node.label}: which rows on_violation={node.policy!r} drops depends on arrival, and a batch "
            "has none; run the query as a stream, or leave the policy out of the batch query"
        )


# A node is lowered by its own class, or else by the nearest of those it derives from.
_LOWERINGS: dict[type, Callable[..., Frame]] = {
    nodes.Where: span.where,
    nodes.Project: span.project,
    nodes.Span: span.span,
    # Any other span step, such as a user's function: by its kernel.
    SpanNode: map_batches,
    nodes.Union: merging.union,
    nodes.Merge: merging.merge,
    nodes.Pattern: interval_joins.pattern,
    nodes.Distinct: coalescing.distinct,
    nodes.Edges: coalescing.edges,
    nodes.ByKey: coalescing.by_key,
    nodes.Coalesce: coalescing.coalesce,
    nodes.CoalesceExtent: coalescing.coalesce_extent,
    nodes.CoalesceMany: coalescing.coalesce_many,
    nodes.GroupApply: coalescing.group_apply,
    nodes.AlterLifetime: lifetimes.alter_lifetime,
    nodes.TimedSpan: map_batches,
    nodes.Clip: lifetimes.clip,
    nodes.IntervalJoin: interval_joins.interval_join,
    nodes.Join: joins.join,
    nodes.SnapshotAggregate: aggregates.snapshot_aggregate,
    nodes.WindowAggregate: aggregates.window_aggregate,
    nodes.CountAggregate: aggregates.map_groups,
    nodes.SessionAggregate: aggregates.session_aggregate,
    nodes.ModuleWindow: aggregates.module_window,
    Consistency: _keep,
}

# What these drop may depend on arrival: every class of them says when it can run on a history.
_CHECKS: dict[type, Callable[..., None]] = {
    nodes.Align: _require_nothing,
    nodes.Cleanse: _require_nothing,
    nodes.Finalize: _require_endless_memory,
    nodes.AdvanceTime: _require_nothing_late,
    nodes.ImportTime: _require_nothing_late,
    nodes.Merge: merging.require_lossless,
    nodes.Pattern: _require_no_drops,
}


def _lowering_of(node: Node) -> Callable[..., Frame]:
    for kind in type(node).__mro__:
        if kind in _LOWERINGS:
            return _LOWERINGS[kind]
    raise RecensionError(f"batch: cannot run {node.label!r}")
