"""From a logical plan to Spark: one function a node, the plan itself being the lineage."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recension.core.errors import RecensionError
from recension.plan import nodes
from recension.plan.group_apply import apply_by_keys
from recension.plan.node import Node, rebuild, walk
from recension.plan.rewrites import optimize
from recension.plan.span import SpanNode
from recension.runners.spark.batch import (
    aggregates,
    coalescing,
    consistency,
    coverage,
    joins,
    lifetimes,
    merging,
    modules,
    span,
)
from recension.runners.spark.batch.frame import Frame

# A node is lowered by its own class, or else by the nearest of those it derives from.
_LOWERED: dict[type, Callable[..., Frame]] = {
    nodes.Where: span.where,
    nodes.Project: span.project,
    nodes.Span: span.span,
    SpanNode: span.by_kernel,
    nodes.Union: span.union,
    nodes.Merge: merging.merge,
    nodes.Distinct: coverage.distinct,
    nodes.Edges: coalescing.edges,
    nodes.Coalesce: coalescing.coalesce,
    nodes.CoalesceExtent: coalescing.coalesce_extent,
    nodes.CoalesceMany: coalescing.coalesce_many,
    nodes.GroupApply: coalescing.group_apply,
    nodes.AlterLifetime: lifetimes.alter_lifetime,
    nodes.Clip: lifetimes.clip,
    nodes.Join: joins.join,
    nodes.SnapshotAggregate: aggregates.snapshot_aggregate,
    nodes.WindowAggregate: aggregates.window_aggregate,
    nodes.CountAggregate: aggregates.count_aggregate,
    nodes.ModuleWindow: modules.module_window,
    nodes.Align: consistency.unchanged,
    nodes.Cleanse: consistency.unchanged,
    nodes.Finalize: consistency.finalize,
    nodes.AdvanceTime: consistency.advance_time,
    nodes.ImportTime: consistency.advance_time,
}


def lower(query: Node, sources: Callable[[nodes.Source], Frame]) -> Frame:
    """The query's history as a frame."""
    (root,) = optimize(rebuild([query], _on_all_groups))
    done: dict[Node, Frame] = {}
    for node in walk(root):
        if isinstance(node, nodes.Source):
            done[node] = sources(node)
        else:
            done[node] = _step(node)(node, *(done[child] for child in node.inputs))
    return done[root]


def require_runnable(query: Node) -> None:
    """Refuse a query that depends on arrival; for those who want to know before there is a session."""
    (root,) = optimize(rebuild([query], _on_all_groups))
    for node in walk(root):
        if not isinstance(node, nodes.Source):
            _step(node)
        match node:
            case nodes.Finalize():
                consistency.require_endless_memory(node)
            case nodes.AdvanceTime() | nodes.ImportTime():
                consistency.require_nothing_late(node)
            case nodes.Merge():
                merging.require_lossless(node)


def _on_all_groups(node: Node) -> Node:
    """Steps that run group by group only because of when things come: a history has no when."""
    return apply_by_keys(node) if isinstance(node, nodes.GroupApply) else node


def _step(node: Node) -> Callable[..., Frame]:
    for kind in type(node).__mro__:
        if kind in _LOWERED:
            return _LOWERED[kind]
    raise RecensionError(f"batch: cannot run {node.label!r}")


def sources_of(query: Node) -> Mapping[str, nodes.Source]:
    """The sources a query reads, by name."""
    found: dict[str, nodes.Source] = {}
    for node in walk(query):
        if isinstance(node, nodes.Source) and found.setdefault(node.name, node) is not node:
            raise RecensionError(f"two different sources are named {node.name!r}")
    return found
