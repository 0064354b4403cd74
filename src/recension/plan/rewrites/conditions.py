"""Conditions taken apart and put together: what all filter rewrites do with predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, result_type
from recension.plan.expressions import tree as trees
from recension.plan.node import Node
from recension.plan.span import Where


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


def filtered(node: Node, predicates: Sequence[Expression]) -> Node:
    """The node's events that satisfy all predicates: one filter, unless one of them needs protection.

    A predicate that may fail on some rows is evaluated on those the others left, as its author had it.
    """
    together: list[Expression] = []
    for predicate in predicates:
        if together and not predicate.is_total(node.schema):
            node, together = Where(node, conjunction(together)), []
        together.append(predicate)
    return Where(node, conjunction(together)) if together else node


def rewritten(
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
