"""Levels of consistency: where a query stands between waiting, correcting itself and forgetting.

    block      how long changes wait for their order    Align
    remember   how long the past may still change       Finalize

Both go below the first stateful step of every input (CEDR operators, §3): what needs no state needs no
order either. Steps with state give their answers in an order of their own (a long snapshot of one group
after later ones of another, ruling B15; two inputs as they come), so that where everything waits for its
order, the answer does too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recension.core.ticks import FOREVER
from recension.core.wall_clock import Length
from recension.plan.aggregate import SnapshotAggregate, Speculate
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime, in_ticks
from recension.plan.node import Node
from recension.plan.source import Source
from recension.plan.span import Map, Project, Span, Where


@dataclass(frozen=True)
class Level:
    """A point of the triangle; ``speculate``, if given, is the variant of all aggregates."""

    block: Length
    remember: Length
    speculate: Speculate | None = None

    def __str__(self) -> str:
        return f"block {in_ticks(self.block)}, remember {in_ticks(self.remember)}"


STRONG = Level(FOREVER, FOREVER)
"""Waits for every CTI and forgets nothing: the output is ordered."""
MIDDLE = Level(0, FOREVER, "eager")
"""Shows everything at once and corrects it whenever it learns better."""
WEAK = Level(0, 0)
"""Shows everything at once and forgets at once: what comes late is lost."""


def at_level(root: Node, level: Level) -> Node:
    """The query at a level of consistency. Inputs that were given one already keep it."""
    placed: dict[Node, Node] = {}

    def place(node: Node) -> Node:
        if node not in placed:
            if isinstance(node, Align | Finalize | Cleanse | AdvanceTime | ImportTime):
                placed[node] = node
            elif _is_stateless(node):
                placed[node] = _aligned(_finalized(node, level), level)
            else:
                placed[node] = _speculating(node.with_inputs([place(child) for child in node.inputs]), level)
        return placed[node]

    return _in_order(place(root), level)


def _is_stateless(node: Node) -> bool:
    """Is this a source under steps that look at one event at a time?"""
    while isinstance(node, Where | Project | Span | Map):
        node = node.input
    return isinstance(node, Source)


def _finalized(node: Node, level: Level) -> Node:
    """Finalize goes onto the source itself: there external CTIs count all elements."""
    if level.remember == FOREVER:
        return node
    if isinstance(node, Source):
        return Finalize(node, level.remember)
    return node.with_inputs([_finalized(child, level) for child in node.inputs])


def _aligned(node: Node, level: Level) -> Node:
    return Align(node, level.block) if level.block else node


def _in_order(root: Node, level: Level) -> Node:
    return Align(root, FOREVER) if level.block == FOREVER and not root.properties.is_ordered else root


def _speculating(node: Node, level: Level) -> Node:
    if isinstance(node, SnapshotAggregate) and level.speculate is not None:
        return replace(node, speculate=level.speculate)
    return node
