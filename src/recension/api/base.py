"""The base of all stream methods: a stream is a plan, and every method returns a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, IntoExpression, expression, result_name
from recension.plan.node import Node, Outputs


class StreamBase:
    """A query so far."""

    __slots__ = ("plan",)

    def __init__(self, plan: Node) -> None:
        self.plan = plan

    def _then(self, node: Node) -> Self:
        return type(self)(node)

    def _name_outputs(
        self, columns: Iterable[IntoExpression], named: Mapping[str, IntoExpression], verb: str
    ) -> Outputs:
        """Columns and expressions under their own names, then those given a name."""
        found: list[tuple[str, Expression]] = []
        for given in columns:
            if isinstance(given, str):
                found.append((given, expression(given)))
            else:
                found.append((result_name(given, verb), expression(given)))
        return (*found, *((name, expression(value)) for name, value in named.items()))


def key_names(on: str | Iterable[str] | None, verb: str) -> tuple[str, ...]:
    """Key columns given as one name or several."""
    names = () if on is None else tuple(on) if isinstance(on, Iterable) and not isinstance(on, str) else (on,)
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"{verb}: a key is a column's name, not {name!r}")
    if len(set(names)) < len(names):
        raise SchemaError(f"{verb}: a key is named twice in {list(names)}")
    return names


def plan_of(other: Any, verb: str) -> Node:
    """The plan of another stream given to a method."""
    if not isinstance(other, StreamBase):
        raise SchemaError(f"{verb}: a stream is needed here, not {other!r}")
    return other.plan
