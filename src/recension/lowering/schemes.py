"""Which coalescing queries that share extents begin eager, and who decides later."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask
from recension.operators.extents.many import Asked, CoalesceMany
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.windows import RangeWindow, RowsWindow, SlidingWindow
from recension.operators.schemes.constants import load_constants
from recension.operators.schemes.costs import Load, Weights
from recension.operators.schemes.learning import Estimate
from recension.operators.schemes.plan import Planner, SchemePlan, Sizes
from recension.plan import extent_set
from recension.plan.extents import Range, Rows

_STAMP: Final = 25.0
"""What an extent keeps of every reading beside its payload: group, time, row number, and a link."""
_TEXT: Final = 16.0
_USUAL_HELD: Final = 1_000


def window_of(window: Range | Rows) -> SlidingWindow:
    """The physical window."""
    if isinstance(window, Range):
        return RangeWindow(window.span, window.slide)
    return RowsWindow(window.size, window.slide)


def coalesce_many(node: extent_set.CoalesceMany) -> CoalesceMany:
    """The operator of queries that share extents."""
    readings = pa.schema([node.input.schema.field(name) for name in node.columns])
    asked = [
        Asked(CoalescingQuery(query.group_by, query.on, query.equivalence), node.answers(j))
        for j, query in enumerate(node.queries)
    ]
    planner = planner_of(node) if node.scheme == "auto" else None
    operator = CoalesceMany(node.schema, readings, asked, window_of(node.window), beginning(node), planner)
    operator.plan = expected_plan(node)
    return operator


def planner_of(node: extent_set.CoalesceMany) -> Planner:
    """With the machine's constants."""
    names = tuple(str(query) for query in node.queries)
    return Planner(names, _sizes(node), load_constants(), Weights(*node.weights))


def expected_plan(node: extent_set.CoalesceMany) -> SchemePlan | None:
    """The plan for the probabilities that are expected, if they are of all queries."""
    if node.scheme != "auto" or any(query.expected is None for query in node.queries):
        return None
    held = node.window.size if isinstance(node.window, Rows) else _USUAL_HELD
    expected = [Estimate(*query.expected, 0.0, 0.0) for query in node.queries if query.expected]
    return planner_of(node).plan(expected, Load(20 * held, held))


def beginning(node: extent_set.CoalesceMany) -> Mask:
    """Who is eager before anything is learned: as expected, else nobody: to become eager is a scan."""
    if (plan := expected_plan(node)) is not None:
        return plan.selection.is_eager
    return np.full(len(node.queries), node.scheme == "eager")


def _sizes(node: extent_set.CoalesceMany) -> Sizes:
    widths = {field.name: _width(field.type) for field in node.input.schema}
    own = [_STAMP + sum(widths[name] for name in query.columns) for query in node.queries]
    # Of equal readings one payload is kept; where they need only be equivalent, all.
    behind = [_STAMP if q.equivalence is None else each for q, each in zip(node.queries, own, strict=True)]
    return Sizes(_STAMP + sum(widths[name] for name in node.columns), tuple(own), tuple(behind))


def _width(kind: pa.DataType) -> float:
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return _TEXT


def in_words(node: extent_set.CoalesceMany) -> str:
    """What is chosen before it runs."""
    if (plan := expected_plan(node)) is not None:
        return "\n".join(["auto, as expected; " + plan.lines()[0], *plan.lines()[1:]])
    if node.scheme == "auto":
        until = "auto: all share one lazy extent until it is known how readings coalesce and come late"
        return f"{until}\nthen by cost, weights {Weights(*node.weights)}"
    if node.scheme == "eager":
        return "eager: an extent for each query, coalesced as readings come"
    return "lazy: one extent of raw readings for all queries, coalesced as it is scanned"
