"""Group and apply, one group at a time: for steps that have no form for all groups at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from recension.plan.node import (
    ManyInputsNode,
    Needs,
    Node,
    Speculate,
    TimedNode,
    columns_named,
    rebuild,
    walk,
)
from recension.plan.properties import Properties
from recension.plan.source import Leaf


@dataclass(frozen=True, eq=False)
class Port(Leaf):
    """What a group's plan reads: the group's part of a stream, or all of another one."""

    number: int
    columns: pa.Schema
    declared: Properties

    @property
    def label(self) -> str:
        return f"input {self.number}"

    def derive_schema(self) -> pa.Schema:
        return self.columns

    def derive_properties(self) -> Properties:
        return self.declared


@dataclass(frozen=True, eq=False)
class GroupApply(ManyInputsNode, TimedNode):
    """``plan`` for every group by itself, the group's ``keys`` first in its answers.

    The first ``split`` streams begin with the keys and are split by them; the others are the same for every
    group. The plan's ports are numbered as the streams are.
    """

    streams: tuple[Node, ...]
    keys: tuple[str, ...]
    split: int
    plan: Node

    ignores_ctis = False
    named_times = ()

    @property
    def label(self) -> str:
        steps = ", then ".join(step.label for step in self.steps)
        return f"by {', '.join(self.keys)}, each by itself: {steps}"

    @property
    def steps(self) -> list[Node]:
        """The steps of the plan, from its ports up."""
        return [node for node in walk(self.plan) if not isinstance(node, Port)]

    def with_inputs(self, inputs: Sequence[Node]) -> GroupApply:
        """The properties of the streams become those of the plan's ports."""
        if all(new is old for new, old in zip(inputs, self.streams, strict=True)):
            return self
        return replace(self, streams=tuple(inputs), plan=_read(self.plan, inputs))

    def derive_schema(self) -> pa.Schema:
        first = self.streams[0].schema
        return pa.schema([*(first.field(name) for name in self.keys), *self.plan.schema])

    def derive_properties(self) -> Properties:
        """Only what does not depend on other groups: no group waits for another."""
        of = self.plan.properties
        return Properties(
            is_insert_only=of.is_insert_only,
            has_key=of.has_key,
            is_shrink_only=of.is_shrink_only,
            constant_duration=of.constant_duration,
        )

    why_single = "reads a stream that is not split into groups, which every group needs"

    def needs(self) -> Needs:
        """Each group together; all groups together if they also read a stream that is not split."""
        keys = columns_named(self.keys if self.split == len(self.streams) else ())
        return (keys,) * len(self.streams)

    def kept_columns(self) -> Mapping[str, str]:
        """None if there is a stream that is not split: it has no keys."""
        return {name: name for name in self.keys} if self.split == len(self.streams) else {}

    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def with_speculate(self, speculate: Speculate) -> Node:
        """Every step of the plan in this variant."""
        (plan,) = rebuild([self.plan], lambda step: step.with_speculate(speculate))
        return replace(self, plan=plan)

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return grouped.isdisjoint(self.inputs[self.split :])

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        return self.inputs[: self.split]

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self.with_inputs(inputs), keys=(*keys, *self.keys))


def each_group(step: Node, keys: tuple[str, ...], grouped: Node) -> GroupApply:
    """A step of one input, done for each group of a stream that begins with the groups' keys."""
    (below,) = step.inputs
    return GroupApply((grouped,), keys, 1, step.with_inputs([Port(0, below.schema, below.properties)]))


def _read(plan: Node, streams: Sequence[Node]) -> Node:
    """The plan over ports that declare what is known of the streams."""

    def port(node: Node) -> Node:
        return replace(node, declared=streams[node.number].properties) if isinstance(node, Port) else node

    (new,) = rebuild([plan], port)
    return new
