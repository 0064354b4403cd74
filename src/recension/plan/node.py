"""The base of all logical nodes: frozen, checked when built, and one object for equal plans.

A query is a graph of nodes. Because equal nodes are the same object, a stream that is used twice, or by
two queries that were written apart, is one node: runners compute it once by remembering nodes.

A node says itself what rewrites, the partitioning and group-and-apply have to know of it. What has no safe
answer is abstract: a class that leaves such a question open cannot be built. Where there is an answer that
is right for every step, if slower, the base class gives it and says so.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias
from weakref import WeakValueDictionary

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.core.time_kind import TimeKind
from recension.plan.expressions import Expression, column
from recension.plan.properties import Properties
from recension.plan.schemas import require_same_columns
from recension.plan.structure import (
    ByReference,
    Structure,
    memory_structure,
    written_fields,
    written_structure,
)

Outputs: TypeAlias = tuple[tuple[str, Expression], ...]
"""Columns by name, each with what it is computed from."""
Names: TypeAlias = frozenset[str]
# For each input, the keys by which events are sharded; no keys at all mean one shard.
Needs: TypeAlias = tuple[Outputs, ...]
Speculate: TypeAlias = Literal["perfect", "ordered", "eager"]
LevelPart: TypeAlias = Literal["block", "remember"]


@dataclass(frozen=True)
class FilterRule:
    """Which filters above a step may go below it, into one of its inputs: those that read these columns.

    ``columns`` says what each of them is over the input's columns. Below a step that drops events a filter
    meets rows that it never met before: there it needs a value for every row (``needs_total``).
    """

    columns: Mapping[str, Expression]
    needs_total: bool = True


class _Key:
    """An identity with its hash computed once: entries may be removed while the interpreter shuts down."""

    __slots__ = ("hash", "identity")

    def __init__(self, identity: tuple[Any, ...]) -> None:
        self.identity, self.hash = identity, hash(identity)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


_known: WeakValueDictionary[_Key, Node] = WeakValueDictionary()


class _InterningMeta(ABCMeta):
    """To build a node that exists already gives that node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        node = super().__call__(*args, **kwargs)
        kind, *values = node.identity()
        return _known.setdefault(_Key((kind, *map(memory_structure, values))), node)


class Node(ByReference, metaclass=_InterningMeta):
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
        """What makes two nodes equal, by structure; inputs are equal when they are the same object."""
        return (type(self), *(getattr(self, name) for name in written_fields(type(self))))

    @cached_property
    def structure(self) -> Structure:
        """What this step is, apart from its inputs, as checkpoints have it: inputs are numbers of ports."""
        named = (
            (name, written_structure(getattr(self, name), self._reference))
            for name in written_fields(type(self))
        )
        return (type(self).__name__, *named)

    def _reference(self, node: ByReference) -> Structure:
        """A node in a field: an input, or a plan of its own."""
        assert isinstance(node, Node)
        ports = [port for port, child in enumerate(self.inputs) if child is node]
        return ("input", *ports) if ports else ("plan", *plan_structure([node]))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """By its fields in their order: `identity` has them in another where a subclass adds some."""
        own = fields(self)  # type: ignore[arg-type]
        return type(self), tuple(getattr(self, field.name) for field in own)

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
        """The property rule of this node, from the properties of its inputs: order, keys, durations."""

    # Where it can run.

    @abstractmethod
    def needs(self) -> Needs | None:
        """The events that it must see together, for each input; None if it can run anywhere."""

    is_spread: ClassVar[bool] = False
    """Does it run in every shard, on whatever events are there? The safe answer is no: a step that can run
    anywhere then moves with its reader."""

    everywhere: ClassVar[frozenset[int]] = frozenset()
    """The ports whose events every shard must get. The safe answer is none: they are sent as `needs` says."""

    @property
    def why_single(self) -> str:
        """What the step does for which all events must be in one shard, if `needs` names no keys."""
        return "has no key"

    def can_hear(self, source: Node | None) -> bool:
        """Can it run in every shard after all, if a clock tells it how far the rows of all shards have got?

        ``source``: whose rows it reads, less those that span steps drop; None: the answers of shards. The
        safe answer is no.
        """
        return False

    def with_clock(self, stream: Node, clock: Node) -> Node:
        """The same step in a shard, which hears the clock; asked only if it `can_hear`."""
        raise NotImplementedError(self.label)

    # Its columns.

    @abstractmethod
    def kept_columns(self) -> Mapping[str, str]:
        """Output columns that hold, in every event, an unchanged column of each input; and which one.

        Columns that are not named may be anything.
        """

    @abstractmethod
    def columns_read(self, needed: Names) -> list[Names]:
        """The columns it reads of each input, when ``needed`` is what is read of its output."""

    narrows_inputs: ClassVar[bool] = False
    """Are columns that it does not read dropped right before it? The safe answer is no: it gets them and does
    not look at them. A step that keeps its input's payloads, or needs equal columns, says yes."""

    def without_unread(self, needed: Names) -> Node:
        """The same step without the outputs that are not ``needed``. The safe answer is to give them all."""
        return self

    # What may pass it.

    @abstractmethod
    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """For each input, which filters may go below this step; None for none at all."""

    @property
    @abstractmethod
    def passes_external_ctis(self) -> bool:
        """Do external CTIs, which count the elements of a source, still count right above this step?"""

    def as_span(self) -> tuple[tuple[Expression, ...], Outputs] | None:
        """The step as predicates, each on what the one before left, then outputs, if that is all it does.

        Neighbours of this form become one pass. The safe answer is None: it stays a pass of its own.
        """
        return None

    # Consistency.

    @property
    @abstractmethod
    def is_before_state(self) -> bool:
        """Does a level of consistency go above it? Yes for steps of one input that look at one event at a
        time, advance time or give a level; no for all others, which it goes below."""

    @property
    def level_parts(self) -> frozenset[LevelPart]:
        """The parts of a level of consistency that it gives by itself. The safe answer is none: a level puts
        them in as well."""
        return frozenset()

    @property
    def advances_time(self) -> bool:
        """Does it make CTIs of its own? The safe answer is no: the past is then closed below it."""
        return False

    @property
    def event_inputs(self) -> tuple[Node, ...]:
        """The inputs, first among all, of which it reads events and not only CTIs. The safe answer is all."""
        return self.inputs

    def with_speculate(self, speculate: Speculate) -> Node:
        """The same step in another variant. The safe answer is the step itself: there is only one."""
        return self

    @property
    @abstractmethod
    def named_times(self) -> tuple[tuple[str, int], ...]:
        """The times (not durations) that the query names here, each with the argument that names it."""

    @property
    def times_made(self) -> TimeKind:
        """The kind of the times that it makes of columns. The safe answer is that it makes none."""
        return None

    @property
    def own_plans(self) -> list[Node]:
        """The plans that it holds and runs by itself: nodes in its fields that are not its inputs."""
        held = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return [value for value in held if isinstance(value, Node) and value not in self.inputs]

    # Group and apply.

    @property
    @abstractmethod
    def ignores_ctis(self) -> bool:
        """Are its answers for a group independent of other groups, and of when CTIs come?"""

    @property
    def holds_ctis_by_group(self) -> bool:
        """Done for all groups at once, does it hold back the CTIs of one group for another?

        Steps above it that look at CTIs then run group by group, and so does it. The safe answer is no: what
        looks at CTIs itself says so by `ignores_ctis`.
        """
        return False

    def is_keyed(self, grouped: Set[Node]) -> bool:
        """Can it be done for all groups at once, by keys that travel with the payload?

        No if it counts elements, measures time or decides what is late within each group.
        ``grouped`` are the steps that read the group. The safe answer is no, unless it ignores CTIs: it then
        runs group by group.
        """
        return self.ignores_ctis

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        """The inputs whose events can be seen in the output even if the others have none.

        The safe answer is all of them: in a query on a group they must then be of the group.
        """
        return self.inputs

    @abstractmethod
    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """The step on all groups at once: its first columns are ``keys``, and events meet if those are equal.

        ``inputs`` are what it then reads. Those of the group have the keys; the others are as before.
        """

    # Answers that several nodes share.

    def every_column(self) -> Mapping[str, str]:
        """All columns are kept under their names."""
        return same_names(self.schema)

    def all_columns(self, needed: Names) -> list[Names]:
        """All columns of all inputs are read."""
        return [frozenset(child.schema.names) for child in self.inputs]

    def no_filters(self) -> tuple[None, ...]:
        """No filter goes below."""
        return tuple(None for _ in self.inputs)

    def with_grouped_inputs(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """Keys in the payload change nothing in what it does."""
        return self.with_inputs(inputs)


class ManyInputsNode(Node):
    """A step of any number of inputs, ``streams``."""

    streams: tuple[Node, ...]
    ports: ClassVar[tuple[str, ...]] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, streams=tuple(inputs))  # type: ignore[type-var]

    def require_alike(self, verb: str, missing: str) -> pa.Schema:
        """The columns of all inputs, or an error if there are none or they differ."""
        if not self.streams:
            raise SchemaError(f"{verb}: {missing}")
        first = self.streams[0].schema
        for other in self.streams[1:]:
            require_same_columns(first, other.schema, verb)
        return first


class TimedNode(Node):
    """A step whose answers depend on lifetimes: it needs retractions in order, and CTIs to free its state.

    So external CTIs are taken in below it, and so is a level of consistency (CEDR operators, §3).
    """

    passes_external_ctis = False
    is_before_state = False


class PairNode(TimedNode):
    """A step of two inputs, whose events meet if the columns ``on`` are equal."""

    on: tuple[str, ...]

    narrows_inputs = True
    ignores_ctis = True
    named_times = ()

    def needs(self) -> Needs:
        keys = columns_named(self.on)
        return (keys, keys)

    def kept_columns(self) -> Mapping[str, str]:
        """Only the keys are in both inputs."""
        return {name: name for name in self.on}


def plan_structure(roots: Sequence[Node]) -> list[Structure]:
    """The structures of the steps of some queries, each with the numbers of the steps it reads.

    Shared steps are there once; inputs come before their readers.
    """
    numbers = {node: number for number, node in enumerate(each_once(roots))}
    return [(node.structure, tuple(numbers[child] for child in node.inputs)) for node in numbers]


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


def all_of(schema: pa.Schema) -> Outputs:
    """All columns as they are."""
    return columns_named(schema.names)


def columns_named(names: Iterable[str]) -> Outputs:
    """Columns as they are."""
    return tuple((name, column(name)) for name in names)


def same_names(schema: pa.Schema) -> dict[str, str]:
    """All columns are kept under their names."""
    return {name: name for name in schema.names}


def each_once(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node of the queries once, inputs before their readers."""
    seen: set[Node] = set()
    for root in roots:
        for node in walk(root):
            if node not in seen:
                seen.add(node)
                yield node


def count_readers(roots: Sequence[Node]) -> Counter[Node]:
    """How often each node is read, by other nodes or as a query's answer."""
    readers = Counter(roots)
    for node in each_once(roots):
        readers.update(node.inputs)
    return readers


def rebuild(roots: Sequence[Node], step: Callable[[Node], Node]) -> list[Node]:
    """Every node replaced by ``step`` of it over its replaced inputs; shared nodes stay shared."""
    new: dict[Node, Node] = {}
    for node in each_once(roots):
        new[node] = step(node.with_inputs([new[child] for child in node.inputs]))
    return [new[root] for root in roots]
