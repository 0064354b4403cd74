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

from recension.plan.expressions import Expression
from recension.plan.node import FilterRule, Node
from recension.plan.rewrites.conditions import conjuncts, filtered, rewritten
from recension.plan.rewrites.sharing import count_readers
from recension.plan.span import Where

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
    rules = zip(node.filters_below(), node.inputs, strict=True)
    return tuple(_below(predicate, node, child, rule) for rule, child in rules)


def _below(predicate: Expression, node: Node, child: Node, rule: FilterRule | None) -> Expression | None:
    if rule is None or (rule.needs_total and not predicate.is_total(node.schema)):
        return None
    return rewritten(predicate, rule.columns, node.schema, child.schema)
