"""Does a query measure time in units, such as minutes? Then its times must be what they look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from recension.core.ticks import Length
from recension.plan.due import Due
from recension.plan.node import Node, each_once
from recension.plan.source import Leaf


def measures_in_units(queries: Iterable[Node]) -> bool:
    """Is there a duration that was written in units, in a step or in an expression; or is something due by
    the clock, which counts microseconds?

    >>> import recension as rc
    >>> s = rc.source("s", {"x": "int64"})
    >>> [measures_in_units([s.tumbling(size).agg(n=rc.count()).plan]) for size in ("1m", 60_000_000)]
    [True, False]
    """
    nodes = each_once([*queries])
    return any(
        any(isinstance(value, Node) and measures_in_units([value]) for value in _own_fields(node))
        or any(map(_has_length, _own_fields(node)))
        or (isinstance(node, Due) and node.by_clock)
        for node in nodes
        if not isinstance(node, Leaf)
    )


def _own_fields(node: Node) -> list[Any]:
    """What a step is made of, but for its inputs; a plan for groups is its own."""
    values = [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]
    return [value for value in values if not any(value is each for each in node.inputs)]


def _has_length(part: Any) -> bool:
    """Is there one in this part of a step?"""
    if isinstance(part, Length):
        return True
    if isinstance(part, Mapping):
        return any(map(_has_length, part.values()))
    if isinstance(part, tuple | list):
        return any(map(_has_length, part))
    if not is_dataclass(part) or isinstance(part, type | Node):
        return False
    return any(_has_length(getattr(part, field.name)) for field in fields(part))
