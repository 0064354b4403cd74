"""Expressions evaluated: by narwhals, but for users' functions, which are called on the columns they take.

A call is computed first and stands as a column in what is left of its expression:

    threshold(kind) + 1 > x        is        _call 0 + 1 > x
"""

from __future__ import annotations

from collections.abc import Sequence

import narwhals as nw
import pyarrow as pa
from narwhals._expression_parsing import ExprNode

from recension.plan import expression_tree as tree


def values_of(natives: Sequence[nw.Expr], table: pa.Table) -> pa.Table:
    """One column for each expression, named by its place; as long as the table, unless all are literals."""
    calls = _Calls(table)
    plain = [calls.without(native).alias(str(i)) for i, native in enumerate(natives)]
    return nw.from_native(calls.table, eager_only=True).select(*plain).to_native()


class _Calls:
    """A table with a further column for each call of a user's function."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self._number = table, 0

    def without(self, native: nw.Expr) -> nw.Expr:
        """The expression over columns that hold what its calls give."""
        if not any(node.name == tree.CALL for node in tree.every_operation(native)):
            return native
        done: list[ExprNode] = []
        for node in tree.operations(native):
            if node.name == tree.CALL:
                done = list(self._called(node, done)._nodes)
            else:
                done.append(tree.with_operands(node, self.without))
        return nw.Expr(*done)

    def _called(self, call: ExprNode, over: list[ExprNode]) -> nw.Expr:
        """A column with what a function gives of what stands so far."""
        is_several = len(over) == 1 and over[0].name == tree.SEVERAL
        operands = tree.arguments(over[0]) if is_several else [nw.Expr(*over)]
        names = [self._fresh() for _ in operands]
        named = [operand.alias(name) for operand, name in zip(operands, names, strict=True)]
        self.table = nw.from_native(self.table, eager_only=True).with_columns(*named).to_native()
        columns = [_whole(self.table.column(name)) for name in names]
        name = self._fresh()
        self.table = self.table.append_column(name, call.kwargs["function"].over_columns(columns))
        return nw.col(name)

    def _fresh(self) -> str:
        """A name that no payload column may have."""
        self._number += 1
        return f"_call {self._number}"


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
