"""Finalize goes onto every source that carries external CTIs, unless nothing above it has state.

An external CTI counts the elements of its source. Steps that look at one event at a time let it pass
unchanged, to whoever knows the source; but a step with state needs chains in order and CTIs to forget by
(CEDR operators, §3), and above a filter the counts would not come out. So Finalize stands on the source
itself, whether the query names it further up or not at all. Altered lifetimes change the times that are
counted, which is why they need it too (§4.2: "no algorithm for external CTI").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, TypeAlias

from recension.core.ticks import FOREVER
from recension.plan.consistency import Finalize
from recension.plan.node import Node, walk
from recension.plan.source import Source

Above: TypeAlias = Literal["nothing", "state"] | Finalize


def finalize_sources(roots: Sequence[Node]) -> list[Node]:
    """The same queries with external CTIs taken in where they count right."""
    if not any(isinstance(node, Source) and node.external_ctis for root in roots for node in walk(root)):
        return list(roots)

    @cache
    def rewrite(node: Node, above: Above) -> Node:
        return _rewrite_node(node, above, rewrite)

    return [rewrite(root, "nothing") for root in roots]


def _rewrite_node(node: Node, above: Above, rewrite: Callable[[Node, Above], Node]) -> Node:
    """Goes down from a query, to each step once. ``above`` is what lies there: nothing with state, a step
    with state, or a Finalize of the query, which moves down."""
    if isinstance(node, Finalize) and _has_external_ctis(node.input):
        return rewrite(node.input, node)
    if node.passes_external_ctis:
        return node.with_inputs([rewrite(child, above) for child in node.inputs])
    if not isinstance(node, Source):
        node = node.with_inputs([rewrite(child, "state") for child in node.inputs])
    since = node.since if isinstance(node, Source) else 0
    if isinstance(above, Finalize):
        return replace(above, input=node, since=above.since or since)
    is_due = above == "state" and isinstance(node, Source) and node.external_ctis
    return Finalize(node, FOREVER, since) if is_due else node


def _has_external_ctis(node: Node) -> bool:
    """Do external CTIs come out here?"""
    if isinstance(node, Source):
        return node.external_ctis
    return node.passes_external_ctis and any(_has_external_ctis(child) for child in node.inputs)
