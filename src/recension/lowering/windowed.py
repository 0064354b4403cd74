"""How aggregates and modules over windows are done: what is kept, which windows are shown, when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

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
from recension.operators.windowed import accumulators, selections
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation
from recension.operators.windowed.calendar import CalendarGrid, CalendarHops
from recension.operators.windowed.counts import CountIndex
from recension.operators.windowed.grid import Grid
from recension.operators.windowed.index import IndexSpec, View, WindowIndex
from recension.operators.windowed.numbered import NumberedIndex
from recension.operators.windowed.operator import WindowedOperator
from recension.operators.windowed.parts import read_changes
from recension.operators.windowed.snapshots import SnapshotIndex
from recension.plan import aggregates
from recension.plan.aggregate import AggregateNode
from recension.plan.aggregates import Aggregate
from recension.plan.evaluation import Computed, Projection
from recension.plan.expressions import Expression, column, expression
from recension.plan.module_window import ModuleCall, ModuleWindow
from recension.plan.parts import OfAllParts
from recension.plan.span import projected_schema
from recension.plan.windows import CalendarWindows, CountWindows, WindowAggregate, Windows


def module_windows(node: ModuleWindow) -> WindowedOperator:
    """The operator of modules over windows."""
    key_schema = projected_schema(node.keys, node.input.schema, "group_by")
    index = _index(node, key_schema)
    stored = _Stored()
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
class _Stored:
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


def _answers(node: ModuleWindow, index: WindowIndex, stored: _Stored) -> ModuleAnswers:
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


def _host_module(node: ModuleWindow, call: ModuleCall, stored: _Stored) -> HostedModule:
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


def _stored_aggregation(aggregate: Aggregate, schema: pa.Schema, stored: _Stored) -> Aggregation:
    made = aggregation(aggregate, schema)
    if aggregate.argument is None:
        return made
    name = stored.add(aggregate.argument, aggregate.argument_type(schema))
    return Aggregation(lambda payload: payload.column(name), made.measure)


def aggregate_spec(node: AggregateNode) -> AggregateSpec:
    """What every aggregate operator takes."""
    of = node.input.schema
    key_schema = projected_schema(node.keys, of, "group_by")
    keys = Projection(node.keys, key_schema) if node.keys else None
    aggregations = [aggregation(aggregate, node.event_schema) for _, aggregate in node.aggregates]
    read = read_changes if isinstance(node, OfAllParts) else None
    return AggregateSpec(node.schema, of, aggregations, keys, key_schema, node.breaks_ties, read)


def aggregation(aggregate: aggregates.Aggregate, schema: pa.Schema) -> Aggregation:
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
            return Aggregation(argument, _sum(kind))
        case aggregates.Mean():
            return Aggregation(argument, accumulators.Mean() if is_float else accumulators.MeanIntegers())
        case aggregates.Min() | aggregates.Max():
            return Aggregation(argument, selections.Extreme(greatest=isinstance(aggregate, aggregates.Max)))
        case aggregates.First() | aggregates.Last():
            return Aggregation(argument, selections.Positional(last=isinstance(aggregate, aggregates.Last)))
        case aggregates.Collect():
            return Aggregation(argument, selections.Collect())
        case aggregates.Quantile():
            return Aggregation(argument, selections.RankedValues(aggregate.choose))
        case aggregates.ValueAggregate():
            return Aggregation(
                argument, selections.SortedValues(aggregate.kernel, aggregate.result_type(schema))
            )
        case aggregates.FunctionOf(fn=fn, result=result):
            return Aggregation(argument, selections.FunctionOf(fn, result))
        case aggregates.TopK(k=k, descending=descending):
            return Aggregation(argument, selections.TopK(k, descending=descending))
    raise RecensionError(f"the local engine cannot compute {aggregate}")


def _sum(kind: pa.DataType) -> accumulators.Accumulator:
    if pa.types.is_floating(kind):
        return accumulators.SumFloats()
    # Sums of narrower numbers stay within int64 for any number of events that fits in memory.
    is_long = pa.types.is_integer(kind) and kind.bit_width == 64
    return accumulators.SumLongs() if is_long else accumulators.SumIntegers()
