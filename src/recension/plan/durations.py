"""Does a query measure time in seconds and longer units? Then its times must be what they look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from recension.core.ticks import FOREVER
from recension.plan.expressions import Expression
from recension.plan.extents import Rows
from recension.plan.node import Node, each_once
from recension.plan.source import Leaf
from recension.plan.windows import CountWindows

_LENGTHS: Final = frozenset(
    [
        *("size", "hop", "gap", "span", "slide", "delta", "duration", "ticks"),
        *("block", "remember", "delay", "interval", "forget", "ahead"),
    ]
)
_SECOND: Final = 1_000_000


def measures_in_seconds(queries: Iterable[Node]) -> bool:
    """Is there a duration of whole seconds? Written as ticks it would be an odd one, such as 60,000,000.

    >>> import recension as rc
    >>> s = rc.source("s", {"x": "int64"})
    >>> [measures_in_seconds([s.tumbling(size).agg(n=rc.count()).plan]) for size in ("1m", 60_000)]
    [True, False]
    """
    nodes = (node for node in each_once(list(queries)) if not isinstance(node, Leaf))
    return any(FOREVER > abs(length) >= _SECOND and not length % _SECOND for length in _lengths(nodes))


def _lengths(parts: Iterable[Any]) -> Iterator[int]:
    """The durations that are written in parts of a query."""
    for part in parts:
        if isinstance(part, tuple):
            yield from _lengths(each for each in part if not isinstance(each, Node))
        elif is_dataclass(part) and not isinstance(part, type | Expression | Rows | CountWindows):
            values = {field.name: getattr(part, field.name) for field in fields(part)}
            yield from (
                value
                for name, value in values.items()
                if name in _LENGTHS and isinstance(value, int) and not isinstance(value, bool)
            )
            yield from _lengths(each for each in values.values() if not isinstance(each, Node))
