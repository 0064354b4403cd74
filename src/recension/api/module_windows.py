"""Modules over windows, as users ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recension.core.errors import SchemaError
from recension.modules.aggregates import ArrayFunction
from recension.modules.module import Module
from recension.modules.registry import module_named
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.count_window import CountAggregate, CountWindows
from recension.plan.module_call import ModuleCall, call_of
from recension.plan.module_window import ModuleWindow, Policies, WindowKind
from recension.plan.node import Node, Outputs
from recension.plan.window import WindowAggregate, Windows


def aggregated(
    plan: Node,
    keys: Outputs,
    rows: tuple[Any, ...],
    named: Mapping[str, Any],
    windows: WindowKind,
    policies: Policies,
) -> Node:
    """The aggregates over windows; those that yield rows need no name."""
    found = [*((None, made) for made in map(_made, rows)), *((name, _made(a)) for name, a in named.items())]
    for name, aggregate in found:
        _require_aggregate(name, aggregate)
    if any(isinstance(aggregate, Module) for _, aggregate in found):
        answers = tuple((name or "", _answer(aggregate, plan)) for name, aggregate in found)
        return ModuleWindow(plan, keys, answers, windows, policies)
    _refuse_policies(policies)
    aggregates = tuple((name or aggregate.name, aggregate) for name, aggregate in found)
    parts = plan, keys, aggregates, policies.speculate
    match windows:
        case Windows():
            return WindowAggregate(*parts, windows)
        case CountWindows():
            return CountAggregate(*parts, windows)
    return SnapshotAggregate(*parts)


def _made(aggregate: Any) -> Any:
    """A module that is named, or given as its class, as the module itself."""
    is_module = isinstance(aggregate, str) or (isinstance(aggregate, type) and issubclass(aggregate, Module))
    return module(aggregate) if is_module else aggregate


def _require_aggregate(name: str | None, aggregate: Any) -> None:
    if not isinstance(aggregate, Aggregate | Module):
        raise SchemaError(f"agg: {aggregate!r} is not an aggregate; use rc.count(), rc.sum('column'), ...")
    if isinstance(aggregate, Module) and aggregate.yields_rows:
        raise SchemaError(f"agg: {aggregate.name} yields rows; use apply(...)")
    if name is None and not aggregate.yields_rows:
        raise SchemaError(f"agg: name each aggregate, as in agg(answer={_written(aggregate)})")


def _written(aggregate: Any) -> str:
    return str(aggregate) if isinstance(aggregate, Module) else f"rc.{aggregate}"


def _answer(aggregate: Any, plan: Node) -> ModuleCall | Aggregate:
    if isinstance(aggregate, FunctionOf):
        aggregate = ArrayFunction(aggregate.fn, aggregate.result, aggregate.argument)
    return call_of(aggregate, plan.schema) if isinstance(aggregate, Module) else aggregate


def _refuse_policies(policies: Policies) -> None:
    """Aggregates of the library see no lifetimes and give none."""
    if policies.stamp != "align":
        raise SchemaError(
            f"stamp_output({policies.stamp!r}): aggregates give values, which live as long as their window; "
            "only 'align' is possible"
        )
    if policies.recompute:
        raise SchemaError("agg: recompute=True is for modules; the library's aggregates keep no output")


def applied(
    plan: Node, keys: Outputs, asked: Any, given: Mapping[str, Any], windows: WindowKind, policies: Policies
) -> Node:
    """A user-defined operator over windows: an instance, a class or a name with what it is to be given."""
    made = module(asked, **given)
    if not made.yields_rows:
        raise SchemaError(f"apply: {made.name} gives one value; use agg(name={made})")
    return ModuleWindow(plan, keys, (("rows", call_of(made, plan.schema)),), windows, policies)


def module(named: Any, /, **given: Any) -> Module:
    """A user-defined module by the name under which a package offers it, with what it is to be given.

    Parameters
    ----------
    named
        The name; or the class of a module, or a module that has its parameters already.
    given
        Its parameters, and what is mapped to its inputs.

    >>> from recension.testing.modules import Total
    >>> print(module(Total, v="speed"))
    Total()
    """
    kind = module_named(named) if isinstance(named, str) else named
    if isinstance(kind, type) and issubclass(kind, Module):
        try:
            return kind(**given)
        except TypeError as why:  # a method is missing
            raise SchemaError(f"{kind.__name__}: {why}") from None
    if isinstance(kind, Module) and not given:
        return kind
    if isinstance(kind, Module):
        raise SchemaError(f"apply: {kind} has its parameters already; give them once")
    raise SchemaError(f"apply: {named!r} is not a module; give an rc.Operator, or the name of one")
