"""Span nodes: each event is treated by itself, whatever its lifetime; union; and distinct.

A span step keeps the order in which elements arrive, drops all elements of an event or none, and leaves
their times alone. That is why most properties pass through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.plan.expressions import Expression, require_boolean, result_type
from recension.plan.node import Node
from recension.plan.properties import Properties
from recension.plan.schemas import require_names, require_same_columns

Outputs: TypeAlias = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, eq=False)
class Where(Node):
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


@dataclass(frozen=True, eq=False)
class Project(Node):
    """Other columns, computed from the payload; events that become equal stay separate events."""

    input: Node
    outputs: Outputs
    verb: str = "select"

    @property
    def label(self) -> str:
        return selection_in_words(self.outputs, self.input.schema)

    def identity(self) -> tuple[Any, ...]:
        """``verb`` only says, in errors, how the projection was written."""
        return (type(self), self.input, self.outputs)

    def derive_schema(self) -> pa.Schema:
        return projected_schema(self.outputs, self.input.schema, self.verb)

    def derive_properties(self) -> Properties:
        return projected(self.input.properties, self.outputs, self.input.schema)


@dataclass(frozen=True, eq=False)
class Span(Node):
    """Several span steps in one pass: the predicates, each on what the one before left, then the outputs.

    The turn matters: a predicate may protect a later one from rows it cannot be computed for.
    """

    input: Node
    predicates: tuple[Expression, ...]
    outputs: Outputs

    @property
    def label(self) -> str:
        steps = [f"where {predicate}" for predicate in self.predicates]
        if not is_identity(self.outputs, self.input.schema):
            steps.append(selection_in_words(self.outputs, self.input.schema))
        return "span " + "; ".join(steps)

    def derive_schema(self) -> pa.Schema:
        for predicate in self.predicates:
            require_boolean(predicate, self.input.schema, f"where({predicate})")
        return projected_schema(self.outputs, self.input.schema, "select")

    def derive_properties(self) -> Properties:
        return projected(self.input.properties, self.outputs, self.input.schema)


def projected_schema(outputs: Outputs, schema: pa.Schema, verb: str) -> pa.Schema:
    """The columns the outputs make."""
    require_names([name for name, _ in outputs], verb)
    fields = []
    for name, computed in outputs:
        written = name if name == computed.column else f"{name}={computed}"
        fields.append(pa.field(name, result_type(computed, schema, f"{verb}({written})")))
    return pa.schema(fields)


def projected(properties: Properties, outputs: Outputs, schema: pa.Schema) -> Properties:
    """Order and times stay; a key stays one only where every column is still there to tell payloads apart."""
    kept = {computed.column for _, computed in outputs}
    return replace(properties, has_key=properties.has_key and set(schema.names) <= kept)


def is_identity(outputs: Outputs, schema: pa.Schema) -> bool:
    """Do the outputs give back the columns as they are?"""
    return [name for name, _ in outputs] == schema.names and all(name == e.column for name, e in outputs)


def selection_in_words(outputs: Outputs, schema: pa.Schema) -> str:
    """The outputs; where all columns keep their places, only the ones that are new or computed anew."""
    if [name for name, _ in outputs[: len(schema.names)]] == schema.names:
        changed = [(name, computed) for name, computed in outputs if name != computed.column]
        return f"with {in_words(changed)}" if changed else "select all"
    return f"select {in_words(outputs)}"


def in_words(outputs: Sequence[tuple[str, Any]]) -> str:
    """Outputs as they would be written: ``user, twice = 2 * bytes``."""
    return ", ".join(name if str(computed) == name else f"{name} = {computed}" for name, computed in outputs)


@dataclass(frozen=True, eq=False)
class Map(Node):
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
        """As a projection that may forget: two payloads can become one."""
        return replace(self.input.properties, has_key=False)


@dataclass(frozen=True, eq=False)
class Union(Node):
    """All events of all inputs, as a bag; columns in the order of the first input."""

    streams: tuple[Node, ...]
    ports: ClassVar[tuple[str, ...]] = ()

    @property
    def label(self) -> str:
        return "union"

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return Union(tuple(inputs))

    def derive_schema(self) -> pa.Schema:
        if not self.streams:
            raise SchemaError("union: nothing to unite")
        first = self.streams[0].schema
        for other in self.streams[1:]:
            require_same_columns(first, other.schema, "union")
        return first

    def derive_properties(self) -> Properties:
        """Inputs interleave as they please, and may hold equal events: no order, no key."""
        inputs = [stream.properties for stream in self.streams]
        durations = {p.constant_duration for p in inputs}
        return Properties(
            is_insert_only=all(p.is_insert_only for p in inputs),
            is_shrink_only=all(p.is_shrink_only for p in inputs),
            constant_duration=durations.pop() if len(durations) == 1 else None,
        )


@dataclass(frozen=True, eq=False)
class Distinct(Node):
    """At every instant each payload once, on maximal lifetimes."""

    input: Node

    @property
    def label(self) -> str:
        return "distinct"

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def derive_properties(self) -> Properties:
        """Equal payloads never overlap or meet, so the start tells them apart.

        Nothing else: even inserts alone make it lengthen what it has shown.
        """
        return Properties(has_key=True)
