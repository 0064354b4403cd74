"""Group and apply: a query on each group by itself, as one query on all groups at once.

The query is written over a `Group`, which stands for any one group. It is then rewritten: the group's keys
travel as extra columns beside the payload, under names that nothing else has, and every step that looks at
more than one event looks only at events with equal keys. No step is run once per group.

    s.group_by("k").apply(lambda g: g.join(g.agg(n=count())))

        join  on [k]                     the keys are part of every join between streams of the group,
          with [k]                       of every payload,
          aggregate n by [k]             and of every aggregate's key

Streams from outside the group are the same for every group. A step that would show them once per group,
even for groups without events, cannot be rewritten and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.beside import Beside
from recension.plan.expressions import column
from recension.plan.join import Join
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.node import Node, walk
from recension.plan.properties import Properties
from recension.plan.span import Distinct, Map, Outputs, Project, Union, Where, projected_schema


@dataclass(frozen=True, eq=False)
class Group(Node):
    """Any one group of a stream, while a query over it is written."""

    input: Node

    @property
    def label(self) -> str:
        return f"a group of {self.input.label}"

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        return self.input.properties


def group_apply(stream: Node, keys: Outputs, query: Callable[[Group], Node]) -> Node:
    """What the query gives for every group: the group's keys first, then the other columns."""
    group = Group(stream)
    applied = query(group)
    threading = _Threading(group, keys, applied)
    if not threading.is_grouped(applied):
        raise SchemaError(f"apply: the result, {applied.label}, does not come from the group")
    own = [(name, column(hidden)) for (name, _), hidden in zip(keys, threading.hidden, strict=True)]
    names = [name for name, _ in keys]
    rest = [(name, column(name)) for name in applied.schema.names if name not in names]
    return Project(threading.of(applied), (*own, *rest), "apply")


class _Threading:
    """Rewrites the nodes above a group so that their first columns are the group's keys."""

    def __init__(self, group: Group, keys: Outputs, applied: Node) -> None:
        self._group, self._keys = group, keys
        nodes = [group, *walk(applied)]
        taken = {name for node in nodes for name in node.schema.names}
        self.hidden = tuple(_unlike(taken, name) for name, _ in keys)
        self._outputs: Outputs = tuple((name, column(name)) for name in self.hidden)
        self._grouped: set[Node] = {group}
        for node in walk(applied):
            if any(child in self._grouped for child in node.inputs):
                self._grouped.add(node)
        self._done: dict[Node, Node] = {group: self._start()}

    def _start(self) -> Node:
        stream = self._group.input
        computed = tuple((hidden, key) for hidden, (_, key) in zip(self.hidden, self._keys, strict=True))
        return Project(stream, (*computed, *_all(stream.schema)), "group_by")

    def is_grouped(self, node: Node) -> bool:
        """Does the node read the group?"""
        return node in self._grouped

    def of(self, node: Node) -> Node:
        """The node for all groups at once."""
        for below in walk(node):
            if below in self._grouped and below not in self._done:
                self._done[below] = self._threaded(below)
        return self._done[node]

    def _inputs(self, node: Node) -> list[Node]:
        """The node's inputs, rewritten where they read the group."""
        return [self._done.get(child, child) for child in node.inputs]

    def _threaded(self, node: Node) -> Node:
        match node:
            case Where() | Distinct() | AlterLifetime():
                return node.with_inputs(self._inputs(node))
            case Project():
                return replace(node, input=self._done[node.input], outputs=(*self._outputs, *node.outputs))
            case Map():
                return self._map(node)
            case SnapshotAggregate():
                return replace(node, input=self._done[node.input], keys=(*self._outputs, *node.keys))
            case Union():
                self._require(node, node.inputs)
                return node.with_inputs(self._inputs(node))
            case Clip():
                self._require(node, [node.input])
                return self._clip(node)
            case Join():
                return self._join(node)
        raise SchemaError(f"apply: {node.label} cannot be done for every group by itself")

    def _require(self, node: Node, inputs: tuple[Node, ...] | list[Node]) -> None:
        for child in inputs:
            if child not in self._grouped:
                raise SchemaError(
                    f"apply: {node.label} would show {child.label}, which is not of the group, in every group"
                )

    def _map(self, node: Map) -> Node:
        keys = projected_schema(self._outputs, self._done[node.input].schema, "apply")
        fn = Beside(node.fn, self.hidden)
        return replace(node, input=self._done[node.input], fn=fn, columns=pa.schema([*keys, *node.columns]))

    def _clip(self, node: Clip) -> Node:
        clipped, by = self._inputs(node)
        if not self.is_grouped(node.by):
            return node.with_inputs([clipped, by])
        return Clip(clipped, by, (*self.hidden, *node.on), (*self.hidden, *node.null_matches))

    def _join(self, node: Join) -> Node:
        left, right = self._inputs(node)
        if not self.is_grouped(node.left):
            if node.how != "inner":
                self._require(node, [node.left])
            return Project(node.with_inputs([left, right]), (*self._outputs, *_all(node.schema)), "apply")
        if not self.is_grouped(node.right):
            return node.with_inputs([left, right])
        keys, null_matches = (*self.hidden, *node.on), (*self.hidden, *node.null_matches)
        return replace(node, left=left, right=right, on=keys, null_matches=null_matches)


def _all(schema: pa.Schema) -> Outputs:
    return tuple((name, column(name)) for name in schema.names)


def _unlike(taken: set[str], name: str) -> str:
    """A name for a group's key that no column has."""
    hidden = f"group {name}"
    while hidden in taken:
        hidden += "'"
    taken.add(hidden)
    return hidden
