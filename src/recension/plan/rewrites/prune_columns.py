"""Columns that nobody reads are dropped at the sources and before joins: less to copy and to keep.

Dropping columns never drops or merges events, for streams are bags. What compares whole payloads keeps
them whole: distinct, user functions, and aggregates whose ties go by (vs, ve, payload). At least one
column always stays, for a payload without columns does not know how many rows it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from recension.plan.aggregate import SnapshotAggregate
from recension.plan.aggregates import Aggregate
from recension.plan.coalesce import Coalesce
from recension.plan.consistency import Align
from recension.plan.edges import Edges
from recension.plan.expressions import column
from recension.plan.extent_set import CoalesceMany
from recension.plan.extents import CoalesceExtent
from recension.plan.join import Join
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node
from recension.plan.rewrites.sharing import each_once
from recension.plan.source import Source
from recension.plan.span import Project, Union, Where

Names: TypeAlias = frozenset[str]


def prune_columns(roots: Sequence[Node]) -> list[Node]:
    """The same queries without the columns that no step above them reads."""
    order = list(each_once(roots))
    needed: dict[Node, Names] = {node: frozenset() for node in order}
    for root in roots:
        needed[root] = frozenset(root.schema.names)
    for node in reversed(order):
        needed[node] = _at_least_one(needed[node], node.schema)
        for child, names in zip(node.inputs, demands(node, needed[node]), strict=True):
            needed[child] |= names
    new: dict[Node, Node] = {}
    for node in order:
        new[node] = _pruned(node, [new[child] for child in node.inputs], needed)
    return [new[root] for root in roots]


def demands(node: Node, needed: Names) -> list[Names]:
    """The columns a node needs of each input, when ``needed`` is what is read of its output."""
    if isinstance(node, Where):
        return [needed | node.predicate.references]
    if isinstance(node, Project):
        return [_references(e.references for name, e in node.outputs if name in needed)]
    if isinstance(node, AlterLifetime | Union):
        return [needed for _ in node.inputs]
    if isinstance(node, Align):
        return [needed | set(node.by)]
    if isinstance(node, Edges):
        return [needed | set(node.group_by)]
    if isinstance(node, Coalesce | CoalesceExtent | CoalesceMany):
        return [frozenset(node.columns)]
    if isinstance(node, Clip):
        return [needed | set(node.on), frozenset(node.on)]
    if isinstance(node, Join):
        return _demands_of_join(node, needed)
    if isinstance(node, SnapshotAggregate):
        return [_demands_of_aggregate(node, needed)]
    if isinstance(node, ModuleWindow):
        return [node.references]
    return [frozenset(child.schema.names) for child in node.inputs]


def _demands_of_join(node: Join, needed: Names) -> list[Names]:
    """Where names clash, the left column stays as long as the right one is read: it gives it its name."""
    read = (needed | node.where.references) if node.where else needed
    right = {old: new for old, new in node.right_outputs if new in read}
    clashing = {old for old, new in right.items() if old != new}
    left = (read & set(node.left.schema.names)) | clashing | set(node.on)
    return [frozenset(left), frozenset(right) | set(node.on)]


def _demands_of_aggregate(node: SnapshotAggregate, needed: Names) -> Names:
    kept = [aggregate for name, aggregate in _kept_aggregates(node, needed)]
    if any(aggregate.is_order_sensitive for aggregate in kept):
        return frozenset(node.input.schema.names)
    return _references([*(key.references for _, key in node.keys), *(a.references for a in kept)])


def _kept_aggregates(node: SnapshotAggregate, needed: Names) -> tuple[tuple[str, Aggregate], ...]:
    return tuple(pair for pair in node.aggregates if node.rows or pair[0] in needed) or node.aggregates[:1]


def _references(each: Iterable[Names]) -> Names:
    return frozenset().union(*each)


def _pruned(node: Node, inputs: list[Node], needed: dict[Node, Names]) -> Node:
    """The node over its pruned inputs, without the outputs nobody reads."""
    if isinstance(node, Source):
        return only(node, needed[node])
    if isinstance(node, Project):
        outputs = tuple(output for output in node.outputs if output[0] in needed[node])
        return replace(node, input=inputs[0], outputs=outputs)
    if isinstance(node, SnapshotAggregate):
        return replace(node, input=inputs[0], aggregates=_kept_aggregates(node, needed[node]))
    if isinstance(node, Union):
        return node.with_inputs([only(child, needed[node]) for child in inputs])
    if isinstance(node, Join | Clip):
        exact = zip(inputs, demands(node, needed[node]), strict=True)
        return node.with_inputs([only(child, names) for child, names in exact])
    return node.with_inputs(inputs)


def only(node: Node, names: Names) -> Node:
    """The node's stream with just these columns, in their order."""
    kept = [name for name in node.schema.names if name in _at_least_one(names, node.schema)]
    if kept == node.schema.names:
        return node
    return Project(node, tuple((name, column(name)) for name in kept))


def _at_least_one(names: Names, schema: pa.Schema) -> Names:
    """The names, or the narrowest column if there are none."""
    if names or not schema.names:
        return names
    return frozenset([min(schema.names, key=lambda name: _width(schema.field(name).type))])


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width)
    except ValueError:
        return 1 << 30
