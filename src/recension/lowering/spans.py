"""Steps that look at one event at a time: predicates, projections and users' functions as one pass."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recension.core.batch import Mask
from recension.core.errors import RecensionError, SchemaError
from recension.operators.span import Span
from recension.plan import nodes
from recension.plan.evaluation import Predicate, Projection


def span(schema: pa.Schema, predicates: list[Predicate], projection: Projection | None) -> Span:
    """A pass that filters by all predicates and then projects."""

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


def mapping(node: nodes.Map) -> Span:
    """A pass that maps payloads by a user's function."""

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
