"""The whole pipeline as plain data: what every stage and every shard needs to know of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.cloudpickle import dumps

from recension.core.errors import RecensionError
from recension.core.time_kind import TimeKind
from recension.lowering import lower
from recension.plan.explain import describe
from recension.plan.fragments import Edge, Fragment, cut
from recension.plan.node import Node, plan_structure
from recension.plan.nodes import Source
from recension.plan.rewrites import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.runners.spark.stream.identity import FORMAT


@dataclass(frozen=True)
class Inlet:
    """How the rows of one input come."""

    order: tuple[str, ...] = ()
    """Columns that put them in order; none: they come with their place in a file, or need no order."""
    delay: int | None = None
    """With a watermark: how far promises lag behind the latest start seen."""
    kind: TimeKind = None
    """Of which kind the times of all inputs are."""
    is_root: bool = False
    """Do they come from a root, whose sub-folders are streams that come and go?"""


@dataclass(frozen=True)
class Topology:
    """Fragments, edges numbered throughout, and how many shards there are."""

    roots: tuple[Node, ...]
    shards: int
    inlets: dict[str, Inlet]
    code: str = ""
    """A name for the users' functions in it, with all that they refer to; the plan shows their names only."""

    @cached_property
    def fragments(self) -> list[Fragment]:
        """The fragments, by level."""
        return cut(self.roots)

    @cached_property
    def edges(self) -> list[Edge]:
        """All edges, in the order of their numbers."""
        return [edge for fragment in self.fragments for edge in fragment.edges]

    @property
    def levels(self) -> int:
        """The number of stateful stages."""
        return self.fragments[-1].level

    def shards_at(self, level: int) -> int:
        """How many shards have anything to do at a level."""
        return 1 if all(f.is_single for f in self.fragments if f.level == level) else self.shards

    def first_edge(self, source: Source) -> int:
        """The first of the edges that read a source: what was counted on reading it is told there."""
        return next(number for number, edge in enumerate(self.edges) if edge.origin is source)

    def called_from(self, level: int) -> int:
        """How many shards must be called when anything comes at a level.

        A promise counts once every shard has made it: none of a later level's shards may be left out,
        because nothing came for it.
        """
        return max(self.shards_at(later) for later in range(level, self.levels + 1))

    @property
    def in_order(self) -> bool:
        """Does an output have an order to keep?"""
        return any(root.properties.is_ordered for root in self.roots)

    @cached_property
    def shards_share_ctis(self) -> bool:
        """Do all shards that answer promise the same? They hear the same promises, and that may decide.

        Then one of them can speak for all, and nobody has to be asked.
        """
        answering = [f for f in self.fragments if any(node in self.roots for node, _ in f.outputs)]
        plans = [lower({str(n): plan for n, (_, plan) in enumerate(f.outputs)}) for f in answering]
        running = [vertex.operator for plan in plans for vertex in plan.vertices]
        return all(operator is None or operator.shards_share_ctis for operator in running)

    @cached_property
    def is_gathered(self) -> bool:
        """Do the answers of several shards meet once more, for an order to keep or a promise to agree on?"""
        return self.shards_at(self.levels) > 1 and (self.in_order or not self.shards_share_ctis)

    def outlets(self, shard: int) -> range:
        """The tasks that a shard tells what it promises; the first of them, or its own, writes its answer."""
        if not self.is_gathered:
            return range(shard, shard + 1)
        return range(1 if self.in_order else self.shards_at(self.levels))

    @cached_property
    def owner(self) -> str:
        """The query and the number of shards, as state made by it remembers them.

        Every step is known by its structure, what it reads and its columns; its label is for messages.
        """
        described = zip(describe(self.roots)["nodes"], plan_structure(self.roots), strict=True)
        plan = [[node["label"], inputs, node["schema"], step] for node, (step, inputs) in described]
        return json.dumps({"format": FORMAT, "shards": self.shards, "plan": plan}, ensure_ascii=False)

    @cached_property
    def fingerprint(self) -> str:
        """A name for this query on this number of shards."""
        return hashlib.blake2b(self.owner.encode(), digest_size=12).hexdigest()

    def sources(self) -> dict[str, Source]:
        """The query's own sources, by name."""
        return {edge.origin.name: edge.origin for edge in self.edges if isinstance(edge.origin, Source)}


def topology(queries: Sequence[Node], shards: int, inlets: Mapping[str, Inlet]) -> Topology:
    """The pipeline of some queries."""
    optimized = optimize(queries)
    roots = tuple(preaggregate(optimized) if shards > 1 else optimized)
    return Topology(roots, shards, dict(inlets), _code(roots))


def _code(roots: Sequence[Node]) -> str:
    try:
        sent = dumps(roots)
    except Exception as why:
        raise RecensionError(f"the query cannot be sent to Spark's workers: {why}") from None
    return hashlib.blake2b(sent, digest_size=12).hexdigest()
