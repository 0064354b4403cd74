"""Levels of consistency: where a query stands between waiting, correcting itself and forgetting.

    block      how long changes wait for their order    Align
    remember   how long the past may still change       Finalize

Both go below the first stateful step of every input (CEDR operators, §3): what needs no state needs no
order either. Steps with state have an output order of their own (a long snapshot of one group after later
ones of another, ruling B15; two inputs as they come). So if every input is blocked until it is ordered, the
output is too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from recension.core.ticks import FOREVER
from recension.core.wall_clock import Length
from recension.plan.consistency import Align, Finalize, in_ticks
from recension.plan.node import Node, Speculate, walk
from recension.plan.source import Leaf


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
"""Shows everything at once and forgets at once: late elements are dropped."""


def at_level(root: Node, level: Level) -> Node:
    """The query at a level of consistency. Inputs that have a part of a level already keep it."""

    @cache
    def rewrite(node: Node, missing: _Missing) -> Node:
        return _rewrite_node(node, missing, rewrite)

    return _align_answers(rewrite(root, _Missing(level.block, level.remember, level.speculate)), level)


@dataclass(frozen=True)
class _Missing:
    """The parts of a level that are still to be put in; ``None`` for what was given already."""

    block: Length | None
    remember: Length | None
    speculate: Speculate | None


def _rewrite_node(node: Node, missing: _Missing, rewrite: Callable[[Node, _Missing], Node]) -> Node:
    """Goes down from a query to its inputs, and to each of them once."""
    if steps := _steps_of_input(node):
        missing = _still_missing(steps, missing)
        return _align(_finalize(node, missing), missing)
    below = _still_missing([node, *(step for plan in node.own_plans for step in walk(plan))], missing)
    if "remember" in node.level_parts:
        return _align(node, below)
    if "block" in node.level_parts:
        below = replace(below, speculate=None)
    read = [rewrite(child, below) for child in node.event_inputs]
    placed = node.with_inputs([*read, *node.inputs[len(read) :]])
    return placed if missing.speculate is None else placed.with_speculate(missing.speculate)


def _steps_of_input(node: Node) -> list[Node]:
    """A source or a group and the steps over it, if all of these are before state; otherwise nothing."""
    steps = [node]
    while node.is_before_state:
        node = node.inputs[0]
        steps.append(node)
    return steps if isinstance(node, Leaf) else []


def _still_missing(steps: list[Node], missing: _Missing) -> _Missing:
    """What is still missing above these steps."""
    given = {part for step in steps for part in step.level_parts}
    return replace(missing, **dict.fromkeys(given))


def _finalize(node: Node, missing: _Missing) -> Node:
    """Finalize goes onto the source itself, where external CTIs count all elements, or onto the last step
    that advances time."""
    if missing.remember is None or missing.remember == FOREVER:
        return node
    if isinstance(node, Leaf) or node.advances_time:
        return Finalize(node, missing.remember, by_level=True)
    return node.with_inputs([_finalize(child, missing) for child in node.inputs])


def _align(node: Node, missing: _Missing) -> Node:
    return Align(node, missing.block) if missing.block else node


def _align_answers(root: Node, level: Level) -> Node:
    return Align(root, FOREVER) if level.block == FOREVER and not root.properties.is_ordered else root
