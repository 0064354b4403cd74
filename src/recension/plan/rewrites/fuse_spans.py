"""Neighbouring filters and projections become one pass: rows are gathered once, not once a step.

A computed column that is read more than once is left where it is, so that nothing is computed twice.
Steps that others read too are left as well: they are computed once for all their readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from recension.plan.expressions import Expression
from recension.plan.expressions.tree import columns_of
from recension.plan.node import Node, count_readers, each_once
from recension.plan.rewrites.push_filters import rewrite_over
from recension.plan.span import Project, Span, Where, is_identity
from recension.plan.timed_span import TimedSpan


def fuse_spans(roots: Sequence[Node]) -> list[Node]:
    """The same queries with chains of span steps as single nodes."""
    readers = count_readers(roots)
    new: dict[Node, Node] = {}
    shared: set[Node] = set()
    for node in each_once(roots):
        step = _untime(node.with_inputs([new[child] for child in node.inputs]))
        may_fuse = shared.isdisjoint(step.inputs)
        new[node] = _simplify((_fuse(step) if may_fuse else None) or step)
        if readers[node] > 1:
            shared.add(new[node])
    return [new[root] for root in roots]


def _fuse(step: Node) -> Node | None:
    """The step and the one below it as one, if both are spans and nothing would be computed twice."""
    upper = _span_of(step)
    lower = _span_of(upper.input) if upper else None
    if upper is None or lower is None:
        return None
    below, columns = lower.input.schema, dict(lower.outputs)
    if _repeats_work([*upper.predicates, *(e for _, e in upper.outputs)], columns):
        return None
    predicates = [rewrite_over(p, columns, upper.input.schema, below) for p in upper.predicates]
    outputs = [(name, rewrite_over(e, columns, upper.input.schema, below)) for name, e in upper.outputs]
    if None in predicates or None in (computed for _, computed in outputs):
        return None
    return Span(lower.input, (*lower.predicates, *predicates), tuple(outputs))  # type: ignore[arg-type]


def _repeats_work(readers: Iterable[Expression], columns: dict[str, Expression]) -> bool:
    times = Counter(name for reader in readers for name in columns_of(reader.tree))
    return any(times[name] > 1 and e.column is None and e.references for name, e in columns.items())


def _span_of(node: Node) -> Span | None:
    """A span step written as the general one."""
    if isinstance(node, Span):
        return node
    parts = node.as_span()
    return None if parts is None else Span(node.inputs[0], *parts)


def _untime(node: Node) -> Node:
    """A step that was to read times, but of what is wanted of it nothing does, as one that does not."""
    if isinstance(node, TimedSpan) and not (node.is_altering or node.predicates or node.reads_times):
        return Project(node.input, node.outputs)
    return node


def _simplify(node: Node) -> Node:
    """A span that does only one thing, or nothing, written as such."""
    if isinstance(node, Project) and is_identity(node.outputs, node.input.schema):
        return node.input
    if not isinstance(node, Span):
        return node
    if not node.predicates:
        return _simplify(Project(node.input, node.outputs))
    if len(node.predicates) == 1 and is_identity(node.outputs, node.input.schema):
        return Where(node.input, node.predicates[0])
    return node
