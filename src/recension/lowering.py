"""From what a query says to how it is done: the only place where a variant or algorithm is chosen.

Each logical node becomes one physical operator; equal nodes are the same object, so a stream that is used
twice becomes one vertex with two readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import pyarrow as pa

from recension.core.batch import Mask
from recension.core.errors import RecensionError, SchemaError
from recension.core.ticks import FOREVER
from recension.operators import advance_time
from recension.operators import lifetimes as physical
from recension.operators.align import Align
from recension.operators.alter_lifetime import AlterLifetime
from recension.operators.base import Operator
from recension.operators.cleanse import Cleanse
from recension.operators.clip import Clip
from recension.operators.deletes import Deletes
from recension.operators.distinct import Distinct
from recension.operators.finalize import Finalize
from recension.operators.join import Join
from recension.operators.left_join import LeftJoin
from recension.operators.lmerge import choice as lmerge
from recension.operators.lmerge.merge import LogicalMerge
from recension.operators.matching import LEFT, RIGHT, JoinedColumn, Side
from recension.operators.semijoin import AntiJoin, SemiJoin
from recension.operators.snapshot import accumulators, selections
from recension.operators.snapshot.measures import Aggregation
from recension.operators.snapshot.operator import SnapshotAggregate
from recension.operators.snapshot.views import Variant
from recension.operators.span import Span
from recension.operators.union import Union
from recension.operators.windows.count_operator import CountAggregate
from recension.operators.windows.grid import Grid
from recension.operators.windows.operator import WindowAggregate
from recension.plan import aggregates, nodes
from recension.plan import lifetimes as logical
from recension.plan.evaluation import Computed, Predicate, Projection
from recension.plan.node import Node, walk
from recension.plan.rewrites import optimize
from recension.plan.span import projected_schema

_COPING = (Finalize, LogicalMerge)


@dataclass(frozen=True)
class Vertex:
    """An operator and the vertices it reads, in the order of its ports; a source reads none."""

    name: str
    schema: pa.Schema
    operator: Operator | None
    inputs: tuple[int, ...] = ()
    is_shrink_only: bool = False
    """Does no retraction lengthen? Then an event that ends before some time will not outlast it."""
    sends_feedback: bool = False
    """Does it tell its inputs what it no longer wants?"""


@dataclass(frozen=True)
class PhysicalPlan:
    """Vertices with inputs before their readers, and where sources and queries are among them."""

    vertices: list[Vertex]
    sources: dict[str, nodes.Source]
    source_vertices: dict[str, int]
    queries: dict[str, Node]
    query_vertices: dict[str, int]
    numbers: dict[Node, int]

    @property
    def unchecked(self) -> set[str]:
        """Sources read by finalize or merge alone: coping with retractions of unknown events is their job."""
        readers: dict[int, list[Vertex]] = {}
        for vertex in self.vertices:
            for number in vertex.inputs:
                readers.setdefault(number, []).append(vertex)
        return {
            name
            for name, number in self.source_vertices.items()
            if number not in self.query_vertices.values()
            and all(isinstance(reader.operator, _COPING) for reader in readers.get(number, []))
        }


def lower(queries: Mapping[str, Node]) -> PhysicalPlan:
    """The physical plan of several queries, what they share counted once."""
    roots = dict(zip(queries, optimize(list(queries.values())), strict=True))
    plan = PhysicalPlan([], {}, {}, roots, {}, {})
    for name, root in roots.items():
        plan.query_vertices[name] = _add(plan, root)
    return plan


def extend(plan: PhysicalPlan, query: Node) -> int:
    """Add what a query needs to a plan that runs already; the number of its vertex."""
    return _add(plan, optimize([query])[0])


def _add(plan: PhysicalPlan, root: Node) -> int:
    for node in walk(root):
        if node not in plan.numbers:
            plan.numbers[node] = len(plan.vertices)
            plan.vertices.append(_vertex(node, tuple(plan.numbers[i] for i in node.inputs)))
            if isinstance(node, nodes.Source):
                _add_source(plan.sources, node)
                plan.source_vertices[node.name] = plan.numbers[node]
    return plan.numbers[root]


def _vertex(node: Node, inputs: tuple[int, ...]) -> Vertex:
    is_shrink_only = node.properties.is_shrink_only
    if isinstance(node, nodes.Source):
        return Vertex(node.name, node.schema, None, is_shrink_only=is_shrink_only)
    sends_feedback = isinstance(node, nodes.Merge) and node.feedback
    return Vertex(node.label, node.schema, operator_of(node), inputs, is_shrink_only, sends_feedback)


def _add_source(sources: dict[str, nodes.Source], node: nodes.Source) -> None:
    if sources.setdefault(node.name, node) is not node:
        raise RecensionError(f"two different sources are named {node.name!r}")


def chosen(node: Node) -> str | None:
    """In words, what was chosen for a node and why; None where there was nothing to choose."""
    match node:
        case nodes.WindowAggregate():
            return _chosen_measures(node, _WINDOW_VARIANTS[node.speculate])
        case nodes.CountAggregate():
            return _chosen_measures(node, _COUNT_VARIANTS[node.speculate])
        case nodes.SnapshotAggregate():
            return _chosen_measures(node, _VARIANTS[node.speculate])
        case nodes.Join(how="inner"):
            return "symmetric join by key and overlap; the other side's cti frees the state it has passed"
        case nodes.Join():
            return f"{node.how} join by coverage: the parts of each left lifetime are kept and corrected"
        case nodes.Align(block=block):
            return _BLOCKS.get(
                block, "shows an event once the block has passed its start, or a cti its changes"
            )
        case nodes.Finalize(remember=remember):
            limit = "" if remember == FOREVER else f", or {remember} behind: what comes later is lost"
            return f"ctis where the past is proven complete{limit}"
        case nodes.Merge():
            return "{}: {}".format(*node.chosen())
        case nodes.AlterLifetime(lifetime=logical.Custom()):
            return "ctis wait for the end of time: what a function does to ends cannot be foreseen"
    return None


def _chosen_measures(node: nodes.SnapshotAggregate, variant: str) -> str:
    measures = [
        (name, _aggregation(aggregate, node.input.schema).measure) for name, aggregate in node.aggregates
    ]
    sums = [name for name, measure in measures if isinstance(measure, accumulators.Accumulator)]
    others = [name for name, measure in measures if name not in sums]
    parts = [variant]
    if sums:
        parts.append(f"{', '.join(sums)} by differences")
    if others:
        parts.append(f"{', '.join(others)} from the live events")
    if node.breaks_ties:
        parts.append("ctis wait until ties between live events are settled")
    return "; ".join(parts)


_VARIANTS = {
    "perfect": "perfect: shows what has ended, holds its cti at the open snapshot",
    "ordered": "ordered: shows the present as endless, corrects it by moving ends",
    "eager": "eager: shows everything at once, corrects it by moving ends",
}
_BLOCKS = {
    0: "passes everything at once",
    FOREVER: "shows what a cti has passed, in order",
}
_WINDOW_VARIANTS = {
    "perfect": "perfect: shows a window once it has ended, panes shared by overlapping windows",
    "ordered": "ordered: shows a window once it has ended, panes shared by overlapping windows",
    "eager": "eager: shows every window at once, panes shared by overlapping windows",
}
_COUNT_VARIANTS = {
    "perfect": "perfect: shows a window once it has ended, holds its cti at the first that can still fill",
    "ordered": "ordered: shows a window once it has ended, holds its cti at the first that can still fill",
    "eager": "eager: shows every window at once, holds its cti at the first that can still fill",
}


@singledispatch
def operator_of(node: Node) -> Operator:
    """The physical operator of a logical node."""
    raise RecensionError(f"the local engine cannot run {node.label!r}")


@operator_of.register
def _where(node: nodes.Where) -> Operator:
    return _span(node.schema, [Predicate(node.predicate)], None)


@operator_of.register
def _project(node: nodes.Project) -> Operator:
    return _span(node.schema, [], Projection(node.outputs, node.schema))


@operator_of.register
def _fused(node: nodes.Span) -> Operator:
    predicates = [Predicate(predicate) for predicate in node.predicates]
    return _span(node.schema, predicates, Projection(node.outputs, node.schema))


def _span(schema: pa.Schema, predicates: list[Predicate], projection: Projection | None) -> Span:
    def transform(payload: pa.RecordBatch) -> tuple[Mask | None, pa.RecordBatch]:
        keep: Mask | None = None
        for predicate in predicates:
            holds = predicate(payload)
            payload = payload.filter(pa.array(holds))
            if keep is None:
                keep = holds
            else:
                keep[keep] = holds
        return keep, payload if projection is None else projection(payload)

    return Span(schema, transform)


@operator_of.register
def _map(node: nodes.Map) -> Operator:
    def transform(payload: pa.RecordBatch) -> tuple[None, pa.RecordBatch]:
        return None, _conforming(_mapped(node, payload), node, payload.num_rows)

    return Span(node.schema, transform)


def _mapped(node: nodes.Map, payload: pa.RecordBatch) -> object:
    try:
        return [node.fn(row) for row in payload.to_pylist()] if node.per_row else node.fn(payload)
    except Exception as why:
        raise RecensionError(f"{node.label}: {type(why).__name__}: {why}") from why


def _conforming(mapped: object, node: nodes.Map, rows: int) -> pa.RecordBatch:
    """What a user's function gave, as columns of the declared types; or an error that names it."""
    try:
        if isinstance(mapped, list):
            mapped = pa.Table.from_pylist(mapped, node.schema)
        elif isinstance(mapped, Mapping):
            mapped = pa.table(dict(mapped))
        table = pa.table(mapped).select(node.schema.names).cast(node.schema).combine_chunks()
    except (pa.ArrowException, KeyError, TypeError, ValueError) as why:
        raise SchemaError(f"{node.label}: {str(why).splitlines()[0]}") from None
    if table.num_rows != rows:
        raise SchemaError(f"{node.label}: {rows} rows went in and {table.num_rows} came out")
    return table.to_batches()[0] if rows else pa.RecordBatch.from_pylist([], node.schema)


@operator_of.register
def _union(node: nodes.Union) -> Operator:
    return Union(node.schema, len(node.streams))


@operator_of.register
def _merge(node: nodes.Merge) -> Operator:
    policy = lmerge.policy_of(node.policy, node.leader, node.quorum)
    case, can_fall = node.chosen().case, node.on_mismatch == "fallback"
    return lmerge.merge_of(case, node.schema, len(node.streams), policy, node.lag, can_fall=can_fall)


@operator_of.register
def _distinct(node: nodes.Distinct) -> Operator:
    return Distinct(node.schema)


@operator_of.register
def _cleanse(node: nodes.Cleanse) -> Operator:
    return Cleanse(node.schema)


@operator_of.register
def _align(node: nodes.Align) -> Operator:
    return Align(node.schema, node.block)


@operator_of.register
def _advance_time(node: nodes.AdvanceTime) -> Operator:
    pace = advance_time.Pace(node.delay, node.events, node.interval)
    return advance_time.AdvanceTime(node.schema, pace, node.late)


@operator_of.register
def _import_time(node: nodes.ImportTime) -> Operator:
    return advance_time.AdvanceTime(node.schema, None, node.late)


@operator_of.register
def _finalize(node: nodes.Finalize) -> Operator:
    return Finalize(node.schema, node.remember, node.since)


@operator_of.register
def _alter_lifetime(node: nodes.AlterLifetime) -> Operator:
    if isinstance(node.lifetime, logical.Deletes):
        return Deletes(node.schema)
    return AlterLifetime(node.schema, _lifetime(node.lifetime))


def _lifetime(lifetime: logical.Lifetime) -> physical.Lifetime:
    match lifetime:
        case logical.Shift(delta):
            return physical.Shift(delta)
        case logical.SetDuration(duration):
            return physical.SetDuration(duration)
        case logical.Extend(delta):
            return physical.Extend(delta)
        case logical.Hop(size, hop):
            return physical.Hop(size, hop)
        case logical.ToPoints():
            return physical.ToPoints()
        case logical.Inserts():
            return physical.Inserts()
        case logical.Custom(None, int(duration)):
            return physical.SetDuration(duration)
        case logical.Custom(start, int(duration)):
            return physical.Custom(start, lambda vs, ve: duration)
        case logical.Custom(start, duration):
            return physical.Custom(start, duration)
    raise RecensionError(f"the local engine cannot alter lifetimes by {lifetime}")


@operator_of.register
def _clip(node: nodes.Clip) -> Operator:
    return Clip(*_sides(node, node.input, node.by))


def _sides(node: nodes.Join | nodes.Clip, left: Node, right: Node) -> tuple[Side, Side]:
    left_side, right_side = (Side(side.schema, node.on, node.null_matches) for side in (left, right))
    return left_side, right_side


@operator_of.register
def _join(node: nodes.Join) -> Operator:
    columns = [JoinedColumn(LEFT, name, name) for name in node.left.schema.names]
    columns += [JoinedColumn(RIGHT, source, name) for source, name in node.right_outputs]
    sides = _sides(node, node.left, node.right)
    where = None if node.where is None else Predicate(node.where)
    match node.how:
        case "inner":
            return Join(*sides, columns, where)
        case "left":
            return LeftJoin(*sides, columns, where)
        case "semi":
            return SemiJoin(*sides, columns, where)
        case "anti":
            return AntiJoin(*sides, columns, where)


@operator_of.register
def _aggregate(node: nodes.SnapshotAggregate) -> Operator:
    return SnapshotAggregate(
        node.schema, node.input.schema, *_aggregate_parts(node), breaks_ties=node.breaks_ties
    )


@operator_of.register
def _window_aggregate(node: nodes.WindowAggregate) -> Operator:
    grid = Grid(node.grid.size, node.grid.hop, node.grid.offset, node.grid.until)
    return WindowAggregate(
        node.schema, node.input.schema, grid, *_aggregate_parts(node), breaks_ties=node.breaks_ties
    )


@operator_of.register
def _count_aggregate(node: nodes.CountAggregate) -> Operator:
    windows, parts = node.counted, _aggregate_parts(node)
    return CountAggregate(
        node.schema, node.input.schema, windows.n, windows.by, *parts, breaks_ties=node.breaks_ties
    )


def _aggregate_parts(
    node: nodes.SnapshotAggregate,
) -> tuple[list[Aggregation], Variant, Projection | None, pa.Schema]:
    of = node.input.schema
    key_schema = projected_schema(node.keys, of, "group_by")
    aggregations = [_aggregation(aggregate, of) for _, aggregate in node.aggregates]
    return aggregations, node.speculate, Projection(node.keys, key_schema) if node.keys else None, key_schema


def _aggregation(aggregate: aggregates.Aggregate, schema: pa.Schema) -> Aggregation:
    """Sums where the aggregate can take an event back, the events themselves where it cannot."""
    if aggregate.argument is None:
        return Aggregation(None, accumulators.CountEvents())
    kind = aggregate.argument_type(schema)
    argument = Computed(aggregate.argument, kind)
    is_float = pa.types.is_floating(kind)
    match aggregate:
        case aggregates.Count():
            return Aggregation(argument, accumulators.CountValues())
        case aggregates.Sum():
            return Aggregation(argument, accumulators.SumFloats() if is_float else accumulators.SumIntegers())
        case aggregates.Mean():
            return Aggregation(argument, accumulators.Mean() if is_float else accumulators.MeanIntegers())
        case aggregates.StdDev():
            return Aggregation(argument, accumulators.StdDev())
        case aggregates.Min() | aggregates.Max():
            return Aggregation(argument, selections.Extreme(greatest=isinstance(aggregate, aggregates.Max)))
        case aggregates.First() | aggregates.Last():
            return Aggregation(argument, selections.Positional(last=isinstance(aggregate, aggregates.Last)))
        case aggregates.Collect():
            return Aggregation(argument, selections.Collect())
        case aggregates.Quantile(q=q):
            return Aggregation(argument, selections.Quantile(q))
        case aggregates.FunctionOf(fn=fn, result=result):
            return Aggregation(argument, selections.FunctionOf(fn, result))
        case aggregates.TopK(k=k, descending=descending):
            return Aggregation(argument, selections.TopK(k, descending=descending))
    raise RecensionError(f"the local engine cannot compute {aggregate}")
