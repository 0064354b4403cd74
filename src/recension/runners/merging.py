"""Inputs that join and leave a merge while a session runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recension.core.errors import RecensionError
from recension.lowering import PhysicalPlan, extend
from recension.operators.base import Output
from recension.operators.lmerge.merge import LogicalMerge, State
from recension.plan import nodes
from recension.plan.merge import describe_sources
from recension.plan.node import Node, walk
from recension.plan.schemas import require_same_columns


class MergePorts:
    """The outermost merge of one query, and the streams its ports read."""

    def __init__(self, plan: PhysicalPlan, query: str, written: Node) -> None:
        self._plan = plan
        self.vertex = self._outermost(query)
        merge = _merge_in(written)
        self._streams = [] if merge.is_open else list(merge.streams)

    def _outermost(self, query: str) -> int:
        level = [self._plan.query_vertices[query]]
        while level:
            for number in level:
                if isinstance(self._plan.vertices[number].operator, LogicalMerge):
                    return number
            level = [i for number in level for i in self._plan.vertices[number].inputs if i >= 0]
        raise RecensionError(f"{query}: there is no merge that a stream could join or leave")

    @property
    def merge(self) -> LogicalMerge:
        """The operator."""
        operator = self._plan.vertices[self.vertex].operator
        assert isinstance(operator, LogicalMerge)
        return operator

    def attach(self, stream: Node, since: int) -> Output:
        """One more input, complete for all that ends at ``since`` or later."""
        require_same_columns(self.merge.schema, stream.schema, "attach")
        if self.merge.schema.names != stream.schema.names:
            raise RecensionError(f"attach: put the columns in order first: {self.merge.schema.names}")
        if stream in [self._streams[port] for port in self.merge.inputs.live_ports()]:
            raise RecensionError(f"attach: {stream.label} is an input of the merge already: detach it first")
        vertex = self._plan.vertices[self.vertex]
        read = (*vertex.inputs, extend(self._plan, stream))
        self._plan.vertices[self.vertex] = replace(vertex, inputs=read)
        self._streams.append(stream)
        self.merge.contradictions.names[len(self.merge.inputs)] = describe_sources(stream)
        return self.merge.attach(since)

    def detach(self, stream: Node | str) -> Output:
        """An input leaves; parts of the plan that nothing else needs stop."""
        port = self._port(stream)
        vertex = self._plan.vertices[self.vertex]
        read = (*vertex.inputs[:port], -1, *vertex.inputs[port + 1 :])
        self._plan.vertices[self.vertex] = replace(vertex, inputs=read)
        return self.merge.detach(port)

    def state_of(self, stream: Node | str) -> State:
        """Whether a stream that has not left is joining or has joined."""
        return self.merge.inputs[self._port(stream)].state

    def forget(self, running: Sequence[int]) -> None:
        """What has stopped starts afresh, should it ever be attached again."""
        kept = set(running)
        for node, number in list(self._plan.numbers.items()):
            if number not in kept:
                del self._plan.numbers[node]
                if isinstance(node, nodes.Source):
                    del self._plan.sources[node.name], self._plan.source_vertices[node.name]

    def _port(self, stream: Node | str) -> int:
        """The last port that reads this stream, or only the source of that name, and has not been left."""
        live = self.merge.inputs.live_ports()[::-1]
        for port in live:
            mine = self._streams[port]
            if mine is stream or (isinstance(stream, str) and _sources(mine) == {stream}):
                return port
        # A stream whose columns stood in another order was turned when the merge was made.
        for port in live:
            if isinstance(self._streams[port], nodes.Project) and self._streams[port].inputs[0] is stream:
                return port
        named = repr(stream) if isinstance(stream, str) else stream.label
        raise RecensionError(f"detach: {named} is not an input of the merge now")


def _merge_in(query: Node) -> nodes.Merge:
    level: list[Node] = [query]
    while level:
        for node in level:
            if isinstance(node, nodes.Merge):
                return node
        level = [child for node in level for child in node.inputs]
    raise RecensionError("there is no merge that a stream could join or leave")


def _sources(stream: Node) -> set[str]:
    return {node.name for node in walk(stream) if isinstance(node, nodes.Source)}
