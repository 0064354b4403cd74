"""How aggregates and modules over windows are done: what is kept, which windows are shown, when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.window_limit import WindowLimit
from recension.modules.module import Incremental, Module
from recension.operators.modules.answers import (
    BuiltIn,
    ModuleAnswers,
    ModuleValues,
    NamedValues,
    OperatorRows,
    StateValues,
    Value,
)
from recension.operators.modules.hosting import Caller, HostedModule, Order
from recension.operators.modules.measure import GROUP, Modules, ModuleSpec
from recension.operators.modules.states import PaneStates, States
from recension.operators.windowed import accumulators, decimals, selections
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation
from recension.operators.windowed.calendar import CalendarGrid, CalendarHops
from recension.operators.windowed.counts import CountIndex
from recension.operators.windowed.distinct_values import CountDistinct
from recension.operators.windowed.grid import Grid
from recension.operators.windowed.index import IndexSpec, View, WindowIndex
from recension.operators.windowed.numbered import NumberedIndex
from recension.operators.windowed.operator import WindowedOperator
from recension.operators.windowed.parts import read_changes
from recension.operators.windowed.sessions import SessionIndex
from recension.operators.windowed.snapshots import SnapshotIndex
from recension.operators.windowed.time_weighted import WeightedMean, WeightedMeanOfEvents
from recension.plan import aggregates
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Aggregate
from recension.plan.evaluation import ComputedColumn, ComputedTogether, Projection
from recension.plan.expressions import Expression, column, expression, result_type
from recension.plan.module_window import ModuleCall, ModuleWindow, WindowKind
from recension.plan.parts import OfAllParts
from recension.plan.span import projected_schema
from recension.plan.windows import CalendarWindows, CountWindows, SessionWindows, WindowAggregate, Windows

_NO_AXIS: Final = CountWindows(1)
"""Windows of which nothing is known but the events in them."""


def module_windows(node: ModuleWindow) -> WindowedOperator:
    """The operator of modules over windows."""
    key_schema = projected_schema(node.keys, node.input.schema, "group_by")
    index = _index(node, key_schema)
    stored = _StoredColumns()
    if node.orders_events:  # ties go by whole payloads
        for field_ in node.input.schema:
            stored.add(expression(column(field_.name)), field_.type)
    answers = _answers(node, index, stored)
    insert_only = node.input.properties.is_insert_only
    # Equal events of two groups need a group column if one of them may be retracted.
    inputs, schema = stored.projection(with_group=bool(node.keys) and not insert_only)
    spec = ModuleSpec(
        inputs,
        schema,
        node.policies.stamp,
        waits_for(node),
        node.breaks_ties,
        node.policies.recompute,
        insert_only,
    )
    keys = Projection(node.keys, key_schema) if node.keys else None
    return WindowedOperator(index, Modules(spec, index, answers), keys)


def waits_for(node: ModuleWindow) -> str | None:
    """Which ends modules see that may still move."""
    if not node.waits_for_ends:
        return None
    return "shrink" if node.input.properties.is_shrink_only else "any"


def view_of(node: ModuleWindow) -> View:
    """Which windows are shown (rulings G3, G9)."""
    if node.policies.speculate == "eager":
        return "all"
    return "begun" if node.policies.stamp == "time_bound" else "ended"


def _index(node: ModuleWindow, key_schema: pa.Schema) -> WindowIndex:
    spec = IndexSpec(key_schema, view_of(node), "seen" if node.breaks_ties else node.ends)
    match node.windows:
        case Windows():
            return NumberedIndex(spec, grid_of(node.windows), limit_of(node.windows, node))
        case CountWindows(n, by):
            return CountIndex(spec, n, by)
        case SessionWindows(gap):
            return SessionIndex(spec, gap, insert_only=node.input.properties.is_insert_only)
        case None:
            return SnapshotIndex(spec)
        case unknown:
            assert_never(unknown)


def grid_of(windows: Windows) -> Grid | CalendarGrid:
    """The grid as operators know it."""
    if isinstance(windows, CalendarWindows):
        hops = CalendarHops(windows.unit, windows.hop, windows.tz, windows.offset, windows.offset_months)
        return CalendarGrid(hops, windows.size // windows.hop, windows.until)
    return Grid(windows.size, windows.hop, windows.offset, windows.until)


def limit_of(windows: Windows, node: WindowAggregate | ModuleWindow) -> WindowLimit:
    """How many windows of a step an event may fill."""
    return WindowLimit(node.label, windows.max_windows, node.label_with_units)


@dataclass
class _StoredColumns:
    """The columns that are kept of every event."""

    outputs: list[tuple[str, Expression]] = field(default_factory=list)
    types: list[pa.DataType] = field(default_factory=list)

    def add(self, computed: Expression, kind: pa.DataType) -> str:
        """The name of the column that holds this, which is kept once however many read it."""
        for (name, known), its in zip(self.outputs, self.types, strict=True):
            if known == computed and its == kind:
                return name
        self.outputs.append((f"c{len(self.outputs)}", computed))
        self.types.append(kind)
        return self.outputs[-1][0]

    def projection(
        self, *, with_group: bool
    ) -> tuple[Callable[[pa.RecordBatch, int], pa.RecordBatch], pa.Schema]:
        """What makes the columns, and the schema of what is kept."""
        fields = [pa.field(name, kind) for (name, _), kind in zip(self.outputs, self.types, strict=True)]
        project = Projection(tuple(self.outputs), pa.schema(fields))
        group = [pa.field(GROUP, pa.uint64())] if with_group or not fields else []
        return project, pa.schema([*fields, *group])


def _answers(node: ModuleWindow, index: WindowIndex, stored: _StoredColumns) -> ModuleAnswers:
    if node.operator is not None:
        hosted = _host_module(node, node.operator, stored)
        states = _states(node, hosted, index)
        return OperatorRows(node.schema, len(node.keys), hosted, node.policies.stamp, states)
    values: list[Value] = []
    for name, answer in node.answers:
        if isinstance(answer, Aggregate):
            values.append(BuiltIn(_stored_aggregation(answer, node.input.schema, stored)))
            continue
        hosted, kind = _host_module(node, answer, stored), node.schema.field(name).type
        states = _states(node, hosted, index)
        values.append(ModuleValues(hosted, kind) if states is None else StateValues(hosted, kind, states))
    return NamedValues(node.schema, values)


def _host_module(node: ModuleWindow, call: ModuleCall, stored: _StoredColumns) -> HostedModule:
    columns = [stored.add(e, kind) for (_, e), kind in zip(call.inputs, call.types, strict=True)]
    inputs = pa.schema([(name, kind) for (name, _), kind in zip(call.inputs, call.types, strict=True)])
    caller = Caller(call.module.name, verify=node.policies.verify)
    return HostedModule(call.module, columns, inputs, node.policies.clip, caller, _order(node, call.module))


def _order(node: ModuleWindow, module: Module) -> Order:
    """Members are sorted where results must be the same to the last digit; panes need them by start."""
    if module.is_order_sensitive or node.policies.recompute:
        return "payload"
    return "start" if shares_panes(node, module) else "any"


def _states(node: ModuleWindow, hosted: HostedModule, index: WindowIndex) -> States | None:
    if not hosted.module.is_incremental:
        return None
    panes = None
    if shares_panes(node, hosted.module) and isinstance(node.windows, Windows):
        panes = PaneStates(hosted, grid_of(node.windows).panes(), index.group_hash)
    return States(hosted, index.place, panes)


def shares_panes(node: ModuleWindow, module: Module) -> bool:
    """Is there anything that overlapping windows can share, and can the module merge it?"""
    overlap = isinstance(node.windows, Windows) and node.windows.overlap
    is_mergeable = isinstance(module, Incremental) and module.merge is not None
    return overlap and is_mergeable and not module.is_time_sensitive


def _stored_aggregation(aggregate: Aggregate, schema: pa.Schema, stored: _StoredColumns) -> Aggregation:
    if isinstance(aggregate, aggregates.TimeWeightedMean):
        raise RecensionError(
            f"{aggregate} cannot be used together with modules; write it as a module, an "
            "rc.TimeSensitiveAggregate"
        )
    made = aggregation(aggregate, schema, _NO_AXIS)
    kinds = [result_type(computed, schema, str(aggregate)) for computed in aggregate.inputs]
    names = [stored.add(computed, kind) for computed, kind in zip(aggregate.inputs, kinds, strict=True)]
    if not names:
        return made
    read = _argument([column(name) for name in names], kinds)
    return Aggregation(read, made.measure)


def _argument(
    inputs: Sequence[Expression], kinds: Sequence[pa.DataType]
) -> ComputedColumn | ComputedTogether:
    """What computes the values of events: structs if there are several."""
    if len(inputs) == 1:
        return ComputedColumn(inputs[0], kinds[0])
    return ComputedTogether(tuple(inputs), tuple(kinds))


def aggregate_spec(node: AggregateNode) -> AggregateSpec:
    """What every aggregate operator takes."""
    of = node.input.schema
    key_schema = projected_schema(node.keys, of, "group_by")
    keys = Projection(node.keys, key_schema) if node.keys else None
    aggregations = [
        aggregation(aggregate, node.event_schema, getattr(node, "windows", None))
        for _, aggregate in node.aggregates
    ]
    read = read_changes if isinstance(node, OfAllParts) else None
    return AggregateSpec(node.schema, of, aggregations, keys, key_schema, node.breaks_ties, read)


def aggregation(
    aggregate: aggregates.Aggregate, schema: pa.Schema, windows: WindowKind = None
) -> Aggregation:
    """Sums where the aggregate can take an event back, the events themselves where it cannot.

    Events need not live through count windows and sessions; there sums that keep state of their own do not
    know how to change.
    """
    if not aggregate.inputs:
        return Aggregation(None, accumulators.CountEvents())
    kinds = [result_type(computed, schema, str(aggregate)) for computed in aggregate.inputs]
    return Aggregation(_argument(aggregate.inputs, kinds), _measure(aggregate, schema, kinds[0], windows))


def _measure(
    aggregate: Aggregate, schema: pa.Schema, kind: pa.DataType, windows: WindowKind
) -> accumulators.Accumulator | selections.Selection | selections.TopK:
    match aggregate:
        case aggregates.Count():
            return accumulators.CountValues()
        case aggregates.Sum():
            return _sum(kind, aggregate.result_type(schema))
        case aggregates.Mean():
            return _mean(kind, aggregate.result_type(schema))
        case aggregates.TimeWeightedMean():
            return _weighted_mean(kind, windows)
        case aggregates.AnyTrue() | aggregates.AllTrue():
            return accumulators.CountTruths(every=isinstance(aggregate, aggregates.AllTrue))
        case aggregates.NUnique():
            is_lived_through = not isinstance(windows, CountWindows | SessionWindows)
            return CountDistinct() if is_lived_through else selections.UniqueValues()
        case aggregates.Min() | aggregates.Max():
            return selections.Extreme(greatest=isinstance(aggregate, aggregates.Max))
        case aggregates.ArgMin() | aggregates.ArgMax():
            return selections.ArgExtreme(greatest=isinstance(aggregate, aggregates.ArgMax))
        case aggregates.TopK(k=k, descending=descending):
            kind_of = selections.TopK if aggregate.where is None else selections.FilteredTopK
            return kind_of(k, descending=descending)
        case aggregates.FilteredAggregate(where=where) if where is not None:
            of = _measure(aggregate.without_filter, schema, kind, windows)
            assert isinstance(of, selections.Selection)
            return selections.Filtered(of)
        case aggregates.First() | aggregates.Last():
            return selections.Positional(last=isinstance(aggregate, aggregates.Last))
        case aggregates.Collect():
            return selections.Collect()
        case aggregates.Quantile():
            return selections.RankedValues(aggregate.choose)
        case aggregates.ValueAggregate():
            return selections.SortedValues(aggregate.kernel, aggregate.result_type(schema))
        case aggregates.FunctionOf(fn=fn, result=result):
            return selections.FunctionOf(fn, result)
    raise RecensionError(f"the local engine cannot compute {aggregate}")


def _weighted_mean(kind: pa.DataType, windows: WindowKind) -> accumulators.Accumulator | selections.Selection:
    match windows:
        case None:  # all events of a snapshot live through it
            return _mean(kind, pa.float64())
        case Windows():
            return WeightedMean(grid_of(windows))
        case CountWindows() | SessionWindows():
            return WeightedMeanOfEvents()
        case unknown:
            assert_never(unknown)


def _mean(kind: pa.DataType, result: pa.DataType) -> accumulators.Accumulator:
    if pa.types.is_decimal(kind):
        return decimals.MeanDecimals(kind, result)
    return accumulators.Mean() if pa.types.is_floating(kind) else accumulators.MeanIntegers()


def _sum(kind: pa.DataType, result: pa.DataType) -> accumulators.Accumulator:
    if pa.types.is_decimal(kind):
        return decimals.SumDecimals(kind, result)
    if pa.types.is_floating(kind):
        return accumulators.SumFloats()
    # Sums of narrower numbers stay within int64 for any number of events that fits in memory.
    is_long = pa.types.is_integer(kind) and kind.bit_width == 64
    return accumulators.SumLongs() if is_long else accumulators.SumIntegers()
