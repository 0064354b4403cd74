"""Every call of a user's code is made twice: modules, functions of arrays and of rows, maps, equivalences."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from recension.modules.calls import Repeated
from recension.modules.functions import Function
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.equivalences import Custom
from recension.plan.expressions import Expression
from recension.plan.expressions.tree import calls_functions, with_functions
from recension.plan.module_window import ModuleCall, Policies
from recension.plan.node import Node, rebuild
from recension.plan.span import Map


def repeat_calls(plan: Node) -> Node:
    """The same query; it stops where users' code gives two answers for the same arguments."""
    (new,) = rebuild([plan], _step)
    return new


def _step(node: Node) -> Node:
    own = node.own_plans
    plans = {part.name: plan for part in fields(node) if (plan := getattr(node, part.name)) in own}  # type: ignore[arg-type]
    new: Node = _with_parts(node)
    if isinstance(new, Map):
        new = replace(new, fn=Repeated(new.fn))
    return replace(new, **{name: repeat_calls(plan) for name, plan in plans.items()}) if plans else new  # type: ignore[type-var]


def _with_parts(whole: Any) -> Any:
    """A step, an aggregate or a call, with the calls in its parts repeated; itself if there are none."""
    was = {part.name: getattr(whole, part.name) for part in fields(whole) if part.init}
    now = {name: _repeat_in(part) for name, part in was.items()}
    changed: dict[str, Any] = {name: part for name, part in now.items() if part is not was[name]}
    return replace(whole, **changed) if changed else whole


def _repeat_in(part: Any) -> Any:
    """A field of such a part, likewise."""
    match part:
        case Policies():
            return replace(part, verify=True)
        case Custom():
            return replace(part, fn=Repeated(part.fn))
        case FunctionOf():
            return _with_parts(replace(part, fn=Repeated(part.fn)))
        case Aggregate() | ModuleCall():
            return _with_parts(part)
        case Expression() if calls_functions(part.tree):
            return Expression(with_functions(part.tree, _repeat_function))
        case tuple() if type(part) is tuple:
            parts = tuple(map(_repeat_in, part))
            return part if all(new is old for new, old in zip(parts, part, strict=True)) else parts
    return part


def _repeat_function(function: Function) -> Function:
    return Function(Repeated(function.fn), function.result, function.over)
