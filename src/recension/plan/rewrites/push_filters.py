"""Filters go towards the sources: what is dropped early is not stored, joined or altered.

A predicate sees only the payload, so it commutes with everything that treats events by payload: lifetime
changes, projections, unions, distinct, whole groups of edges and of coalescing, and each side of a join that
has the columns it needs. It never passes an aggregate or a user's function. It passes a user's module over
windows if it reads only the keys of groups, or columns that the module declares to be partitioned by. Below
a step that drops events a predicate meets rows it never met before, so only predicates that have a value for
every row go there.

Conditions inside a join that concern one side become filters on that side first. A right event that fails a
condition of its own matches nothing, in any kind of join. A left event that fails one gives nothing in an
inner or semi join; in a left or anti join it is in the output *because* it has no match, so there the
condition stays. Conditions that may fail stay too: in the join they see only pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, result_type
from recension.plan.expressions import tree as trees
from recension.plan.join import Join
from recension.plan.node import FilterRule, Node, count_readers, rebuild
from recension.plan.pattern import Pattern
from recension.plan.span import Where

Placements: TypeAlias = tuple[Expression | None, ...]
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
        return filter_by(node.with_inputs(inputs), staying)

    def _place(self, node: Node, predicates: Sequence[Expression]) -> Node:
        """A node that others read too stays as it is, with the filters above it: it is computed once."""
        if predicates and self._readers[node] == 1:
            return self._sink(node, predicates)
        return filter_by(self.rewrite(node), predicates)


def placements(node: Node, predicate: Expression) -> Placements:
    """Where a filter above a node may go: the predicate on each of its inputs."""
    rules = zip(node.filters_below(), node.inputs, strict=True)
    return tuple(_predicate_below(predicate, node, child, rule) for rule, child in rules)


def _predicate_below(
    predicate: Expression, node: Node, child: Node, rule: FilterRule | None
) -> Expression | None:
    if rule is None or (rule.needs_total and not predicate.is_total(node.schema)):
        return None
    return rewrite_over(predicate, rule.columns, node.schema, child.schema)


def narrow_joins(roots: Sequence[Node]) -> list[Node]:
    """The same queries with one-sided conditions of joins, and those of patterns on one part, moved there."""

    def narrow(node: Node) -> Node:
        if isinstance(node, Pattern) and node.where is not None:
            return _narrow_pattern(node, conjuncts(node.where))
        return _narrow_join(node) if isinstance(node, Join) else node

    return rebuild(roots, narrow)


def _narrow_pattern(node: Pattern, conditions: Sequence[Expression]) -> Node:
    """A condition of a pattern goes where a filter above it would."""
    placed = [(condition, placements(node, condition)) for condition in conditions]
    staying = [condition for condition, there in placed if not any(there)]
    streams = [
        filter_by(child, [there[port] for _, there in placed if there[port] is not None])  # type: ignore[misc]
        for port, child in enumerate(node.streams)
    ]
    return replace(node, streams=tuple(streams), where=conjunction(staying) if staying else None)


def _narrow_join(node: Join) -> Node:
    left: list[Expression] = []
    right: list[Expression] = []
    staying: list[Expression] = []
    for condition in conjuncts(node.where) if node.where else []:
        is_total, pairs = condition.is_total(node.pair_schema), node.pair_schema
        on_left = rewrite_over(condition, node.left_columns, pairs, node.left.schema) if is_total else None
        on_right = rewrite_over(condition, node.right_columns, pairs, node.right.schema) if is_total else None
        if on_left and node.how in ("inner", "semi"):
            left.append(on_left)
        elif on_right:
            right.append(on_right)
        else:
            staying.append(condition)
    return replace(
        node,
        left=filter_by(node.left, left),
        right=filter_by(node.right, right),
        where=conjunction(staying) if staying else None,
    )


def conjuncts(predicate: Expression) -> list[Expression]:
    """Conditions that are all true exactly when this one is."""
    return [Expression(part) for part in trees.conjuncts(predicate.tree)]


def conjunction(predicates: Sequence[Expression]) -> Expression:
    """One condition that is true exactly when all of these are."""
    first, *others = predicates
    tree = first.tree
    for other in others:
        tree = trees.Call("&", (tree, other.tree))
    return Expression(tree)


def filter_by(node: Node, predicates: Sequence[Expression]) -> Node:
    """The node's events that satisfy all predicates: one filter, unless one of them needs protection.

    A predicate that may fail on some rows is evaluated on those the others left, as its author had it.
    """
    together: list[Expression] = []
    for predicate in predicates:
        if together and not predicate.is_total(node.schema):
            node, together = Where(node, conjunction(together)), []
        together.append(predicate)
    return Where(node, conjunction(together)) if together else node


def rewrite_over(
    computed: Expression, columns: Mapping[str, Expression], before: pa.Schema, after: pa.Schema
) -> Expression | None:
    """The expression over other columns, or nothing if it would not be the same there.

    ``columns`` says what each column it reads is in terms of the schema ``after``.
    """
    if not computed.references <= columns.keys():
        return None
    try:
        moved = Expression(trees.substitute(computed.tree, lambda name: columns[name].tree))
        is_same = result_type(moved, after, "rewrite") == result_type(computed, before, "rewrite")
    except SchemaError:
        return None
    return moved if is_same else None
