"""The physical plan of queries: a graph of operators.

Each logical node becomes one physical operator; equal nodes are the same object, so a stream that is used
twice becomes one vertex with two readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.lowering.operators import operator_of
from recension.operators.base import Operator
from recension.plan import nodes
from recension.plan.node import Node, walk
from recension.plan.rewrites import optimize


@dataclass(frozen=True)
class Vertex:
    """An operator and the vertices it reads, in the order of its ports; a source reads none."""

    name: str
    schema: pa.Schema
    operator: Operator | None
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class PhysicalPlan:
    """Vertices with inputs before their readers, and where sources and queries are among them."""

    vertices: list[Vertex]
    sources: dict[str, nodes.Source]
    source_vertices: dict[str, int]
    queries: dict[str, Node]
    query_vertices: dict[str, int]

    @property
    def unchecked(self) -> set[str]:
        """Sources in which a retraction may name an unknown event: coping with that is Finalize's job."""
        return {
            name
            for name, number in self.source_vertices.items()
            if self.sources[name].external_ctis or self._is_taken(number)
        }

    @property
    def without_external(self) -> set[str]:
        """Sources whose external CTIs, if any come, would meet a step that cannot make sense of them."""
        return {
            name
            for name, number in self.source_vertices.items()
            if not all(_takes(reader) or self._passes(at) for at, reader in self._readers(number))
        }

    def _readers(self, number: int) -> list[tuple[int, Vertex]]:
        return [(at, vertex) for at, vertex in enumerate(self.vertices) if number in vertex.inputs]

    def _is_taken(self, number: int) -> bool:
        """Is this read by Finalize alone?"""
        readers = self._readers(number)
        is_answer = number in self.query_vertices.values()
        return not is_answer and bool(readers) and all(_takes(reader) for _, reader in readers)

    def _passes(self, number: int) -> bool:
        """Do external CTIs get from here to the answers without meeting anything but steps they pass?"""
        operator = self.vertices[number].operator
        is_passing = operator is not None and operator.external_ctis == "pass"
        return is_passing and all(self._passes(at) for at, _ in self._readers(number))


def lower(queries: Mapping[str, Node]) -> PhysicalPlan:
    """The physical plan of several queries, what they share counted once."""
    roots = dict(zip(queries, optimize(list(queries.values())), strict=True))
    vertices: list[Vertex] = []
    number: dict[int, int] = {}
    sources: dict[str, nodes.Source] = {}
    for root in roots.values():
        for node in walk(root):
            if id(node) not in number:
                number[id(node)] = len(vertices)
                vertices.append(_vertex(node, tuple(number[id(i)] for i in node.inputs)))
                if isinstance(node, nodes.Source):
                    _add_source(sources, node)
    return PhysicalPlan(
        vertices,
        sources,
        {name: number[id(node)] for name, node in sources.items()},
        roots,
        {name: number[id(node)] for name, node in roots.items()},
    )


def _takes(vertex: Vertex) -> bool:
    return vertex.operator is not None and vertex.operator.external_ctis == "take"


def _vertex(node: Node, inputs: tuple[int, ...]) -> Vertex:
    if isinstance(node, nodes.Source):
        return Vertex(node.name, node.schema, None)
    return Vertex(node.label, node.schema, operator_of(node), inputs)


def _add_source(sources: dict[str, nodes.Source], node: nodes.Source) -> None:
    if sources.setdefault(node.name, node) is not node:
        raise RecensionError(f"two different sources are named {node.name!r}")
