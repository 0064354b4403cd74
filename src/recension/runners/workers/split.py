"""Can the queries of a session be split among shards, and how?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from recension.lowering import PhysicalPlan
from recension.operators.orphan_check import OrphanCheck
from recension.plan.fragments import Edge, Fragment, cut, describe_fragments, reasons_for_one_shard
from recension.plan.node import Node, walk
from recension.plan.nodes import Merge, Source
from recension.plan.tables import find_followed
from recension.runners.exchange.external_ctis import are_counted_alone


@dataclass(frozen=True)
class Split:
    """Queries as fragments over a number of shards."""

    shards: int
    roots: tuple[Node, ...]
    """The queries; those that are sources themselves need no shard."""
    fragments: tuple[Fragment, ...]

    @cached_property
    def edges(self) -> list[Edge]:
        """All edges, in the order of their numbers."""
        return [edge for fragment in self.fragments for edge in fragment.edges]

    @property
    def levels(self) -> int:
        """How many levels of fragments follow each other."""
        return self.fragments[-1].level

    def edges_of(self, source: str) -> dict[int, Edge]:
        """The edges that read a source, by their numbers."""
        return {
            number: edge
            for number, edge in enumerate(self.edges)
            if isinstance(edge.origin, Source) and edge.origin.name == source
        }

    def fragment_of(self, edge: Edge) -> Fragment:
        """The fragment that reads an edge."""
        return next(fragment for fragment in self.fragments if edge in fragment.edges)

    def counts_external_ctis_alone(self, source: str) -> bool:
        """Would a shard count only its own elements for external CTIs of this source?"""
        return are_counted_alone(self.fragments, [edge.source for edge in self.edges_of(source).values()])

    def __str__(self) -> str:
        return describe_fragments(self.fragments)


def split_plan(plan: PhysicalPlan, shards: int) -> Split | str:
    """How to split the queries of a plan; or why that cannot be done."""
    if (reason := _reason_against(plan)) is not None:
        return reason
    roots = tuple(dict.fromkeys(node for node in plan.queries.values() if not isinstance(node, Source)))
    if not roots:
        return "there is nothing to compute"
    fragments = tuple(cut(roots, shards))
    if all(fragment.is_single for fragment in fragments):
        return next(reasons_for_one_shard(fragments), "no step has a key")
    return Split(shards, roots, fragments)


def _reason_against(plan: PhysicalPlan) -> str | None:
    """What in a plan needs one process, whatever its keys are."""
    operators = [vertex.operator for vertex in plan.vertices]
    if any(operator is not None and operator.is_clocked for operator in operators):
        return "a step uses the wall clock"
    if plan.paced:
        return "a step needs the partitions of its source"
    if followed := find_followed(plan.queries.values()):
        return f"table {next(iter(followed))!r} is read again while the query runs"
    if any(isinstance(operator, OrphanCheck) for operator in operators):
        return "some steps read a source directly, and others through finalize or merge"
    steps = (node for query in plan.queries.values() for node in walk(query))
    if any(isinstance(node, Merge) and node.is_open for node in steps):
        return "streams join its merge while it runs"
    return None
