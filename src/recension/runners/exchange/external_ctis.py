"""External CTIs count elements: where would a shard count only its own?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recension.plan.fragments import Fragment
from recension.plan.node import Node, each_once
from recension.plan.nodes import Finalize, Source


def are_counted_alone(fragments: Iterable[Fragment], edges: Iterable[Source]) -> bool:
    """Would a shard count only its own elements for external CTIs that come over these edges?"""
    sources = set(edges)
    spread = [fragment for fragment in fragments if not fragment.is_single]
    steps = each_once([plan for fragment in spread for _, plan in fragment.outputs])
    return any(isinstance(step, Finalize) and not sources.isdisjoint(_below_passing(step)) for step in steps)


def _below_passing(node: Node) -> Iterator[Node]:
    """What external CTIs come from that reach a step."""
    for child in node.inputs:
        yield from _below_passing(child) if child.passes_external_ctis else [child]
