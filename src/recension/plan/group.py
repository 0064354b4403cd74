"""A group, while a query over it is written, and what a step needs to be done for every group by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.consistency import Cleanse
from recension.plan.node import Node, walk
from recension.plan.properties import Properties
from recension.plan.source import Leaf


@dataclass(frozen=True, eq=False)
class Group(Leaf):
    """Any one group of a stream, while a query over it is written.

    ``number`` tells it from the groups of other queries, whose keys may be others.
    """

    input: Node
    number: int

    @property
    def label(self) -> str:
        return f"a group of {self.input.label}"

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        return self.input.properties


def readers_of(group: Group, applied: Node) -> list[Node]:
    """The steps that read the group, inputs before their readers; none of them may make up events.

    What does not come from the group would be there for groups that have no events as well.
    """
    grouped: dict[Node, None] = {group: None}
    for node in walk(applied):
        if any(child in grouped for child in node.inputs):
            grouped[node] = None
            for child in node.givers:
                if child not in grouped:
                    raise SchemaError(
                        f"apply: {node.label} would show {child.label}, which is not of the group, in every "
                        "group"
                    )
    if applied not in grouped:
        raise SchemaError(f"apply: the result, {applied.label}, does not come from the group")
    return [node for node in grouped if node is not group]


def run_by_group(readers: list[Node], applied: Node) -> list[Node]:
    """The steps that must run group by group: none if all are keyed, and none stands above a `Cleanse`, whose
    CTIs in a group are not held back by other groups.

    Else also what gives its answers by the CTIs and the order it sees, which in a group are the group's own,
    and what lies between such steps. There is one step among them that the others end in.
    """
    grouped = set(readers)
    core = {node for node in readers if not node.ignores_ctis}
    waits = [
        node for node in readers if isinstance(node, Cleanse) and _closed(readers, {node}) & core != {node}
    ]
    if not waits and all(node.is_keyed(grouped) for node in readers):
        return []
    above, below = _closed(readers, core), _closed_down(readers, core)
    chosen = [node for node in readers if node in above and node in below]
    read = {child for node in readers if node not in chosen for child in node.inputs}
    exits = [node for node in chosen if node in read or node is applied]
    return chosen if len(exits) == 1 else [node for node in readers if node in above]


def _closed(readers: list[Node], core: set[Node]) -> set[Node]:
    """The core and all that read it."""
    found = set(core)
    for node in readers:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def _closed_down(readers: list[Node], core: set[Node]) -> set[Node]:
    """The core and all that it reads."""
    found = set(core)
    for node in reversed(readers):
        if node in found:
            found.update(node.inputs)
    return found
