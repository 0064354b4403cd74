"""A group, while a query over it is written, and what a step needs to be done for every group by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.wall_clock import WallClock
from recension.plan.coalesce import Coalesce
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime
from recension.plan.each_group import GroupApply
from recension.plan.edges import Edges
from recension.plan.join import Join
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.merge import Merge
from recension.plan.node import Node, walk
from recension.plan.properties import Properties
from recension.plan.span import Distinct, Map, Project, Span, Union, Where

PLAIN = (Where, Project, Span, Map, Union, Distinct, AlterLifetime, Join, Clip, Edges, Coalesce)
"""Steps whose answers are the same for a group whether others are there or not, and whenever CTIs come."""


@dataclass(frozen=True, eq=False)
class Group(Node):
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
            for child in _givers(node):
                if child not in grouped:
                    raise SchemaError(
                        f"apply: {node.label} would show {child.label}, which is not of the group, in every "
                        "group"
                    )
    if applied not in grouped:
        raise SchemaError(f"apply: the result, {applied.label}, does not come from the group")
    return [node for node in grouped if node is not group]


def _givers(node: Node) -> tuple[Node, ...]:
    """The inputs whose events can be seen in the output even if the others have none."""
    match node:
        case Join(how="inner"):
            return ()
        case Join() | Clip() | ImportTime():
            return node.inputs[:1]
        case GroupApply():
            return node.inputs[: node.split]
    return node.inputs


def is_keyed(node: Node, grouped: set[Node]) -> bool:
    """Can the step be done for all groups at once, by keys that travel beside the payload?

    Not where it counts elements, measures time or decides what is late in each group by itself.
    """
    match node:
        case AdvanceTime() | ImportTime() | Finalize():
            return False
        case Align(block=block):
            return not isinstance(block, WallClock)
        case Merge(case=case):  # the user speaks of each group's order, not of that of all
            return case not in ("R0", "R1", "R2")
        case GroupApply():
            return grouped.isdisjoint(node.inputs[node.split :])
    return True


def run_by_group(readers: list[Node], applied: Node) -> list[Node]:
    """The steps that must run group by group: none if all are keyed, and none stands above a `Cleanse`, whose
    CTIs in a group are not held back by other groups.

    Else also what gives its answers by the CTIs and the order it sees, which in a group are the group's own,
    and what lies between such steps. There is one step among them that the others end in.
    """
    grouped = set(readers)
    core = {node for node in readers if not isinstance(node, PLAIN)}
    waits = [
        node for node in readers if isinstance(node, Cleanse) and _closed(readers, {node}) & core != {node}
    ]
    if not waits and all(is_keyed(node, grouped) for node in readers):
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
