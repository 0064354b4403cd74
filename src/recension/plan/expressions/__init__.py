"""Expressions: what a row says about itself, as users write it, and as plans hold, compute and print it."""

from recension.plan.expressions.expr import Expr
from recension.plan.expressions.expression import (
    Expression,
    IntoExpression,
    column,
    expression,
    require_boolean,
    require_columns,
    result_name,
    result_type,
    tree_of,
)
from recension.plan.expressions.functions import (
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    lit,
    max_horizontal,
    mean_horizontal,
    min_horizontal,
    sum_horizontal,
    when,
)

__all__ = [
    "Expr",
    "Expression",
    "IntoExpression",
    "all_horizontal",
    "any_horizontal",
    "coalesce",
    "col",
    "column",
    "concat_str",
    "expression",
    "lit",
    "max_horizontal",
    "mean_horizontal",
    "min_horizontal",
    "require_boolean",
    "require_columns",
    "result_name",
    "result_type",
    "sum_horizontal",
    "tree_of",
    "when",
]
