"""Conditions inside a join that concern one side become filters on that side: smaller state, fewer pairs.

A right event that fails a condition of its own matches nothing, in any kind of join. A left event that
fails one gives nothing in an inner or semi join, but in a left or anti join it is there *because* it has
no match, so there the condition stays. Conditions that may fail stay too: in the join they see only pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recension.plan.expressions import Expression
from recension.plan.join import Join
from recension.plan.node import Node
from recension.plan.rewrites.conditions import conjunction, conjuncts, filtered, rewritten
from recension.plan.rewrites.sharing import rebuild


def narrow_joins(roots: Sequence[Node]) -> list[Node]:
    """The same queries with one-sided join conditions moved to their sides."""
    return rebuild(roots, lambda node: _narrowed(node) if isinstance(node, Join) else node)


def _narrowed(node: Join) -> Node:
    left: list[Expression] = []
    right: list[Expression] = []
    staying: list[Expression] = []
    for condition in conjuncts(node.where) if node.where else []:
        is_total, pairs = condition.is_total(node.pair_schema), node.pair_schema
        on_left = rewritten(condition, node.left_columns, pairs, node.left.schema) if is_total else None
        on_right = rewritten(condition, node.right_columns, pairs, node.right.schema) if is_total else None
        if on_left and node.how in ("inner", "semi"):
            left.append(on_left)
        elif on_right:
            right.append(on_right)
        else:
            staying.append(condition)
    return replace(
        node,
        left=filtered(node.left, left),
        right=filtered(node.right, right),
        where=conjunction(staying) if staying else None,
    )
