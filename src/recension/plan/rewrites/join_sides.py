"""Conditions on the pairs of a join, as conditions on one side of it."""

from __future__ import annotations

import pyarrow as pa

from recension.plan.expressions import Expression, column
from recension.plan.join import Join
from recension.plan.rewrites.conditions import rewritten


def on_left_side(condition: Expression, node: Join, schema: pa.Schema) -> Expression | None:
    """The condition over the left input's columns, if it reads no others."""
    columns = {name: column(name) for name in node.left.schema.names}
    return rewritten(condition, columns, schema, node.left.schema)


def on_right_side(condition: Expression, node: Join, schema: pa.Schema) -> Expression | None:
    """The condition over the right input's columns, if it reads no others.

    Keys are the same on both sides, but for floats: there 0.0 matches -0.0, and a condition can tell.
    """
    right = node.right.schema
    keys = {key: column(key) for key in node.on if not holds_floats(right.field(key).type)}
    return rewritten(condition, keys | {new: column(old) for old, new in node.right_outputs}, schema, right)


def holds_floats(kind: pa.DataType) -> bool:
    """Can two values of this type be equal and yet different?"""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))
