"""Span steps: Spark's own filters and projections where they compute what Arrow does, else Arrow itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column

from recension.plan.expressions import Expression, column
from recension.plan.nodes import Project, Span, Union, Where
from recension.plan.span import SpanNode
from recension.runners.spark.batch.frame import VE, VS, Frame, framed, position
from recension.runners.spark.batch.hosted import each_batch, stand_in
from recension.runners.spark.batch.native import native


def where(node: Where, frame: Frame) -> Frame:
    """The events whose payload satisfies the predicate."""
    holds = native(node.predicate, frame.schema, frame.column)
    return each_batch(node, frame) if holds is None else Frame(frame.df.where(holds), frame.schema)


def project(node: Project, frame: Frame) -> Frame:
    """Other columns."""
    columns = _natively([computed for _, computed in node.outputs], frame)
    if columns is None:
        return each_batch(node, frame)
    chosen = [made.alias(position(i)) for i, made in enumerate(columns)]
    return Frame(frame.df.select(VS, VE, *chosen), node.schema)


def span(node: Span, frame: Frame) -> Frame:
    """Predicates in turn, then the outputs; from the first one that Spark cannot do on, by Arrow."""
    predicates = list(node.predicates)
    while predicates and (holds := native(predicates[0], frame.schema, frame.column)) is not None:
        frame = Frame(frame.df.where(holds), frame.schema)
        predicates.pop(0)
    if predicates:
        return each_batch(replace(node, input=stand_in(frame), predicates=tuple(predicates)), frame)
    return project(Project(stand_in(frame), node.outputs), frame)


def by_kernel(node: SpanNode, frame: Frame) -> Frame:
    """Any other span step, such as a user's function: by its kernel, on batches of rows."""
    return each_batch(node, frame)


def union(node: Union, *frames: Frame) -> Frame:
    """All events of all inputs, columns in the order of the first."""
    first, *others = (
        framed(frame.df, {name: frame.column(name) for name in frame.schema.names}, node.schema).df
        for frame in frames
    )
    for other in others:
        first = first.unionAll(other)
    return Frame(first, node.schema)


def beside(frame: Frame, computed: Sequence[Expression]) -> tuple[Frame, list[str]]:
    """The frame with further columns, and what Spark calls those."""
    own = tuple((name, column(name)) for name in frame.schema.names)
    # No payload column may be called so: names that start with an underscore are reserved.
    fresh = tuple((f"_computed {i}", expression) for i, expression in enumerate(computed))
    wider = project(Project(stand_in(frame), (*own, *fresh)), frame)
    return wider, [wider.name(name) for name, _ in fresh]


def _natively(computed: Sequence[Expression], frame: Frame) -> list[Column] | None:
    found = [native(expression, frame.schema, frame.column) for expression in computed]
    return None if any(made is None for made in found) else found
