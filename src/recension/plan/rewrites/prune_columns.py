"""Columns that nobody reads are dropped at the sources and before joins: less to copy and to keep.

Dropping columns never drops or merges events, for streams are bags. What compares whole payloads keeps
them whole: distinct, user functions, and aggregates whose ties go by (vs, ve, payload). At least one
column always stays, for a payload without columns does not know how many rows it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from recension.plan.node import Names, Node, columns_named, each_once
from recension.plan.source import Source
from recension.plan.span import Project


def prune_columns(roots: Sequence[Node]) -> list[Node]:
    """The same queries without the columns that no step above them reads."""
    order = list(each_once(roots))
    needed: dict[Node, Names] = {node: frozenset() for node in order}
    for root in roots:
        needed[root] = frozenset(root.schema.names)
    for node in reversed(order):
        needed[node] = _at_least_one(needed[node], node.schema)
        for child, names in zip(node.inputs, node.columns_read(needed[node]), strict=True):
            needed[child] |= names
    new: dict[Node, Node] = {}
    for node in order:
        new[node] = _prune(node, [new[child] for child in node.inputs], needed[node])
    return [new[root] for root in roots]


def _prune(node: Node, inputs: list[Node], needed: Names) -> Node:
    """The node over its pruned inputs, without the outputs nobody reads."""
    if isinstance(node, Source):
        return keep_columns(node, needed)
    if node.narrows_inputs:
        read = node.columns_read(needed)
        inputs = [keep_columns(child, names) for child, names in zip(inputs, read, strict=True)]
    return node.without_unread(needed).with_inputs(inputs)


def keep_columns(node: Node, names: Names) -> Node:
    """The node's stream with just these columns, in their order."""
    kept = [name for name in node.schema.names if name in _at_least_one(names, node.schema)]
    if kept == node.schema.names:
        return node
    return Project(node, columns_named(kept))


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
