"""The base of all logical nodes: frozen, checked when built, and one object for equal plans.

A query is a graph of nodes. Because equal nodes are the same object, a stream that is used twice, or by
two queries that were written apart, is one node: runners compute it once by remembering nodes.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa

from recension.plan.properties import Properties


class _Key:
    """An identity with its hash worked out once: entries go as late as the interpreter's own end."""

    __slots__ = ("hash", "identity")

    def __init__(self, identity: tuple[Any, ...]) -> None:
        self.identity, self.hash = identity, hash(identity)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


_known: WeakValueDictionary[_Key, Node] = WeakValueDictionary()


class _Interned(ABCMeta):
    """Building a node that exists already gives back the one that exists."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        node = super().__call__(*args, **kwargs)
        return _known.setdefault(_Key(node.identity()), node)


class Node(metaclass=_Interned):
    """One step of a query. Its fields say what it does; everything else is derived from them."""

    ports: ClassVar[tuple[str, ...]] = ("input",)

    def __post_init__(self) -> None:
        """Derive the schema at once, so that an error is raised on the line that caused it."""
        self.schema  # noqa: B018

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes this one reads, in the order of its ports."""
        return tuple(getattr(self, port) for port in self.ports)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """The same step over other inputs."""
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self
        return replace(self, **dict(zip(self.ports, inputs, strict=True)))  # type: ignore[type-var]

    def identity(self) -> tuple[Any, ...]:
        """What makes two nodes equal; inputs are equal when they are the same object."""
        return (type(self), *(getattr(self, field.name) for field in fields(self)))  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        kind, *values = self.identity()
        return kind, tuple(values)

    @cached_property
    def schema(self) -> pa.Schema:
        """The payload columns of the output."""
        return self.derive_schema()

    @cached_property
    def properties(self) -> Properties:
        """What holds for every physical output, whatever arrives in whatever batches."""
        return self.derive_properties()

    @property
    @abstractmethod
    def label(self) -> str:
        """One line for people."""

    @abstractmethod
    def derive_schema(self) -> pa.Schema:
        """The output's columns, or a SchemaError in the user's words."""

    @abstractmethod
    def derive_properties(self) -> Properties:
        """The property rule of this node, from the properties of its inputs."""


def walk(root: Node) -> Iterator[Node]:
    """Every node below and including ``root`` once, inputs before the nodes that read them."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, is_expanded = stack.pop()
        if is_expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.inputs))
