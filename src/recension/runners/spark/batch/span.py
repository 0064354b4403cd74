"""Span steps: Spark's own filters and projections where they compute what Arrow does, else Arrow itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column

from recension.plan.expressions import Expression, column
from recension.plan.nodes import Project, Span, Where
from recension.runners.spark.batch.expressions import to_spark
from recension.runners.spark.batch.frame import VE, VS, Frame, column_name
from recension.runners.spark.batch.local_operators import map_batches, stand_in_source


def where(node: Where, frame: Frame) -> Frame:
    """The events whose payload satisfies the predicate."""
    holds = to_spark(node.predicate, frame.schema, frame.column)
    return map_batches(node, frame) if holds is None else Frame(frame.df.where(holds), frame.schema)


def project(node: Project, frame: Frame) -> Frame:
    """Other columns."""
    columns = _to_columns([computed for _, computed in node.outputs], frame)
    if columns is None:
        return map_batches(node, frame)
    chosen = [made.alias(column_name(i)) for i, made in enumerate(columns)]
    return Frame(frame.df.select(VS, VE, *chosen), node.schema)


def span(node: Span, frame: Frame) -> Frame:
    """Predicates in turn, then the outputs; from the first one that Spark cannot do on, by Arrow."""
    predicates = list(node.predicates)
    while predicates and (holds := to_spark(predicates[0], frame.schema, frame.column)) is not None:
        frame = Frame(frame.df.where(holds), frame.schema)
        predicates.pop(0)
    if predicates:
        return map_batches(replace(node, input=stand_in_source(frame), predicates=tuple(predicates)), frame)
    return project(Project(stand_in_source(frame), node.outputs), frame)


def add_columns(frame: Frame, computed: Sequence[Expression]) -> tuple[Frame, list[str]]:
    """The frame with further columns, and what Spark calls those."""
    own = tuple((name, column(name)) for name in frame.schema.names)
    # No payload column may be called so: names that start with an underscore are reserved.
    fresh = tuple((f"_computed {i}", expression) for i, expression in enumerate(computed))
    wider = project(Project(stand_in_source(frame), (*own, *fresh)), frame)
    return wider, [wider.name(name) for name, _ in fresh]


def _to_columns(computed: Sequence[Expression], frame: Frame) -> list[Column] | None:
    found = [to_spark(expression, frame.schema, frame.column) for expression in computed]
    return None if any(made is None for made in found) else found
