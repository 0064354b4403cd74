"""What is asked of windows: aggregates, what is computed from them, and user-defined modules.

    tumbling(5).agg(n=count(), mean=sum(x) / count())       select n, mean = sum(x) / n
                                                            └─ aggregate n = count(), sum(x), windows of 5

Aggregates of the library become a node of the kind of their windows, modules a node of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recension.core.errors import SchemaError
from recension.modules.contracts import ArrayFunction
from recension.modules.module import Module
from recension.modules.registry import make_module
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.answers import VERB, AggregateColumns, require_answer
from recension.plan.expressions import Expr, column
from recension.plan.expressions.tree import AggregateCall, Tree
from recension.plan.module_window import ModuleCall, ModuleWindow, Policies, WindowKind, call_of
from recension.plan.node import Node, Outputs, columns_named
from recension.plan.span import Project
from recension.plan.timed_span import reads_times
from recension.plan.timed_steps import name_timed
from recension.plan.windows import (
    CountAggregate,
    CountWindows,
    SessionAggregate,
    SessionWindows,
    WindowAggregate,
    Windows,
)


def answer_windows(
    plan: Node,
    keys: Outputs,
    rows: tuple[Any, ...],
    named: Mapping[str, Any],
    windows: WindowKind,
    policies: Policies,
) -> Node:
    """The aggregates over windows; those that yield rows need no name."""
    found = [
        *((None, _read_answer(given)) for given in rows),
        *((name, _read_answer(given)) for name, given in named.items()),
    ]
    for name, answer in found:
        _require_answer(name, answer, [key for key, _ in keys])
    plain = [(name or "", a) for name, a in found if not isinstance(a, Tree)]
    columns = AggregateColumns(plain, [*(key for key, _ in keys), *named])
    outputs = [
        (name or "", columns.compute(answer) if isinstance(answer, Tree) else column(name or ""))
        for name, answer in found
    ]
    node = _answers_node(plan, keys, columns.found, windows, policies)
    if len(plain) == len(found):
        return node
    return Project(node, (*columns_named(key for key, _ in keys), *outputs), VERB)


def _answers_node(
    plan: Node,
    keys: Outputs,
    found: Sequence[tuple[str, Any]],
    windows: WindowKind,
    policies: Policies,
) -> Node:
    if any(isinstance(answer, Module) for _, answer in found):
        return ModuleWindow(
            plan, keys, tuple((n, _module_answer(a, plan)) for n, a in found), windows, policies
        )
    _refuse_policies(policies)
    plan, aggregates = _name_times(plan, [(name or aggregate.name, aggregate) for name, aggregate in found])
    parts = plan, keys, aggregates, policies.speculate
    match windows:
        case Windows():
            return WindowAggregate(*parts, windows)
        case CountWindows():
            return CountAggregate(*parts, windows)
        case SessionWindows():
            return SessionAggregate(*parts, windows)
        case None:
            return SnapshotAggregate(*parts)


def _name_times(
    plan: Node, aggregates: list[tuple[str, Aggregate]]
) -> tuple[Node, tuple[tuple[str, Aggregate], ...]]:
    """Aggregates of times and lifetimes, as aggregates of columns that contain these."""
    for _, aggregate in aggregates:
        if aggregate.yields_rows and any(map(reads_times, aggregate.inputs)):
            raise SchemaError(
                f"agg: {aggregate} yields rows, so it can only order them by one of their columns; make "
                "it a column first",
                instead=", as in with_columns(lasted=rc.lifetime())",
            )
    read = list(dict.fromkeys(computed for _, aggregate in aggregates for computed in aggregate.inputs))
    below, columns = name_timed(plan, read, "agg")
    if below is plan:
        return plan, tuple(aggregates)
    column_of = dict(zip(read, columns, strict=True))
    return below, tuple((name, aggregate.map_inputs(column_of.__getitem__)) for name, aggregate in aggregates)


def _read_answer(given: Any) -> Any:
    """The module that the user gave by class or name; modules, aggregates and expressions unchanged."""
    if isinstance(given, str) or (isinstance(given, type) and issubclass(given, Module)):
        return make_module(given)
    tree = given.tree if isinstance(given, Expr) else None
    return tree.aggregate if isinstance(tree, AggregateCall) else given if tree is None else tree


def _require_answer(name: str | None, answer: Any, keys: Sequence[str]) -> None:
    if not isinstance(answer, Aggregate | Module | Tree):
        raise SchemaError(
            f"agg: {answer!r} is not an aggregate", instead="; use rc.count(), rc.sum('column'), ..."
        )
    if isinstance(answer, Tree):
        require_answer(answer, keys)
    if isinstance(answer, Module) and answer.yields_rows:
        raise SchemaError(f"agg: {answer.name} yields rows", instead="; use apply(...)")
    if name is None and (isinstance(answer, Tree) or not answer.yields_rows):
        call = f"rc.{answer}" if isinstance(answer, Aggregate) else str(answer)
        call = str(Expr(answer, None)) if isinstance(answer, Tree) else call
        raise SchemaError("agg: name each aggregate", instead=f", as in agg(answer={call})")


def _module_answer(answer: Aggregate | Module, plan: Node) -> ModuleCall | Aggregate:
    """Next to modules, a user's own function counts as a module."""
    if isinstance(answer, FunctionOf):
        if answer.where is not None:
            raise SchemaError(
                f"agg: {answer} cannot have where= together with modules; set the other values to null",
                instead=" with rc.when(...).then(...)",
            )
        answer = ArrayFunction(answer.fn, answer.result, answer.argument)
    return call_of(answer, plan.schema) if isinstance(answer, Module) else answer


def _refuse_policies(policies: Policies) -> None:
    """Refuse clipping and stamping for the library's aggregates: they do not see lifetimes and give none."""
    if policies.stamp != "align":
        raise SchemaError(
            f"stamp_output({policies.stamp!r}): aggregates give values, which live as long as their window; "
            "only 'align' is possible"
        )
    if policies.recompute:
        raise SchemaError("agg: recompute=True is for modules; the library's aggregates keep no output")


def apply_module(
    plan: Node, keys: Outputs, asked: Any, given: Mapping[str, Any], windows: WindowKind, policies: Policies
) -> Node:
    """A user-defined operator over windows: an instance; or a class or name, with its arguments."""
    made = make_module(asked, given)
    if not made.yields_rows:
        raise SchemaError(f"apply: {made.name} gives one value", instead=f"; use agg(name={made})")
    return ModuleWindow(plan, keys, (("rows", call_of(made, plan.schema)),), windows, policies)
