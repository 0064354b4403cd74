"""From what a query says to how it is done: the only place where a variant or algorithm is chosen.

Each logical node becomes one physical operator; equal nodes are the same object, so a stream that is used
twice becomes one vertex with two readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch

import pyarrow as pa

from recension.core.batch import Mask
from recension.core.errors import RecensionError
from recension.operators import lifetimes as physical
from recension.operators.alter_lifetime import AlterLifetime
from recension.operators.base import Operator
from recension.operators.clip import Clip
from recension.operators.deletes import Deletes
from recension.operators.distinct import Distinct
from recension.operators.join import Join
from recension.operators.join_columns import JoinedColumn, Side
from recension.operators.snapshot.aggregations import aggregation
from recension.operators.snapshot.operator import SnapshotAggregate
from recension.operators.span import Span
from recension.operators.union import Union
from recension.plan import lifetimes as logical
from recension.plan import nodes
from recension.plan.evaluation import Computed, Predicate, Projection
from recension.plan.node import Node, walk
from recension.plan.rewrites import optimise


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


def lower(queries: Mapping[str, Node]) -> PhysicalPlan:
    """The physical plan of several queries, what they share counted once."""
    optimised = {name: optimise(node) for name, node in queries.items()}
    vertices: list[Vertex] = []
    number: dict[int, int] = {}
    sources: dict[str, nodes.Source] = {}
    for root in optimised.values():
        for node in walk(root):
            if id(node) in number:
                continue
            inputs = tuple(number[id(i)] for i in node.inputs)
            if isinstance(node, nodes.Source):
                _add_source(sources, node)
                vertices.append(Vertex(node.name, node.schema, None))
            else:
                vertices.append(Vertex(node.label, node.schema, operator_of(node), inputs))
            number[id(node)] = len(vertices) - 1
    return PhysicalPlan(
        vertices,
        sources,
        {name: number[id(node)] for name, node in sources.items()},
        optimised,
        {name: number[id(node)] for name, node in optimised.items()},
    )


def _add_source(sources: dict[str, nodes.Source], node: nodes.Source) -> None:
    if sources.setdefault(node.name, node) is not node:
        raise RecensionError(f"two different sources are named {node.name!r}")
