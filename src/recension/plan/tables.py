"""Tables in a plan: where rows that are true for ever may not go."""

from __future__ import annotations

from collections.abc import Iterable

from recension.core.errors import SchemaError
from recension.plan.join import Join
from recension.plan.node import Node, walk
from recension.plan.source import Table
from recension.plan.timed_span import TimedSpan


def find_table(node: Node) -> Table | None:
    """A table whose rows, or what is made of them, are true for ever also here; none if there is none.

    A pair, and what a match covers, is alive only while both are: there a stream on either side bounds it.
    Rows that are given lifetimes of their own are events like others.
    """
    waiting = [node]
    while waiting:
        step = waiting.pop()
        if isinstance(step, Table):
            return step
        if isinstance(step, TimedSpan) and step.forgets_lifetimes:
            continue
        if not isinstance(step, Join):
            waiting += step.inputs
        elif step.how in ("left", "anti") or find_table(step.right) is not None:
            waiting.append(step.left)
    return None


def refuse_table(node: Node, what: str) -> None:
    """Refuse a step that divides time, over rows that are there at all times."""
    if (table := find_table(node)) is not None:
        raise SchemaError(
            f"{what}: the rows of table {table.name!r} are true at all times, so the windows would never "
            "end; join a stream with the table first",
            instead=f", stream.join({table.name}, on=...), or use .agg(...)",
        )


def find_followed(plans: Iterable[Node]) -> dict[str, list[Node]]:
    """For each table that may be read again, the steps whose least CTI it follows.

    They are on the other side of its joins, without what itself waits for such a table: what two tables wait
    for each other would come to a standstill. A table that no stream is joined with follows nothing.
    """
    found: dict[str, dict[Node, None]] = {}
    for join in (node for plan in plans for node in walk(plan) if isinstance(node, Join)):
        for side, other in ((join.left, join.right), (join.right, join.left)):
            for table in filter(_is_refreshed, walk(side)):
                assert isinstance(table, Table)
                found.setdefault(table.name, {}).update(dict.fromkeys(_without_refreshed(other)))
    return {name: list(nodes) for name, nodes in found.items() if nodes}


def _is_refreshed(node: Node) -> bool:
    return isinstance(node, Table) and node.refresh is not None


def _without_refreshed(node: Node) -> list[Node]:
    """The highest steps in a plan below which no table is read again."""
    if not any(map(_is_refreshed, walk(node))):
        return [node]
    return [below for child in node.inputs for below in _without_refreshed(child)]
