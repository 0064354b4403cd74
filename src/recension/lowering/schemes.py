"""Which coalescing queries over windows begin eager, and who decides later."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.window_limit import WindowLimit
from recension.operators.base import Operator
from recension.operators.extents import operator as extents
from recension.operators.extents.many import CoalesceMany, QuerySpec
from recension.operators.extents.query import CoalescingQuery
from recension.operators.extents.windows import RangeWindow, RowsWindow, SlidingWindow
from recension.operators.schemes.constants import load_constants
from recension.operators.schemes.costs import Load, Weights
from recension.operators.schemes.learning import Estimate
from recension.operators.schemes.plan import Planner, SchemePlan, Sizes
from recension.plan import extents as plan_extents
from recension.plan.extents import CoalesceExtent, Range, Rows

Coalescing: TypeAlias = CoalesceExtent | plan_extents.CoalesceMany

_STAMP: Final = 25.0
"""What an extent keeps of every reading besides its payload: group, time, row number, and a link."""
_TEXT: Final = 16.0
_USUAL_HELD: Final = 1_000
_GUESS: Final = (0.5, 0.0)
"""How likely readings coalesce and come late, where nothing is known of them."""


def window_of(window: Range | Rows) -> SlidingWindow:
    """The physical window."""
    if isinstance(window, Range):
        limit = WindowLimit(f"coalesce, {window}", window.max_windows, f"coalesce, {window.with_units}")
        return RangeWindow(window.span, window.slide, limit)
    return RowsWindow(window.size, window.slide)


def coalescing_operator(node: Coalescing) -> Operator:
    """The operator of one query, or of queries that share extents. ``auto`` chooses schemes while it runs."""
    if isinstance(node, CoalesceExtent) and node.scheme != "auto":
        query = CoalescingQuery(node.group_by, node.on, node.equivalence)
        return extents.CoalesceExtent(
            node.schema, node.input.schema, query, window_of(node.window), node.scheme
        )
    readings = pa.schema([node.input.schema.field(name) for name in node.columns])
    asked = [
        QuerySpec(CoalescingQuery(query.group_by, query.on, query.equivalence), node.answers(j))
        for j, query in enumerate(node.queries)
    ]
    plan = expected_plan(node)
    is_eager = np.full(len(asked), node.scheme == "eager") if plan is None else plan.selection.is_eager
    planner = None if plan is None else planner_of(node)
    operator = CoalesceMany(node.schema, readings, asked, window_of(node.window), is_eager, planner)
    operator.plan = plan
    return operator


def planner_of(node: Coalescing) -> Planner:
    """What chooses the schemes, with the measured constants of this machine."""
    names = tuple(str(query) for query in node.queries)
    return Planner(names, _sizes(node), load_constants(), Weights(*node.weights))


def expected_plan(node: Coalescing) -> SchemePlan | None:
    """The plan before anything is learned: for the probabilities that are expected, else for a guess."""
    if node.scheme != "auto":
        return None
    held = node.window.size if isinstance(node.window, Rows) else _USUAL_HELD
    expected = [Estimate(*(query.expected or _GUESS), 0.0, 0.0) for query in node.queries]
    return planner_of(node).plan(expected, Load(20 * held, held))


def _sizes(node: Coalescing) -> Sizes:
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


def describe_scheme(node: Coalescing) -> str:
    """The scheme that is chosen before the query runs."""
    if (plan := expected_plan(node)) is not None:
        known = all(query.expected for query in node.queries)
        first, *rest = plan.describe()
        words = "as expected" if known else "as if half of the readings coalesced, until it is learned"
        return "\n".join([f"auto, {words}; {first}", *rest])
    return (_SCHEME if isinstance(node, CoalesceExtent) else _SCHEMES)[node.scheme]


_SCHEME = {
    "eager": "eager: an extent of its own, coalesced as readings come",
    "lazy": "lazy: an extent of raw readings, coalesced as it is scanned",
}
_SCHEMES = {
    "eager": "eager: an extent for each query, coalesced as readings come",
    "lazy": "lazy: one extent of raw readings for all queries, coalesced as it is scanned",
}
