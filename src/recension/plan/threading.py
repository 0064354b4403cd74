"""A query on each group as one query on all groups: the keys travel beside the payload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.aggregate import SnapshotAggregate
from recension.plan.beside import Beside
from recension.plan.coalesce import Coalesce
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime
from recension.plan.each_group import GroupApply, Port
from recension.plan.edges import Edges
from recension.plan.expressions import column
from recension.plan.extent_set import CoalesceMany
from recension.plan.extents import CoalesceExtent, Rows
from recension.plan.join import Join
from recension.plan.lifetime import AlterLifetime, Clip
from recension.plan.merge import Merge
from recension.plan.module_window import ModuleWindow
from recension.plan.node import Node
from recension.plan.span import Distinct, Map, Outputs, Project, Union, Where, projected_schema


class Threading:
    """Rewrites the nodes above a group so that their first columns are the group's keys, ``hidden``.

    ``done`` has the nodes that are so already, each with what it stands for in the query on one group.
    """

    def __init__(self, hidden: tuple[str, ...], done: Mapping[Node, Node]) -> None:
        self._hidden = hidden
        self._outputs: Outputs = tuple((name, column(name)) for name in hidden)
        self._done = dict(done)

    def of(self, readers: Iterable[Node]) -> None:
        """Rewrite these nodes, inputs before their readers."""
        for node in readers:
            self._done[node] = self._threaded(node)

    def __getitem__(self, node: Node) -> Node:
        """The node for all groups at once."""
        return self._done[node]

    def get(self, node: Node, otherwise: Node) -> Node:
        """The node for all groups at once, if it reads the group."""
        return self._done.get(node, otherwise)

    def __contains__(self, node: object) -> bool:
        """Does the node read the group, and is it rewritten?"""
        return node in self._done

    def put(self, node: Node, keyed: Node) -> None:
        """Someone else has rewritten a node."""
        self._done[node] = keyed

    def _inputs(self, node: Node) -> list[Node]:
        """The node's inputs, rewritten where they read the group."""
        return [self._done.get(child, child) for child in node.inputs]

    def _threaded(self, node: Node) -> Node:
        match node:
            case Where() | Distinct() | AlterLifetime() | Union() | Merge():
                return node.with_inputs(self._inputs(node))
            case Align() | Cleanse():
                return replace(node, input=self._done[node.input], by=(*self._hidden, *node.by))
            case CoalesceExtent(window=Rows()) | CoalesceMany():
                return self._each_group(node)
            case Edges() | Coalesce() | CoalesceExtent():
                return replace(node, input=self._done[node.input], group_by=(*self._hidden, *node.group_by))
            case Finalize() | AdvanceTime() | ImportTime():
                return node.with_inputs(self._inputs(node))
            case Project():
                return replace(node, input=self._done[node.input], outputs=(*self._outputs, *node.outputs))
            case Map():
                return self._map(node)
            case SnapshotAggregate() | ModuleWindow():
                return replace(node, input=self._done[node.input], keys=(*self._outputs, *node.keys))
            case Clip():
                return self._clip(node)
            case Join():
                return self._join(node)
            case GroupApply():
                return replace(node.with_inputs(self._inputs(node)), keys=(*self._hidden, *node.keys))
        raise SchemaError(f"apply: {node.label} cannot be done for every group by itself")

    def _each_group(self, node: CoalesceExtent | CoalesceMany) -> Node:
        """It counts the readings of a group, whatever the others have; or shares extents among queries."""
        port = Port(0, node.input.schema, node.input.properties)
        return GroupApply((self._done[node.input],), self._hidden, 1, node.with_inputs([port]))

    def _map(self, node: Map) -> Node:
        keys = projected_schema(self._outputs, self._done[node.input].schema, "apply")
        fn = Beside(node.fn, self._hidden)
        return replace(node, input=self._done[node.input], fn=fn, columns=pa.schema([*keys, *node.columns]))

    def _clip(self, node: Clip) -> Node:
        clipped, by = self._inputs(node)
        if node.by not in self:
            return node.with_inputs([clipped, by])
        return Clip(clipped, by, (*self._hidden, *node.on), (*self._hidden, *node.null_matches))

    def _join(self, node: Join) -> Node:
        left, right = self._inputs(node)
        if node.left not in self:
            return Project(node.with_inputs([left, right]), (*self._outputs, *all_of(node.schema)), "apply")
        if node.right not in self:
            return node.with_inputs([left, right])
        keys, null_matches = (*self._hidden, *node.on), (*self._hidden, *node.null_matches)
        return replace(node, left=left, right=right, on=keys, null_matches=null_matches)


def all_of(schema: pa.Schema) -> Outputs:
    """All columns as they are."""
    return tuple((name, column(name)) for name in schema.names)
