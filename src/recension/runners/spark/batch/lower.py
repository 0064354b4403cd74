"""From a logical plan to Spark: one function a node, the plan itself being the lineage.

Steps that wait or send CTIs change nothing on a history. What depends on arrival is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recension.core.errors import RecensionError
from recension.core.ticks import FOREVER
from recension.plan import nodes
from recension.plan.group_apply import apply_by_keys
from recension.plan.node import Node, rebuild, walk
from recension.plan.rewrites import optimize
from recension.plan.span import SpanNode
from recension.runners.spark.batch import aggregates, coalescing, joins, lifetimes, merging, span
from recension.runners.spark.batch.frame import Frame
from recension.runners.spark.batch.local_operators import map_batches


def lower(query: Node, sources: Callable[[nodes.Source], Frame]) -> Frame:
    """The query's history as a frame."""
    (root,) = optimize(rebuild([query], _apply_to_all_groups))
    done: dict[Node, Frame] = {}
    for node in walk(root):
        if isinstance(node, nodes.Source):
            done[node] = sources(node)
        else:
            done[node] = _lowering_of(node)(node, *(done[child] for child in node.inputs))
    return done[root]


def require_runnable(query: Node) -> None:
    """Refuse a query that depends on arrival; for those who want to know before there is a session."""
    (root,) = optimize(rebuild([query], _apply_to_all_groups))
    for node in walk(root):
        if not isinstance(node, nodes.Source):
            _lowering_of(node)
        match node:
            case nodes.Finalize():
                _require_endless_memory(node)
            case nodes.AdvanceTime() | nodes.ImportTime():
                _require_nothing_late(node)
            case nodes.Merge():
                merging.require_lossless(node)


def sources_of(query: Node) -> Mapping[str, nodes.Source]:
    """The sources a query reads, by name."""
    found: dict[str, nodes.Source] = {}
    for node in walk(query):
        if isinstance(node, nodes.Source) and found.setdefault(node.name, node) is not node:
            raise RecensionError(f"two different sources are named {node.name!r}")
    return found


def _apply_to_all_groups(node: Node) -> Node:
    """Steps that run group by group only because of when things come: a history has no when."""
    return apply_by_keys(node) if isinstance(node, nodes.GroupApply) else node


def _keep(node: Node, frame: Frame) -> Frame:
    """A history has no order to wait for and nothing that is not final."""
    return frame


def _finalize(node: nodes.Finalize, frame: Frame) -> Frame:
    """An endless memory drops nothing; a finite one drops what comes late, and a history has no late."""
    _require_endless_memory(node)
    return frame


def _advance_time(
    node: nodes.AdvanceTime | nodes.ImportTime, frame: Frame, clock: Frame | None = None
) -> Frame:
    """Where nothing can be late, CTIs change nothing."""
    _require_nothing_late(node)
    return frame


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


# A node is lowered by its own class, or else by the nearest of those it derives from.
_LOWERINGS: dict[type, Callable[..., Frame]] = {
    nodes.Where: span.where,
    nodes.Project: span.project,
    nodes.Span: span.span,
    # Any other span step, such as a user's function: by its kernel.
    SpanNode: map_batches,
    nodes.Union: merging.union,
    nodes.Merge: merging.merge,
    nodes.Distinct: coalescing.distinct,
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
    nodes.CountAggregate: aggregates.map_groups,
    nodes.ModuleWindow: aggregates.module_window,
    nodes.Align: _keep,
    nodes.Cleanse: _keep,
    nodes.Finalize: _finalize,
    nodes.AdvanceTime: _advance_time,
    nodes.ImportTime: _advance_time,
}


def _lowering_of(node: Node) -> Callable[..., Frame]:
    for kind in type(node).__mro__:
        if kind in _LOWERINGS:
            return _LOWERINGS[kind]
    raise RecensionError(f"batch: cannot run {node.label!r}")
