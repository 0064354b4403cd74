"""Every call of a user's code is made twice: in modules, in functions of arrays, in functions of rows."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from recension.modules.functions import Function
from recension.modules.repetition import Repeated
from recension.plan import expression_tree as tree
from recension.plan.aggregates import Aggregate, FunctionOf
from recension.plan.each_group import GroupApply
from recension.plan.expressions import Expression, expression
from recension.plan.module_call import ModuleCall
from recension.plan.module_window import Policies
from recension.plan.node import Node
from recension.plan.rewrites.sharing import rebuild


def repeat_calls(plan: Node) -> Node:
    """The same query, which stops where the same members or rows do not give the same."""
    (new,) = rebuild([plan], _step)
    return new


def _step(node: Node) -> Node:
    if isinstance(node, GroupApply):
        return replace(node, plan=repeat_calls(node.plan))
    new: Node = _with_parts(node)
    return new


def _with_parts(whole: Any) -> Any:
    """A step, an aggregate or a call, with the calls in its parts repeated; itself if there are none."""
    was = {part.name: getattr(whole, part.name) for part in fields(whole) if part.init}
    now = {name: _repeated(part) for name, part in was.items()}
    changed: dict[str, Any] = {name: part for name, part in now.items() if part is not was[name]}
    return replace(whole, **changed) if changed else whole


def _repeated(part: Any) -> Any:
    """A part of what is asked, likewise."""
    match part:
        case Policies():
            return replace(part, verify=True)
        case FunctionOf():
            return _with_parts(replace(part, fn=Repeated(part.fn)))
        case Aggregate() | ModuleCall():
            return _with_parts(part)
        case Expression() if tree.calls_functions(part.native):
            return expression(tree.with_functions(part.native, _called_twice))
        case tuple() if type(part) is tuple:
            parts = tuple(map(_repeated, part))
            return part if all(new is old for new, old in zip(parts, part, strict=True)) else parts
    return part


def _called_twice(function: Function) -> Function:
    return Function(Repeated(function.fn), function.result, function.over)
