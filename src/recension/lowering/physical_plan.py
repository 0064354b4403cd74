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
from recension.operators.finalize import Finalize
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
        """Sources read by finalize alone: coping with retractions of unknown events is its job."""
        readers: dict[int, list[Vertex]] = {}
        for vertex in self.vertices:
            for number in vertex.inputs:
                readers.setdefault(number, []).append(vertex)
        return {
            name
            for name, number in self.source_vertices.items()
            if number not in self.query_vertices.values()
            and all(isinstance(reader.operator, Finalize) for reader in readers.get(number, []))
        }


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


def _vertex(node: Node, inputs: tuple[int, ...]) -> Vertex:
    if isinstance(node, nodes.Source):
        return Vertex(node.name, node.schema, None)
    return Vertex(node.label, node.schema, operator_of(node), inputs)


def _add_source(sources: dict[str, nodes.Source], node: nodes.Source) -> None:
    if sources.setdefault(node.name, node) is not node:
        raise RecensionError(f"two different sources are named {node.name!r}")
