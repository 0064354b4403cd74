"""Span nodes: each event is treated by itself, whatever its lifetime; union; and distinct.

A span step keeps the order in which elements arrive, drops all elements of an event or none, and leaves
their times alone. That is why most properties pass through it, and why it runs on every engine by its kernel
alone: a function of a batch of payloads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.evaluation import Kernel, Predicate, Projection, span_kernel
from recension.plan.expressions import Expression, require_boolean, result_type
from recension.plan.functions import PassThroughColumns, map_kernel
from recension.plan.node import (
    FilterRule,
    ManyInputsNode,
    Names,
    Needs,
    Node,
    Outputs,
    TimedNode,
    all_of,
    columns_named,
)
from recension.plan.properties import Properties
from recension.plan.schemas import holds_floats, require_names
from recension.plan.structure import NOT_STRUCTURE


class SpanNode(Node):
    """A step that keeps or drops each event by itself and gives it a payload; lifetimes and order stay."""

    input: Node

    passes_external_ctis = True
    is_before_state = True
    ignores_ctis = True
    named_times = ()

    def needs(self) -> None:
        """It can run anywhere."""
        return

    @abstractmethod
    def kernel(self) -> Kernel:
        """What it does to a batch of payloads: which rows stay (None: all), and their new payload."""


@dataclass(frozen=True, eq=False)
class Where(SpanNode):
    """The events whose payload satisfies a predicate; null is not true."""

    input: Node
    predicate: Expression

    @property
    def label(self) -> str:
        return f"where {self.predicate}"

    def derive_schema(self) -> pa.Schema:
        require_boolean(self.predicate, self.input.schema, f"where({self.predicate})")
        return self.input.schema

    def derive_properties(self) -> Properties:
        """Everything passes: fewer events, in the same order, with the same times."""
        return self.input.properties

    kept_columns = Node.every_column

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed | self.predicate.references]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Below it other filters would meet rows that it drops."""
        return (FilterRule(dict(all_of(self.schema))),)

    def as_span(self) -> tuple[tuple[Expression, ...], Outputs]:
        return (self.predicate,), all_of(self.schema)

    with_group_keys = Node.with_grouped_inputs

    def kernel(self) -> Kernel:
        return span_kernel([Predicate(self.predicate)], None)


class OutputsNode(SpanNode):
    """Its columns are outputs, each computed from the payload."""

    outputs: Outputs

    def derive_properties(self) -> Properties:
        return project_properties(self.input.properties, self.outputs, self.input.schema)

    def kept_columns(self) -> Mapping[str, str]:
        return {name: computed.column for name, computed in self.outputs if computed.column}

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], outputs=(*columns_named(keys), *self.outputs))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Project(OutputsNode):
    """Other columns, computed from the payload; events that become equal stay separate events."""

    input: Node
    outputs: Outputs
    verb: str = field(default="select", metadata=NOT_STRUCTURE)
    """Only says, in errors, how the projection was written."""

    @property
    def label(self) -> str:
        return describe_selection(self.outputs, self.input.schema)

    def derive_schema(self) -> pa.Schema:
        return projected_schema(self.outputs, self.input.schema, self.verb)

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset().union(*(e.references for name, e in self.outputs if name in needed))]

    def without_unread(self, needed: Names) -> Node:
        kept = tuple(output for output in self.outputs if output[0] in needed)
        return self if len(kept) == len(self.outputs) else replace(self, outputs=kept)

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return (FilterRule(dict(self.outputs), needs_total=False),)

    def as_span(self) -> tuple[tuple[Expression, ...], Outputs]:
        return (), self.outputs

    def kernel(self) -> Kernel:
        return span_kernel([], Projection(self.outputs, self.schema))


@dataclass(frozen=True, eq=False)
class Span(OutputsNode):
    """Several span steps in one pass: the predicates, each on what the one before left, then the outputs.

    Their order matters: a predicate may protect a later one from rows for which it fails. Spans are made
    after filters have been pushed down, so no filter goes below them.
    """

    input: Node
    predicates: tuple[Expression, ...]
    outputs: Outputs

    @property
    def label(self) -> str:
        steps = [f"where {predicate}" for predicate in self.predicates]
        if not is_identity(self.outputs, self.input.schema):
            steps.append(describe_selection(self.outputs, self.input.schema))
        return "span " + "; ".join(steps)

    def derive_schema(self) -> pa.Schema:
        for predicate in self.predicates:
            require_boolean(predicate, self.input.schema, f"where({predicate})")
        return projected_schema(self.outputs, self.input.schema, "select")

    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def as_span(self) -> tuple[tuple[Expression, ...], Outputs]:
        return self.predicates, self.outputs

    def kernel(self) -> Kernel:
        predicates = [Predicate(predicate) for predicate in self.predicates]
        return span_kernel(predicates, Projection(self.outputs, self.schema))


def projected_schema(outputs: Outputs, schema: pa.Schema, verb: str) -> pa.Schema:
    """The columns the outputs make."""
    require_names([name for name, _ in outputs], verb)
    fields = []
    for name, computed in outputs:
        written = name if name == computed.column else f"{name}={computed}"
        fields.append(pa.field(name, result_type(computed, schema, f"{verb}({written})")))
    return pa.schema(fields)


def project_properties(properties: Properties, outputs: Outputs, schema: pa.Schema) -> Properties:
    """Order and times stay; a key stays a key only if all columns are kept."""
    kept = {computed.column for _, computed in outputs}
    return replace(properties, has_key=properties.has_key and set(schema.names) <= kept)


def is_identity(outputs: Outputs, schema: pa.Schema) -> bool:
    """Do the outputs give back the columns as they are?"""
    return [name for name, _ in outputs] == schema.names and all(name == e.column for name, e in outputs)


def describe_selection(outputs: Outputs, schema: pa.Schema) -> str:
    """The outputs; if all columns keep their places, only those that are new or computed."""
    if [name for name, _ in outputs[: len(schema.names)]] == schema.names:
        changed = [(name, computed) for name, computed in outputs if name != computed.column]
        return f"with {describe_outputs(changed)}" if changed else "select all"
    return f"select {describe_outputs(outputs)}"


def describe_outputs(outputs: Sequence[tuple[str, Any]]) -> str:
    """Outputs as they would be written: ``user, twice = 2 * bytes``."""
    return ", ".join(name if str(computed) == name else f"{name} = {computed}" for name, computed in outputs)


@dataclass(frozen=True, eq=False)
class Map(SpanNode):
    """A function of the payload: of a whole Arrow batch, or of one row as a mapping.

    The same payload must always give the same answer, or a retraction would miss its event.
    """

    input: Node
    fn: Callable[[Any], Any]
    columns: pa.Schema
    per_row: bool = False

    @property
    def label(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"map {'each row' if self.per_row else 'batches'} by {name}"

    def derive_schema(self) -> pa.Schema:
        if not callable(self.fn):
            raise SchemaError(f"map: {self.fn!r} is not a function")
        return self.columns

    def derive_properties(self) -> Properties:
        """As for a projection without a key: two payloads can become one."""
        return replace(self.input.properties, has_key=False)

    def kept_columns(self) -> Mapping[str, str]:
        """What a user's function does to columns is not known, nor which it reads."""
        return {}

    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """The function does not see the keys."""
        (below,) = inputs
        columns = pa.schema([*projected_schema(columns_named(keys), below.schema, "apply"), *self.columns])
        return replace(self, input=below, fn=PassThroughColumns(self.fn, keys), columns=columns)

    def kernel(self) -> Kernel:
        return map_kernel(self.fn, self.schema, self.label, per_row=self.per_row)


@dataclass(frozen=True, eq=False)
class Union(ManyInputsNode):
    """All events of all inputs, as a bag; columns in the order of the first input."""

    streams: tuple[Node, ...]

    label = "union"
    narrows_inputs = True
    passes_external_ctis = True
    is_before_state = False
    ignores_ctis = True
    named_times = ()

    def derive_schema(self) -> pa.Schema:
        return self.require_alike("union", "nothing to unite")

    def derive_properties(self) -> Properties:
        """Inputs interleave and may hold equal events: no order, no key."""
        inputs = [stream.properties for stream in self.streams]
        durations = {p.constant_duration for p in inputs}
        return Properties(
            is_insert_only=all(p.is_insert_only for p in inputs),
            is_shrink_only=all(p.is_shrink_only for p in inputs),
            constant_duration=durations.pop() if len(durations) == 1 else None,
        )

    def needs(self) -> None:
        return None

    kept_columns = Node.every_column

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed for _ in self.streams]

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        return tuple(FilterRule(dict(all_of(self.schema)), needs_total=False) for _ in self.streams)

    with_group_keys = Node.with_grouped_inputs


@dataclass(frozen=True, eq=False)
class Distinct(TimedNode):
    """At every instant each payload once, on maximal lifetimes."""

    input: Node

    label = "distinct"
    ignores_ctis = True
    named_times = ()

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        """Equal payloads never overlap or meet, so the start tells them apart.

        Nothing else: even inserts alone make it lengthen what it has shown.
        """
        return Properties(has_key=True)

    def needs(self) -> Needs:
        """Equal payloads together."""
        return (all_of(self.schema),)

    kept_columns = Node.every_column
    # Payloads are compared whole.
    columns_read = Node.all_columns

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """Not those that can tell equal payloads apart, such as 0.0 and -0.0."""
        return (FilterRule(indistinct_columns(self.schema, self.schema.names), needs_total=False),)

    with_group_keys = Node.with_grouped_inputs


def indistinct_columns(schema: pa.Schema, names: Sequence[str]) -> dict[str, Expression]:
    """The columns whose equal values no filter can tell apart; of floats it can: 0.0 and -0.0 are equal."""
    return dict(columns_named(name for name in names if not holds_floats(schema.field(name).type)))
