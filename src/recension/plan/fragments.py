"""A query split into fragments at each shuffle.

Fragments have levels. A fragment runs in every shard (or in one), on the events that were sent there. Its
output goes to fragments of later levels, each event to the shard that its route names.
A fragment is a query like any other: its sources are the edges over which events reach it.

Where a query is cut follows from what its steps need together (`Node.needs`). A step that looks at each event
by itself can run anywhere. A grouped step needs the events of a group in one shard; the columns that tell
groups apart in its output decide whether the step above it needs a shuffle. A step that looks at all events,
or puts all of them in order, needs them in one shard; unless it `can_hear` from a clock all that it needs to
know of the rows of other shards.

    level 2    total by country                      one shuffle, by country
                     │
    level 1    per-site count ── join on site        both read what was sent by site
                     │                │
    level 0      leases            sites             steps below the first shuffle move with its reader
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from recension.plan.consistency import Consistency
from recension.plan.expressions import Expression, column
from recension.plan.node import Needs, Node, Outputs, count_readers, each_once, same_names
from recension.plan.properties import Properties
from recension.plan.source import Source
from recension.plan.span import SpanNode


@dataclass(frozen=True, slots=True)
class Route:
    """Where an event goes: by the values of ``keys`` after the steps of ``path``.

    No keys at all send every event to one shard; None spreads them by their whole payload, unless every shard
    gets all.
    """

    path: tuple[Node, ...]
    keys: Outputs | None
    is_everywhere: bool = False

    @property
    def is_single(self) -> bool:
        """Does everything go to one shard?"""
        return self.keys == ()

    def __str__(self) -> str:
        if self.is_everywhere:
            return "to every shard"
        if self.keys is None:
            return "by their whole payload"
        return "by " + ", ".join(name for name, _ in self.keys) if self.keys else "to one shard"


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells a step in one shard how far the rows of all shards have got."""

    source: Source
    """Stands for the clock in the plan of the step's fragment."""
    path: tuple[Node, ...]
    """Span steps between the edge and the step: rows that these drop do not count."""
    step: Node
    """The step as the query has it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What one fragment reads: a source, or what a fragment of an earlier level gives."""

    source: Source
    """Stands for the edge in the plan of its reader."""
    origin: Node
    """The node of the whole query that gives the events."""
    route: Route
    level: int
    clock: Clock | None = None
    """Of a step that hears of all rows of this edge. No other step reads the edge."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a query that runs at one level, in every shard or in one."""

    level: int
    is_single: bool
    edges: tuple[Edge, ...]
    outputs: tuple[tuple[Node, Node], ...]
    """Nodes of the whole query that others need, each as a plan over the edges' sources."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node runs. Level 0: wherever its reader does."""

    level: int = 0
    is_single: bool = False
    keys: tuple[str, ...] = ()
    """Output columns that decide the shard of an event; empty if they are not known."""


_LOOSE = NodePlace()


def cut(roots: Sequence[Node], shards: int = 2) -> list[Fragment]:
    """The fragments of some queries, by level; shared parts are there once. One shard needs no clocks."""
    nodes, early = list(each_once(roots)), set[Node]()
    while True:
        places = _place_nodes(roots, nodes, early, shards)
        fragments = _Cutter(roots, nodes, places, has_clocks=shards > 1).fragments()
        paths = (edge.route.path for fragment in fragments for edge in fragment.edges)
        unknown = {step for path in paths for step in path if not runs_before_shuffle(step)}
        if not unknown:
            return fragments
        early |= unknown


def runs_before_shuffle(step: Node) -> bool:
    """Can it compute keys of payloads alone, before the events are where they belong?"""
    return isinstance(step, SpanNode) or step.kept_columns() == same_names(step.schema)


def _place_nodes(
    roots: Sequence[Node], nodes: Sequence[Node], early: Set[Node], shards: int
) -> dict[Node, NodePlace]:
    """Where each node runs; those that are ``early`` before a shuffle by what they compute."""
    readers, places = count_readers(roots), dict[Node, NodePlace]()
    for node in nodes:
        inputs = [places[child] for child in node.inputs]
        places[node] = _place_with_all(node, inputs, shards) if node.everywhere else _place(node, inputs)
        if node in early and not places[node].level:
            places[node] = NodePlace(1)
        is_kept_twice = readers[node] > 1 and isinstance(node, Consistency)
        if not places[node].level and (node in roots or is_kept_twice):
            places[node] = NodePlace(1)
    return places


def _place(node: Node, inputs: list[NodePlace]) -> NodePlace:
    need = node.needs()
    if need is None:
        return _place_anywhere(node, inputs)
    level = max(place.level for place in inputs)
    if not any(need) and (place := _place_by_clock(node, inputs)) is not None:
        return place
    if level and (positions := _common_positions(need, inputs, level)) is not None:
        is_single = not need[0]
        return NodePlace(level, is_single, () if is_single else _key_names(need, positions))
    keys = need[0]
    return NodePlace(level + 1, not keys, _key_names(need, tuple(range(len(keys)))))


def _place_with_all(node: Node, inputs: list[NodePlace], shards: int) -> NodePlace:
    """Where a step is that leaves payloads as they are, and gets all events of some inputs in every shard.

    These are sent there, and so come from earlier levels; with one shard they are there.
    """
    of_all = [place for port, place in enumerate(inputs) if port in node.everywhere]
    if shards == 1 and len({(place.level, place.is_single) for place in inputs}) == 1:
        return inputs[0]
    level = 1 + max(place.level for place in of_all)
    return inputs[0] if inputs[0].level >= level else NodePlace(level)


def _place_anywhere(node: Node, inputs: list[NodePlace]) -> NodePlace:
    placed = [place for place in inputs if place.level]
    if not placed:
        return NodePlace(1) if node.is_spread else _LOOSE
    if len(inputs) == 1:
        return replace(placed[0], keys=_carry_forward(node, placed[0].keys) or ())
    if len({(place.level, place.is_single) for place in placed}) > 1:
        return NodePlace(max(place.level for place in placed) + 1)
    keys = {place.keys for place in inputs}
    return replace(placed[0], keys=keys.pop() if len(keys) == 1 else ())


def _place_by_clock(node: Node, inputs: list[NodePlace]) -> NodePlace | None:
    """Where a step is that hears from a clock what it must know of other shards; None if none can tell it.

    Above a source it moves with its reader. What shards give is sent once more, for the clock to see it.
    """
    if inputs[0].level:
        return NodePlace(inputs[0].level + 1) if not inputs[0].is_single and node.can_hear(None) else None
    source, _ = _rows_below(node)
    return _LOOSE if isinstance(source, Source) and node.can_hear(source) else None


def _rows_below(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """What a step reads, less the span steps between, and these, the first of them first."""
    spans: list[Node] = []
    below = node.inputs[0]
    while isinstance(below, SpanNode):
        spans.insert(0, below)
        below = below.inputs[0]
    return below, tuple(spans)


def _common_positions(need: Needs, inputs: list[NodePlace], level: int) -> tuple[int, ...] | None:
    """The positions of the keys by which events of that level are sharded already; None if they must move.

    What comes from an earlier level, or straight from sources, can be sent by the same keys.
    """
    found: set[tuple[int, ...] | None] = set()
    for keys, place in zip(need, inputs, strict=True):
        if place.level == level:
            found.add(() if not keys and place.is_single else _positions(keys, place))
    return found.pop() if len(found) == 1 else None


def _positions(keys: Outputs, place: NodePlace) -> tuple[int, ...] | None:
    """The positions, among the keys, of the columns that decide the shard."""
    columns = [computed.column for _, computed in keys]
    if place.is_single or not place.keys or any(name not in columns for name in place.keys):
        return None
    return tuple(columns.index(name) for name in place.keys)


def _key_names(need: Needs, positions: tuple[int, ...]) -> tuple[str, ...]:
    """The names that the keys at these positions have in the output."""
    return tuple(need[0][position][0] for position in positions)


class _Cutter:
    """Builds the fragments once every node has its place."""

    def __init__(
        self, roots: Sequence[Node], nodes: list[Node], places: dict[Node, NodePlace], *, has_clocks: bool
    ) -> None:
        self._nodes, self._places, self._has_clocks = nodes, places, has_clocks
        self._edges: dict[tuple[int, bool, Node, Route, Node | None], Edge] = {}
        self._plans: dict[Node, Node] = {}
        self._given: dict[Node, None] = dict.fromkeys(roots)
        self._names: set[str] = set()

    def fragments(self) -> list[Fragment]:
        for node in self._nodes:
            if self._places[node].level:
                self._plans[node] = self._plan(node)
        homes = dict.fromkeys(
            (place.level, place.is_single) for place in (self._places[node] for node in self._given)
        )
        return [self._fragment(*home) for home in sorted(homes)]

    def _fragment(self, level: int, is_single: bool) -> Fragment:
        here = [n for n in self._given if self._is_at(self._places[n], level, is_single)]
        edges = tuple(edge for key, edge in self._edges.items() if key[:2] == (level, is_single))
        return Fragment(level, is_single, edges, tuple((node, self._plans[node]) for node in here))

    def _is_at(self, place: NodePlace, level: int, is_single: bool) -> bool:
        return (place.level, place.is_single) == (level, is_single)

    def _plan(self, node: Node) -> Node:
        """A placed node over the edges of its fragment."""
        place = self._places[node]
        if isinstance(node, Source):
            return self._edge(node, Route((), None), place).source
        if self._hears(node, place):
            return self._hear(node, (), None, place)
        return node.with_inputs(
            [
                self._read(child, keys, place, is_everywhere=port in node.everywhere and not place.is_single)
                for port, (child, keys) in enumerate(zip(node.inputs, self._keys(node), strict=True))
            ]
        )

    def _keys(self, node: Node) -> list[Outputs | None]:
        """The keys by which the events of each input are sent, if they come over an edge."""
        need, place = node.needs(), self._places[node]
        if place.is_single:
            return [()] * len(node.inputs)
        if need is None:
            return [None] * len(node.inputs)
        names = place.keys
        positions = [i for i, (name, _) in enumerate(need[0]) if name in names]
        return [tuple(keys[i] for i in positions) for keys in need]

    def _read(self, child: Node, keys: Outputs | None, place: NodePlace, *, is_everywhere: bool) -> Node:
        at = self._places[child]
        if not at.level:
            return self._read_loose(child, (), keys, place)
        if self._is_at(at, place.level, place.is_single):
            return self._plans[child]
        self._given[child] = None
        return self._edge(child, Route((), keys, is_everywhere), place).source

    def _read_loose(
        self, node: Node, above: tuple[Node, ...], keys: Outputs | None, place: NodePlace
    ) -> Node:
        """Steps below a shuffle move into the fragment that reads it. They also compute the keys."""
        if isinstance(node, Source):
            return self._edge(node, _route(above, keys), place).source
        if self._hears(node, place):
            return self._hear(node, above, keys, place)
        path = (node, *above)
        return node.with_inputs([self._read_loose(child, path, keys, place) for child in node.inputs])

    def _hears(self, node: Node, place: NodePlace) -> bool:
        """Is it a step that hears from a clock here?"""
        need = node.needs()
        return self._has_clocks and need is not None and not any(need) and not place.is_single

    def _hear(self, node: Node, above: tuple[Node, ...], keys: Outputs | None, place: NodePlace) -> Node:
        """The step over an edge of its own, with a clock that is told of the edge's rows."""
        (origin, spans), below = _rows_below(node), node.inputs[0]
        if self._places[below].level:
            origin, spans = below, ()
            self._given[below] = None
        edge = self._edge(origin, _route((*spans, node, *above), keys), place, (spans, node))
        assert edge.clock is not None
        stream: Node = edge.source
        for span in spans:
            stream = span.with_inputs([stream])
        return node.with_clock(stream, edge.clock.source)

    def _edge(
        self,
        origin: Node,
        route: Route,
        place: NodePlace,
        heard: tuple[tuple[Node, ...], Node] | None = None,
    ) -> Edge:
        key = (place.level, place.is_single, origin, route, heard and heard[1])
        if key not in self._edges:
            source, clock = self._source_for(origin), None
            if heard is not None:
                name = self._fresh_name(f"clock of {heard[1].label}")
                clock = Clock(Source(name, pa.schema([])), *heard)
            self._edges[key] = Edge(source, origin, route, place.level, clock)
        return self._edges[key]

    def _source_for(self, origin: Node) -> Source:
        if isinstance(origin, Source):
            return replace(origin, name=self._fresh_name(origin.name))
        known = (
            origin.properties
            if self._places[origin].is_single
            else _properties_over_shards(origin.properties)
        )
        return Source(self._fresh_name(origin.label), origin.schema, declared=known)

    def _fresh_name(self, name: str) -> str:
        fresh, number = name, 1
        while fresh in self._names:
            number += 1
            fresh = f"{name} ({number})"
        self._names.add(fresh)
        return fresh


def _route(path: tuple[Node, ...], keys: Outputs | None) -> Route:
    """Keys that are columns of the source need no steps to compute them, and can share an edge."""
    if not keys:
        return Route((), keys)
    names = [computed.column for _, computed in keys]
    back: tuple[str, ...] | None = tuple(n for n in names if n) if all(names) else None
    for node in reversed(path):
        back = None if back is None else _trace_back(node, back)
    if back is None:
        return Route(path, keys)
    return Route((), tuple(_name_apart(back)))


def _name_apart(names: tuple[str, ...]) -> Iterator[tuple[str, Expression]]:
    """Columns as keys. One may be there twice, as a group's key and by itself: both are hashed."""
    taken: set[str] = set()
    for name in names:
        fresh = name
        while fresh in taken:
            fresh += "'"
        taken.add(fresh)
        yield fresh, column(name)


def _carry_forward(node: Node, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The output columns that hold these input columns unchanged; None if one is not kept."""
    new = {old: name for name, old in reversed(list(node.kept_columns().items()))}
    return tuple(new[name] for name in names) if all(name in new for name in names) else None


def _trace_back(node: Node, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The input columns that these output columns are; None if one of them is computed."""
    old = node.kept_columns()
    return tuple(old[name] for name in names) if all(name in old for name in names) else None


def _properties_over_shards(known: Properties) -> Properties:
    """What still holds when the outputs of several shards come together in any order."""
    return Properties(
        is_insert_only=known.is_insert_only,
        has_key=known.has_key,
        is_shrink_only=known.is_shrink_only,
        constant_duration=known.constant_duration,
    )


def reasons_for_one_shard(fragments: Iterable[Fragment]) -> Iterator[str]:
    """The steps for which fragments are in one shard, and what they do."""
    plans = [plan for fragment in fragments if fragment.is_single for _, plan in fragment.outputs]
    for node in each_once(plans):
        is_alone = (need := node.needs()) is not None and not any(need)
        if is_alone and _place_by_clock(node, [_LOOSE] * len(node.inputs)) is None:
            yield f"{node.label!r} {node.why_single}"


def describe_fragments(fragments: Iterable[Fragment]) -> str:
    """The fragments and what moves between them, for people."""
    lines = []
    for fragment in fragments:
        where = "in one shard" if fragment.is_single else "in every shard"
        lines.append(f"fragment {fragment.level}, {where}")
        lines += [f"   reads {edge.source.name} {edge.route}" for edge in fragment.edges]
        lines += [f"   gives {node.label}" for node, _ in fragment.outputs]
        lines += dict.fromkeys(f"   in one shard because {why}" for why in reasons_for_one_shard([fragment]))
    return "\n".join(lines) + "\n"
