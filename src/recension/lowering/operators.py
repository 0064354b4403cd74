"""The physical operator of each logical node."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import assert_never

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.wall_clock import WallClock
from recension.lowering.schemes import coalescing_operator
from recension.lowering.windowed import aggregate_spec, grid_of, limit_of, module_windows
from recension.operators import advance_time, due
from recension.operators import lifetimes as physical
from recension.operators.align import Align
from recension.operators.alter_lifetime import AlterLifetime
from recension.operators.base import Operator
from recension.operators.changes_by_key import ChangesByKey
from recension.operators.cleanse import Cleanse
from recension.operators.clip import Clip
from recension.operators.coalesce import Coalesce
from recension.operators.distinct import Distinct
from recension.operators.edges import Edges
from recension.operators.finalize import Finalize
from recension.operators.group_apply import GroupApply
from recension.operators.grouped_cleanse import GroupedCleanse
from recension.operators.interval_join import PairsByStart
from recension.operators.join import Join
from recension.operators.keyed import RowColumns
from recension.operators.left_join import LeftJoin
from recension.operators.lmerge.choice import make_merge
from recension.operators.lmerge.policies import make_policy
from recension.operators.matching import LEFT, RIGHT, JoinedColumn, JoinSide
from recension.operators.pattern import Pattern, PatternSpec
from recension.operators.pipeline import Pipeline, PipelineStage
from recension.operators.restate_by_key import RestateByKey
from recension.operators.semijoin import AntiJoin, SemiJoin
from recension.operators.span import Span, StartSpan
from recension.operators.start_matches import Kept, MatchesByStart
from recension.operators.starts import StartRange
from recension.operators.timed_span import TimedSpan
from recension.operators.union import Union
from recension.operators.windowed import parts
from recension.operators.windowed.aggregates import aggregate_over
from recension.operators.windowed.counts import CountIndex
from recension.operators.windowed.index import View
from recension.operators.windowed.numbered import NumberedIndex
from recension.operators.windowed.sessions import SessionIndex
from recension.operators.windowed.snapshots import SnapshotIndex
from recension.plan import lifetimes as logical
from recension.plan import nodes
from recension.plan.aggregate import AggregateNode
from recension.plan.evaluation import Predicate
from recension.plan.merge import describe_sources
from recension.plan.node import Node, walk
from recension.plan.parts import PartialSums
from recension.plan.rewrites import optimize
from recension.plan.span import SpanNode


@singledispatch
def operator_of(node: Node) -> Operator:
    """The physical operator of a logical node."""
    raise RecensionError(f"the local engine cannot run {node.label!r}")


@operator_of.register
def _span(node: SpanNode) -> Operator:
    return Span(node.schema, node.kernel())


@operator_of.register
def _timed_span(node: nodes.TimedSpan) -> Operator:
    if node.passes_external_ctis:
        return StartSpan(node.schema, node.start_kernel())
    may_lengthen = not node.input.properties.is_shrink_only
    steps = node.gate(), node.rewrite(), node.cti_rule()
    return TimedSpan(node.schema, *steps, holds=node.holds_ctis, may_lengthen=may_lengthen)


@operator_of.register
def _union(node: nodes.Union) -> Operator:
    return Union(node.schema, len(node.streams))


@operator_of.register
def _merge(node: nodes.Merge) -> Operator:
    policy = make_policy(node.policy, node.leader, node.quorum)
    case, can_fall = node.choose_case().case, node.on_mismatch == "fallback"
    ports = 0 if node.is_open else len(node.streams)
    operator = make_merge(case, node.schema, ports, policy, node.lag, can_fall=can_fall)
    for port, since in enumerate(node.since):
        operator.inputs.set_complete_from(port, since)
    operator.contradictions.raises = node.on_anomaly == "raise"
    operator.sends_feedback = node.feedback or node.are_inputs_told
    if not node.is_open:
        operator.contradictions.names = dict(enumerate(map(describe_sources, node.streams)))
    return operator


@operator_of.register
def _distinct(node: nodes.Distinct) -> Operator:
    return Distinct(node.schema)


@operator_of.register
def _edges(node: nodes.Edges) -> Operator:
    return Edges(node.schema, node.group_by, node.keyed_by)


@operator_of.register
def _restate_by_key(node: nodes.RestateByKey) -> Operator:
    return RestateByKey(_row_columns(node), node.policy, node.forget)


@operator_of.register
def _changes_by_key(node: nodes.ChangesByKey) -> Operator:
    return ChangesByKey(_row_columns(node), node.policy, node.order)


def _row_columns(node: nodes.ByKey) -> RowColumns:
    meanings = (node.columns, node.key, node.version, node.deleted)
    rows = node.input
    return RowColumns(*meanings, *((rows.name, rows.start) if isinstance(rows, nodes.RowSource) else ()))


@operator_of.register
def _coalesce(node: nodes.Coalesce) -> Operator:
    names = list(node.columns)
    if node.equivalence is None:
        return Distinct(node.schema, lambda payload: payload.select(names))
    return Coalesce(node.schema, node.group_by, node.on, node.equivalence)


@operator_of.register
def _coalesce_extent(node: nodes.CoalesceExtent) -> Operator:
    return coalescing_operator(node)


@operator_of.register
def _coalesce_many(node: nodes.CoalesceMany) -> Operator:
    return coalescing_operator(node)


@operator_of.register
def _cleanse(node: nodes.Cleanse) -> Operator:
    return GroupedCleanse(node.schema, node.by) if node.by else Cleanse(node.schema)


@operator_of.register
def _align(node: nodes.Align) -> Operator:
    if isinstance(node.block, WallClock):
        return Align(node.schema, node.block.microseconds, by_clock=True)
    return Align(node.schema, node.block, node.by)


@operator_of.register
def _advance_time(node: nodes.AdvanceTime) -> Operator:
    pace = advance_time.Pace(node.delay, node.events, node.interval)
    return advance_time.AdvanceTime(node.schema, pace, node.late)


@operator_of.register
def _advance_time_by_clock(node: nodes.AdvanceTimeByClock) -> Operator:
    return advance_time.AdvanceTime(node.schema, None, node.late, by_clock=True)


@operator_of.register
def _align_by_clock(node: nodes.AlignByClock) -> Operator:
    return Align(node.schema, node.block)


@operator_of.register
def _import_time(node: nodes.ImportTime) -> Operator:
    return advance_time.AdvanceTime(node.schema, None, node.late)


@operator_of.register
def _due(node: nodes.Due) -> Operator:
    return due.DueByClock(node.schema) if node.by_clock else due.Due(node.schema)


@operator_of.register
def _due_by(node: nodes.DueBy) -> Operator:
    return due.DueByOther(node.schema, node.ahead)


@operator_of.register
def _progress(node: nodes.Progress) -> Operator:
    return due.Progress(node.schema, node.ahead)


@operator_of.register
def _finalize(node: nodes.Finalize) -> Operator:
    if isinstance(node.remember, WallClock):
        return Finalize(node.schema, node.remember.microseconds, node.since, by_clock=True)
    return Finalize(node.schema, node.remember, node.since)


@operator_of.register
def _alter_lifetime(node: nodes.AlterLifetime) -> Operator:
    return AlterLifetime(node.schema, _lifetime(node.lifetime))


def _lifetime(lifetime: logical.Lifetime) -> physical.Lifetime:
    match lifetime:
        case logical.Shift(delta):
            return physical.Shift(delta)
        case logical.SetDuration(duration):
            return physical.SetDuration(duration)
        case logical.Deletes():
            return physical.Deletes()
        case logical.Extend(delta):
            return physical.Extend(delta)
        case logical.Hop(size, hop):
            return physical.Hop(size, hop)
        case logical.ToPoints():
            return physical.ToPoints()
        case logical.Inserts():
            return physical.Inserts()
        case logical.Custom(start, duration):
            return physical.Custom(start, duration)
    raise RecensionError(f"the local engine cannot alter lifetimes by {lifetime}")


@operator_of.register
def _clip(node: nodes.Clip) -> Operator:
    return Clip(*_sides(node, node.input, node.by))


def _sides(node: nodes.Join | nodes.Clip, left: Node, right: Node) -> tuple[JoinSide, JoinSide]:
    left_side, right_side = (JoinSide(side.schema, node.on, node.null_matches) for side in (left, right))
    return left_side, right_side


def _pair_columns(node: nodes.Join) -> list[JoinedColumn]:
    columns = [JoinedColumn(LEFT, name, name) for name in node.left.schema.names]
    return columns + [JoinedColumn(RIGHT, source, name) for source, name in node.right_outputs]


@operator_of.register
def _join(node: nodes.Join) -> Operator:
    columns, sides = _pair_columns(node), _sides(node, node.left, node.right)
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
        case unknown:
            assert_never(unknown)


@operator_of.register
def _interval_join(node: nodes.IntervalJoin) -> Operator:
    starts, sides = StartRange(node.low, node.high), _sides(node, node.left, node.right)
    where = None if node.where is None else Predicate(node.where)
    if node.how == "inner":
        return PairsByStart(*sides, _pair_columns(node), where, starts)
    within = node.within if isinstance(node, nodes.Unless) else None
    is_insert_only = node.left.properties.is_insert_only
    kept = Kept(node.how == "semi", node.how == "left", within, is_insert_only)
    return MatchesByStart(*sides, _pair_columns(node), where, starts, kept)


@operator_of.register
def _pattern(node: nodes.Pattern) -> Operator:
    spec = PatternSpec(
        node.form,
        node.schema,
        node.on,
        [[old for old, _ in outputs] for outputs in node.outputs],
        node.within,
        node.size,
        node.in_order,
        None if node.where is None else Predicate(node.where),
        node.most,
        drops=node.on_limit == "drop",
    )
    return Pattern(spec, [JoinSide(stream.schema, node.on, node.null_matches) for stream in node.streams])


@operator_of.register
def _aggregate(node: nodes.SnapshotAggregate) -> Operator:
    views: dict[nodes.Speculate, View] = {"perfect": "ended", "ordered": "present", "eager": "all"}
    return aggregate_over(aggregate_spec(node), views[node.speculate], SnapshotIndex)


@operator_of.register
def _window_aggregate(node: nodes.WindowAggregate) -> Operator:
    grid, limit = grid_of(node.windows), limit_of(node.windows, node)
    return aggregate_over(
        aggregate_spec(node), _whole_windows(node), lambda spec: NumberedIndex(spec, grid, limit)
    )


@operator_of.register
def _count_aggregate(node: nodes.CountAggregate) -> Operator:
    n, by = node.windows.n, node.windows.by
    return aggregate_over(aggregate_spec(node), _whole_windows(node), lambda spec: CountIndex(spec, n, by))


@operator_of.register
def _session_aggregate(node: nodes.SessionAggregate) -> Operator:
    insert_only = node.input.properties.is_insert_only
    return aggregate_over(
        aggregate_spec(node),
        _whole_windows(node),
        lambda spec: SessionIndex(spec, node.windows.gap, insert_only=insert_only),
    )


@operator_of.register
def _partial_sums(node: PartialSums) -> Operator:
    spec = replace(aggregate_spec(node), schema=node.answers)
    at = spec.index_spec("all")
    index = SnapshotIndex(at) if node.windows is None else NumberedIndex(at, grid_of(node.windows))
    return parts.PartialSums(node.schema, spec, index)


def _whole_windows(node: AggregateNode) -> View:
    """Windows that are shown with their own ends: all of them, or each once it has ended."""
    return "all" if node.speculate == "eager" else "ended"


@operator_of.register
def _module_window(node: nodes.ModuleWindow) -> Operator:
    return module_windows(node)


@operator_of.register
def _group_apply(node: nodes.GroupApply) -> Operator:
    (plan,) = optimize([node.plan])
    ports = [step for step in walk(node.plan) if isinstance(step, nodes.Port)]
    split = [port.columns for port in sorted(ports, key=lambda port: port.number)[: node.split]]
    keys = pa.schema([node.schema.field(name) for name in node.keys])
    return GroupApply(node.schema, keys, split, lambda: _pipeline(plan, len(node.streams)))


def _pipeline(plan: Node, ports: int) -> Pipeline:
    """A fresh operator for every step of a group's plan."""
    numbers: dict[Node, int] = {}
    stages: list[PipelineStage] = []
    for node in walk(plan):
        if isinstance(node, nodes.Port):
            numbers[node] = node.number
        else:
            numbers[node] = ports + len(stages)
            stages.append(PipelineStage(operator_of(node), tuple(numbers[child] for child in node.inputs)))
    return Pipeline(ports, stages)
