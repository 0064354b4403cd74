"""How aggregates are computed: by sums where events can be taken back, else from the events themselves."""

from __future__ import annotations

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.operators.windowed import accumulators, selections
from recension.operators.windowed.aggregates import AggregateSpec, Aggregation
from recension.plan import aggregates, nodes
from recension.plan.evaluation import Computed, Projection
from recension.plan.span import projected_schema


def aggregate_spec(node: nodes.SnapshotAggregate) -> AggregateSpec:
    """What every aggregate operator takes."""
    of = node.input.schema
    key_schema = projected_schema(node.keys, of, "group_by")
    keys = Projection(node.keys, key_schema) if node.keys else None
    aggregations = [aggregation(aggregate, of) for _, aggregate in node.aggregates]
    return AggregateSpec(node.schema, of, aggregations, keys, key_schema, node.breaks_ties)


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
        case aggregates.StdDev():
            return Aggregation(argument, selections.StdDev())
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


def _sum(kind: pa.DataType) -> accumulators.Accumulator:
    if pa.types.is_floating(kind):
        return accumulators.SumFloats()
    # Of narrower numbers it takes more to leave int64 than can be remembered.
    is_long = pa.types.is_integer(kind) and kind.bit_width == 64
    return accumulators.SumLongs() if is_long else accumulators.SumIntegers()
