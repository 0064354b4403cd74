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
from recension.plan.consistency import AdvanceTime, Align, Cleanse, Finalize, ImportTime, in_ticks
from recension.plan.each_group import GroupApply
from recension.plan.group_apply import Group
from recension.plan.node import Node, Speculate
from recension.plan.source import Source


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
    """The query at a level of consistency. Inputs keep those parts of one that they were given already."""
    return _in_order(_Placing().of(root, _Missing(level.block, level.remember, level.speculate)), level)


@dataclass(frozen=True)
class _Missing:
    """The parts of a level that are still to be put in; ``None`` for what was given already."""

    block: Length | None
    remember: Length | None
    speculate: Speculate | None


class _Placing:
    """Goes down from a query to its inputs, and to each of them once."""

    def __init__(self) -> None:
        self._placed: dict[tuple[Node, _Missing], Node] = {}

    def of(self, node: Node, missing: _Missing) -> Node:
        if (node, missing) not in self._placed:
            self._placed[node, missing] = self._new(node, missing)
        return self._placed[node, missing]

    def _new(self, node: Node, missing: _Missing) -> Node:
        if steps := _steps_of_input(node):
            missing = _not_given(steps, missing)
            return _aligned(_finalized(node, missing), missing)
        match node:
            case Finalize():
                return _aligned(node, _not_given([node], missing))
            case Align() | Cleanse():
                below = replace(_not_given([node], missing), speculate=None)
                return replace(node, input=self.of(node.input, below))
            case ImportTime():  # only the CTIs of its clock are read
                return replace(node, input=self.of(node.input, missing))
            case GroupApply():
                below = _not_given(node.steps, missing)
                inputs = [self.of(child, below) for child in node.inputs]
                return _speculating(node.with_inputs(inputs), missing)
        return _speculating(node.with_inputs([self.of(child, missing) for child in node.inputs]), missing)


def _steps_of_input(node: Node) -> list[Node]:
    """A source or a group, and the steps over it that look at one event at a time, advance time or give a
    level.

    None if there is anything else.
    """
    steps = [node]
    while node.is_before_state:
        node = node.inputs[0]
        steps.append(node)
    return steps if isinstance(node, Source | Group) else []


def _not_given(steps: list[Node], missing: _Missing) -> _Missing:
    """What is still missing above these steps."""
    closes = [step for step in steps if isinstance(step, Finalize)]
    waits = any(isinstance(step, Align | Cleanse) for step in steps) or any(step.by_level for step in closes)
    return replace(
        missing, block=None if waits else missing.block, remember=None if closes else missing.remember
    )


def _finalized(node: Node, missing: _Missing) -> Node:
    """Finalize goes onto the source itself, where external CTIs count all elements, or onto the last step
    that advances time."""
    if missing.remember is None or missing.remember == FOREVER:
        return node
    if isinstance(node, Source | Group | AdvanceTime | ImportTime):
        return Finalize(node, missing.remember, by_level=True)
    return node.with_inputs([_finalized(child, missing) for child in node.inputs])


def _aligned(node: Node, missing: _Missing) -> Node:
    return Align(node, missing.block) if missing.block else node


def _in_order(root: Node, level: Level) -> Node:
    return Align(root, FOREVER) if level.block == FOREVER and not root.properties.is_ordered else root


def _speculating(node: Node, missing: _Missing) -> Node:
    return node if missing.speculate is None else node.with_speculate(missing.speculate)
