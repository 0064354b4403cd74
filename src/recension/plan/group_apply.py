"""Group and apply: a query on each group by itself, as one query on all groups at once where that can be.

The query is written over a `Group`, which stands for any one group. It is then rewritten: the group's keys
travel as extra columns with the payload, under names that nothing else has, and every step that looks at
more than one event looks only at events with equal keys. No step is run once per group.

    s.group_by("k").apply(lambda g: g.join(g.agg(n=count())))

        join  on [k]                     the keys are part of every join between streams of the group,
          with [k]                       of every payload,
          aggregate n by [k]             and of every aggregate's key

Steps that depend on what a group has seen and when (how late an element is, how long one waits) have no such
form. They run group by group, in one `GroupApply` with all that lies between them.

Streams from outside the group are the same for every group. A step that would show their events in every
group, even in groups without events, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.each_group import GroupApply, Port
from recension.plan.expressions import column
from recension.plan.node import Node, Outputs, all_of, rebuild, walk
from recension.plan.properties import Properties
from recension.plan.source import Leaf
from recension.plan.span import Project


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

    @property
    def stands_for(self) -> Node | None:
        return self.input

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        return self.input.properties


def readers_of(group: Group, applied: Node) -> list[Node]:
    """The steps that read the group, inputs before their readers.

    Their events must come from the group: others would be there for groups without events too.
    """
    grouped: dict[Node, None] = {group: None}
    for node in walk(applied):
        if any(child in grouped for child in node.inputs):
            grouped[node] = None
            for child in node.visible_inputs:
                if child not in grouped:
                    raise SchemaError(
                        f"apply: {node.label} would show {child.label}, which is not part of the group, "
                        "in every group"
                    )
    if applied not in grouped:
        raise SchemaError(f"apply: the result, {applied.label}, does not come from the group")
    return [node for node in grouped if node is not group]


def run_by_group(readers: list[Node], applied: Node) -> list[Node]:
    """The steps that must run group by group: none if all are keyed, and none stands above a step that
    holds back CTIs, as `Cleanse` does: in a group they are not held back by other groups.

    Otherwise all steps whose answers depend on CTIs or on order, since a group has its own, and the steps
    between them. One of these steps is above all the others.
    """
    grouped = set(readers)
    core = {node for node in readers if not node.ignores_ctis}
    waits = [
        node
        for node in readers
        if node.holds_ctis_by_group and _with_readers(readers, {node}) & core != {node}
    ]
    if not waits and all(node.is_keyed(grouped) for node in readers):
        return []
    above, below = _with_readers(readers, core), _with_inputs(readers, core)
    chosen = [node for node in readers if node in above and node in below]
    read = {child for node in readers if node not in chosen for child in node.inputs}
    exits = [node for node in chosen if node in read or node is applied]
    return chosen if len(exits) == 1 else [node for node in readers if node in above]


def _with_readers(readers: list[Node], core: set[Node]) -> set[Node]:
    """The core and all that read it."""
    found = set(core)
    for node in readers:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def _with_inputs(readers: list[Node], core: set[Node]) -> set[Node]:
    """The core and all that it reads."""
    found = set(core)
    for node in reversed(readers):
        if node in found:
            found.update(node.inputs)
    return found


_numbers = count()
Keyed: TypeAlias = dict[Node, Node]
"""Steps of the query on one group, each with the step on all groups whose first columns are the keys."""


def group_apply(stream: Node, keys: Outputs, query: Callable[[Group], Node]) -> Node:
    """What the query gives for every group: the group's keys first, then the other columns."""
    group = Group(stream, next(_numbers))
    applied = query(group)
    readers = readers_of(group, applied)
    taken = {name for node in [group, *walk(applied)] for name in node.schema.names}
    hidden = tuple(_fresh_name(taken, name) for name, _ in keys)
    computed = tuple((name, key) for name, (_, key) in zip(hidden, keys, strict=True))
    keyed: Keyed = {group: Project(stream, (*computed, *all_of(stream.schema)), "group_by")}
    by_group = run_by_group(readers, applied)
    for node in readers:
        if by_group and node is by_group[-1]:
            keyed[node] = _each_group(keyed, by_group, hidden)
        elif node not in by_group:
            keyed[node] = _by_keys(node, hidden, keyed)
    own = [(name, column(key)) for (name, _), key in zip(keys, hidden, strict=True)]
    names = [name for name, _ in keys]
    rest = [(name, column(name)) for name in applied.schema.names if name not in names]
    return Project(keyed[applied], (*own, *rest), "apply")


def _by_keys(node: Node, hidden: tuple[str, ...], keyed: Keyed) -> Node:
    """The step on all groups at once: its first columns are the keys."""
    return node.with_group_keys(hidden, [keyed.get(child, child) for child in node.inputs])


def _each_group(keyed: Keyed, steps: list[Node], hidden: tuple[str, ...]) -> Node:
    """These steps for each group by itself, over whatever they read."""
    inside = set(steps)
    read = dict.fromkeys(child for node in steps for child in node.inputs if child not in inside)
    split = [node for node in read if node in keyed]
    streams = [*split, *(node for node in read if node not in keyed)]
    new: dict[Node, Node] = {
        node: Port(number, node.schema, node.properties) for number, node in enumerate(streams)
    }
    for node in steps:
        new[node] = node.with_inputs([new[child] for child in node.inputs])
    over = tuple(keyed.get(node, node) for node in streams)
    return GroupApply(over, hidden, len(split), new[steps[-1]])


def apply_by_keys(node: GroupApply) -> Node:
    """The same history from its steps on all groups at once, by their keys."""

    def open_port(step: Node) -> Node:
        is_shared = isinstance(step, Port) and step.number >= node.split
        return node.streams[step.number] if is_shared else step  # type: ignore[attr-defined]

    (plan,) = rebuild([node.plan], open_port)
    ports = [step for step in walk(plan) if isinstance(step, Port)]
    keyed: Keyed = {port: node.streams[port.number] for port in ports}
    for step in walk(plan):
        if any(child in keyed for child in step.inputs):
            keyed[step] = _by_keys(step, node.keys, keyed)
    return keyed[plan]


def _fresh_name(taken: set[str], name: str) -> str:
    """A name for a group's key that no column has."""
    hidden = f"group {name}"
    while hidden in taken:
        hidden += "'"
    taken.add(hidden)
    return hidden
