"""What is not wanted of each step, when the readers of the answers do not want all of them.

Signals go from reader to input, packets the other way, level after level: so every level works out by itself
what the steps above it would say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from recension.core.ticks import BEGINNING
from recension.lowering import operator_of
from recension.plan.node import Node, each_once
from recension.plan.nodes import Source


def wanted(roots: Sequence[Node], t: int) -> dict[Node, int]:
    """For each step a time such that no reader wants events of it that finally end before."""
    asked: defaultdict[Node, list[int]] = defaultdict(list)
    for root in roots:
        asked[root].append(t)
    times: dict[Node, int] = {}
    for node in reversed(list(each_once(roots))):
        times[node] = min(asked[node])
        answers = _answers(node, times[node])
        for child, since in zip(node.inputs, answers, strict=True):
            asked[child].append(BEGINNING if since is None else since)
    return times


def _answers(node: Node, t: int) -> Sequence[int | None]:
    """What a step then does not want of each of its own inputs."""
    nothing: list[int | None] = [None] * len(node.inputs)
    if t == BEGINNING or isinstance(node, Source):
        return nothing
    shrinks = [child.properties.is_shrink_only for child in node.inputs]
    # An operator of its own: only the answer matters, not the state it would drop.
    return operator_of(node).on_feedback(t, shrinks) or nothing
