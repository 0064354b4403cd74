"""Filters go towards the sources: what is dropped early is not stored, joined or altered.

A predicate sees only the payload, so it commutes with everything that treats events by payload: lifetime
changes, projections, unions, distinct, whole groups of edges and of coalescing, and each side of a join that
has the columns it needs. It never passes an aggregate or a user's function. A user's module over windows it
passes if it reads the keys of groups alone, or what the module declares to be partitioned by. Below a step
that drops events itself it could meet rows it never met before, so only predicates that have a value for
every row go there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from recension.plan.coalesce import Coalesce
from recension.plan.edges import Edges
from recension.plan.expressions import Expression
from recension.plan.extents import CoalesceExtent, Range
from recension.plan.join import Join
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node
from recension.plan.rewrites.conditions import conjuncts, filtered, rewritten
from recension.plan.rewrites.join_sides import holds_floats, on_left_side, on_right_side
from recension.plan.rewrites.sharing import count_readers
from recension.plan.span import Distinct, Project, Union, Where

Placed: TypeAlias = tuple[Expression | None, ...]
"""A predicate as it reads on each input, nothing where it does not go; nowhere means it stays above."""


def push_filters(roots: Sequence[Node]) -> list[Node]:
    """The same queries with every filter as near to the sources as it may stand."""
    pusher = _Pusher(count_readers(roots))
    return [pusher.rewrite(root) for root in roots]


class _Pusher:
    def __init__(self, readers: Counter[Node]) -> None:
        self._readers = readers
        self._done: dict[Node, Node] = {}

    def rewrite(self, node: Node) -> Node:
        if node not in self._done:
            self._done[node] = self._sink(node, [])
        return self._done[node]

    def _sink(self, node: Node, predicates: Sequence[Expression]) -> Node:
        """``node`` under these filters, which go below it where they can."""
        if isinstance(node, Where):
            return self._place(node.input, [*conjuncts(node.predicate), *predicates])
        placed = [(predicate, placements(node, predicate)) for predicate in predicates]
        inputs = [
            self._place(child, [there[port] for _, there in placed if there[port] is not None])  # type: ignore[misc]
            for port, child in enumerate(node.inputs)
        ]
        staying = [predicate for predicate, there in placed if not any(there)]
        return filtered(node.with_inputs(inputs), staying)

    def _place(self, node: Node, predicates: Sequence[Expression]) -> Node:
        """A node that others read too stays as it is, with the filters above it: it is computed once."""
        if predicates and self._readers[node] == 1:
            return self._sink(node, predicates)
        return filtered(self.rewrite(node), predicates)


def placements(node: Node, predicate: Expression) -> Placed:
    """Where a filter above a node may go: the predicate on each of its inputs."""
    match node:
        case Project():
            return (rewritten(predicate, dict(node.outputs), node.schema, node.input.schema),)
        case Union():
            return tuple(predicate for _ in node.inputs)
        case Distinct():
            return (None if _tells_equals_apart(predicate, node) else predicate,)
        case Edges() | Coalesce() | CoalesceExtent(window=Range()) if predicate.is_total:
            return (predicate if _chooses_groups(predicate, node) else None,)
        case AlterLifetime() if predicate.is_total:
            return (predicate,)
        case Clip() if predicate.is_total:
            return (predicate, None)
        case Join() if predicate.is_total:
            return _on_sides(node, predicate)
        case ModuleWindow() if predicate.is_total:
            return (rewritten(predicate, node.passed_on, node.schema, node.input.schema),)
    return tuple(None for _ in node.inputs)


def _chooses_groups(predicate: Expression, node: Edges | Coalesce | CoalesceExtent) -> bool:
    """Does it keep or drop groups as wholes?"""
    return predicate.references <= set(node.group_by) and not _tells_equals_apart(predicate, node)


def _tells_equals_apart(predicate: Expression, node: Node) -> bool:
    """0.0 and -0.0 are equal, one event or one group, yet a predicate can tell which of them it was."""
    return any(holds_floats(node.schema.field(name).type) for name in predicate.references)


def _on_sides(node: Join, predicate: Expression) -> Placed:
    """To the left what reads left columns; to the right what reads right columns, in an inner join only.

    A condition on the keys goes to both sides of any join: a right event that fails it matches nothing
    that remains on the left.
    """
    left = on_left_side(predicate, node, node.schema)
    right = on_right_side(predicate, node, node.schema)
    is_on_keys = left is not None and predicate.references <= set(node.on)
    return (left, right if node.how == "inner" or is_on_keys else None)
