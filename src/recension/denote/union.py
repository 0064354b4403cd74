"""Union: all events of both histories, as a bag (rulings, C: "bag union")."""

from __future__ import annotations

from recension.core.errors import SchemaError
from recension.core.events import Event
from recension.denote.order import History


def union(left: History, right: History) -> History:
    """The events of both, with the columns in the order of the left.

    >>> print(*union([Event({"a": 1, "b": 2}, 0, 1)], [Event({"b": 3, "a": 4}, 5, 6)]), sep="; ")
    [0, 1) {'a': 1, 'b': 2}; [5, 6) {'a': 4, 'b': 3}
    """
    if not left or not right:
        return left + right
    columns = list(left[0].payload)
    for event in right:
        if set(event.payload) != set(columns):
            raise SchemaError(f"union of columns {columns} with columns {list(event.payload)}")
    return left + [Event({name: e.payload[name] for name in columns}, e.vs, e.ve) for e in right]
