"""Steps of a query that read or set the lifetimes of events, as `TimedSpan` nodes.

One node does the work of several steps where that lets CTIs pass that would wait between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recension.core.errors import SchemaError
from recension.core.time_kind import TICKS
from recension.plan.expressions import Expression, column
from recension.plan.expressions.tree import conjuncts
from recension.plan.node import Node, Outputs, all_of
from recension.plan.schemas import END, START
from recension.plan.source import declared_kind
from recension.plan.span import Project, Where, projected_schema
from recension.plan.timed_span import TimedSpan, reads_times


def timed_span(plan: Node, predicates: Sequence[Expression], outputs: Outputs, verb: str) -> TimedSpan:
    """Predicates, then outputs, over payloads and times."""
    return TimedSpan(plan, declared_kind(plan) or TICKS, tuple(predicates), outputs, verb=verb)


def filtered(plan: Node, predicate: Expression) -> Node:
    """The events of which a condition holds, whether it reads their times or not."""
    return _filtered_by_times(plan, predicate) if reads_times(predicate) else Where(plan, predicate)


def projected(plan: Node, outputs: Outputs, verb: str) -> Node:
    """Columns computed from the payload, and from the times of events if they are used."""
    is_timed = any(reads_times(computed) for _, computed in outputs)
    return timed_span(plan, (), outputs, verb) if is_timed else Project(plan, outputs, verb)


def with_keys(plan: Node, keys: Outputs) -> tuple[Node, Outputs]:
    """The plan with columns for the keys of groups that read times, and the keys over it."""
    timed = {name: key for name, key in keys if reads_times(key)}
    if not timed:
        projected_schema(keys, plan.schema, "group_by")
        return plan, keys
    for name in timed:
        if name in plan.schema.names:
            raise SchemaError(f"group_by: there is a column {name!r} already; give the key another name")
    below = timed_span(plan, (), (*all_of(plan.schema), *timed.items()), "group_by")
    return below, tuple((name, column(name) if name in timed else key) for name, key in keys)


def _filtered_by_times(plan: Node, predicate: Expression) -> Node:
    """A filter that reads times, over one of the conditions before that which do not."""
    parts = [Expression(part) for part in conjuncts(predicate.tree)]
    first = next(i for i, part in enumerate(parts) if reads_times(part))
    for part in parts[:first]:
        plan = Where(plan, part)
    return timed_span(plan, parts[first:], all_of(plan.schema), "where")


def with_lifetime(plan: Node, start: Expression, end: Expression, bound: int | None) -> Node:
    """Other lifetimes for the events of a step, in one step with it if it reads the times of events.

    Alone that step would hold CTIs back for every event whose end is not final.
    """
    new_start, new_end = None if start.column == START else start, None if end.column == END else end
    if new_start is None and new_end is None:
        return plan
    below = _timed_steps(plan) or timed_span(plan, (), all_of(plan.schema), "with_lifetime")
    return replace(below, start=new_start, end=new_end, bound=bound, verb="with_lifetime")


def _timed_steps(plan: Node) -> TimedSpan | None:
    """The span steps down to the lowest that reads times, as one; None if none of them does.

    What one of them computes and several read is computed for each of these.
    """
    if isinstance(plan, TimedSpan):
        parts = None if plan.is_altering else (plan.predicates, plan.outputs)
    else:
        parts = plan.as_span()
    if parts is None:
        return None
    below = _timed_steps(plan.inputs[0])
    if below is None:
        return plan if isinstance(plan, TimedSpan) else None
    predicates, outputs = parts
    return replace(
        below,
        predicates=(*below.predicates, *(below.expand(predicate) for predicate in predicates)),
        outputs=tuple((name, below.expand(computed)) for name, computed in outputs),
    )


def name_timed(plan: Node, computed: Sequence[Expression], verb: str) -> tuple[Node, list[Expression]]:
    """The plan with a column for each expression that reads times, and the expressions over it."""
    named: dict[Expression, str] = {}
    for each in computed:
        if reads_times(each) and each not in named:
            name = {START: "start", END: "end"}.get(str(each), str(each))
            while name in plan.schema.names or name in named.values():
                name += "'"
            named[each] = name
    if not named:
        return plan, list(computed)
    outputs = (*all_of(plan.schema), *((name, each) for each, name in named.items()))
    found = [column(named[each]) if each in named else each for each in computed]
    return timed_span(plan, (), outputs, verb), found
