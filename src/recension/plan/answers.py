"""Columns that are computed from aggregates: the aggregates first, in hidden columns, then a projection.

    agg(n=count(), mean=sum(x) / count())       select n, mean = sum(x) / n
                                                └─ aggregate n = count(), sum(x)

Equal aggregates are computed once, whether they are named or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from recension.core.errors import SchemaError
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Aggregate
from recension.plan.expressions import Expression, require_columns
from recension.plan.expressions.tree import (
    AggregateCall,
    Column,
    Tree,
    aggregates_of,
    columns_of,
    rebuild_tree,
    render,
    substitute,
)
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node, Outputs, all_of
from recension.plan.schemas import name_apart
from recension.plan.span import Project, Where
from recension.plan.timed_span import reads_times
from recension.plan.timed_steps import filtered

A = TypeVar("A")
VERB = "agg"
"""How the projection over hidden columns was written."""


class AggregateColumns(Generic[A]):
    """The answers of a step by name, and those hidden ones that others are computed from."""

    def __init__(self, named: Iterable[tuple[str, A | Aggregate]], taken: Iterable[str]) -> None:
        """``taken`` are the names that a hidden column cannot have."""
        self.found = list(named)
        self._taken = {*taken, *(name for name, _ in self.found)}

    def compute(self, tree: Tree) -> Expression:
        """What is computed from aggregates, as an expression over their columns."""

        def change(node: Tree) -> Tree:
            return Column(self._column_of(node.aggregate)) if isinstance(node, AggregateCall) else node

        return Expression(rebuild_tree(tree, change))

    def _column_of(self, aggregate: Aggregate) -> str:
        if aggregate.yields_rows:
            raise SchemaError(f"agg: {aggregate} yields rows, so nothing can be computed from it")
        for name, known in self.found:
            if isinstance(known, Aggregate) and known == aggregate:
                return name
        name = name_apart(str(aggregate), self._taken)
        self._taken.add(name)
        self.found.append((name, aggregate))
        return name


def require_answer(tree: Tree, keys: Sequence[str]) -> None:
    """Raise unless it is computed from aggregates, and otherwise of keys alone."""
    if not aggregates_of(tree):
        raise SchemaError(
            f"agg: {render(tree)} is not an aggregate", instead="; use rc.count(), rc.sum('column'), ..."
        )
    if strange := sorted(set(columns_of(tree)) - set(keys)):
        raise SchemaError(
            f"agg: {render(tree)} reads {strange[0]} outside of an aggregate, where only keys of groups "
            "have one value",
            instead=f"; take rc.first({strange[0]!r}), rc.max({strange[0]!r}), ...",
        )


def having(plan: Node, condition: Tree) -> Node:
    """The answers of which a condition holds; it reads their columns, and aggregates that need no column."""
    if not aggregates_of(condition):
        return filtered(plan, Expression(condition))
    is_computed = isinstance(plan, Project) and plan.verb == VERB
    node = plan.input if isinstance(plan, Project) and is_computed else plan
    outputs: Outputs = plan.outputs if isinstance(plan, Project) and is_computed else all_of(plan.schema)
    if not isinstance(node, AggregateNode | ModuleWindow) or _yields_rows(node):
        raise SchemaError(
            f"having({render(condition)}): {aggregates_of(condition)[0]} is an aggregate of events, and the "
            "step before has no aggregates",
            instead="; write having(...) right after agg(...), or where(...) of its columns",
        )
    for aggregate in aggregates_of(condition):
        if any(map(reads_times, aggregate.inputs)):
            raise SchemaError(
                f"having({render(condition)}): {aggregate} reads times, so it must be a column first",
                instead=", as in agg(longest=rc.max(rc.lifetime())).having(rc.col('longest') > 5)",
            )
    require_columns(columns_of(condition), plan.schema, f"having({render(condition)})")
    by_name = {name: computed.tree for name, computed in outputs}
    own = node.aggregates if isinstance(node, AggregateNode) else node.answers
    columns = AggregateColumns(own, node.schema.names)
    holds = columns.compute(substitute(condition, by_name.__getitem__))
    return Project(Where(_with_answers(node, tuple(columns.found)), holds), outputs, VERB)


def _yields_rows(node: AggregateNode | ModuleWindow) -> bool:
    return (node.rows if isinstance(node, AggregateNode) else node.operator) is not None


def _with_answers(node: AggregateNode | ModuleWindow, answers: tuple[tuple[str, object], ...]) -> Node:
    name = "aggregates" if isinstance(node, AggregateNode) else "answers"
    return replace(node, **{name: answers})  # type: ignore[arg-type]
