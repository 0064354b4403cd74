"""Who reads what: a step with several readers is computed once, and no rewrite may split it in two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from recension.plan.node import Node, walk


def each_once(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node of the queries once, inputs before their readers."""
    seen: set[Node] = set()
    for root in roots:
        for node in walk(root):
            if node not in seen:
                seen.add(node)
                yield node


def count_readers(roots: Sequence[Node]) -> Counter[Node]:
    """How often each node is read, by other nodes or as a query's answer."""
    readers = Counter(roots)
    for node in each_once(roots):
        readers.update(node.inputs)
    return readers


def rebuild(roots: Sequence[Node], step: Callable[[Node], Node]) -> list[Node]:
    """Every node replaced by ``step`` of it over its replaced inputs; shared nodes stay shared."""
    new: dict[Node, Node] = {}
    for node in each_once(roots):
        new[node] = step(node.with_inputs([new[child] for child in node.inputs]))
    return [new[root] for root in roots]
