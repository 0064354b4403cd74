"""The whole pipeline as plain data, and whose state is whose.

Every stage and every shard has the topology. State made by one query means nothing to another: every head of
state names its owner, the query and the number of shards, and another owner is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.cloudpickle import dumps

from recension.core.errors import RecensionError
from recension.core.time_kind import TimeKind
from recension.lowering import lower
from recension.plan.due import goes_by_clock
from recension.plan.explain import describe
from recension.plan.fragments import Edge, Fragment, cut
from recension.plan.node import Node, each_once, plan_structure, walk
from recension.plan.nodes import Join, Source, Table
from recension.plan.rewrites import optimize
from recension.plan.rewrites.preaggregate import preaggregate
from recension.plan.structure import describe_structure_difference
from recension.plan.tables import find_followed
from recension.runners.exchange.external_ctis import are_counted_alone

if TYPE_CHECKING:
    from recension.runners.spark.stream.tables import TableContent

# Counted up whenever the format of the state or of the owner changes.
FORMAT: Final = 3
# The key of the owner in the metadata of the output's column _batch.
OWNER: Final = "recension.owner"
# In the owner, but not a part of the query: the watermarks of inputs, and the kind of times.
WATERMARKS: Final = "watermarks"
TIMES: Final = "times"
# There too: the names that the metrics of this pipeline have in the query, and of those that it reads.
OBSERVED: Final = "recension.observed"
# There too: the inputs without a file, from which the kind of times could not be seen.
EMPTY: Final = "recension.empty"
CUT_OVER: Final = (
    "start it with a new checkpoint; to change a running query without a gap see 'cut-over' in the guide"
)


@dataclass(frozen=True)
class Inlet:
    """How the rows of one input come."""

    delay: int | None = None
    """With a watermark: how far CTIs lag behind the latest start seen."""
    kind: TimeKind = None
    """The kind of the times of all inputs."""
    is_root: bool = False
    """Do they come from a root, whose sub-folders are streams that join and leave?"""
    table: TableContent | None = None
    """Or are they there from the beginning?"""
    folder: Path | None = None
    """The folder whose files have them, where directories in it may be partitions."""


@dataclass(frozen=True)
class Topology:
    """Fragments, edges numbered throughout, and how many shards there are."""

    roots: tuple[Node, ...]
    shards: int
    inlets: dict[str, Inlet]
    code: str = ""
    """A digest of the users' functions in it, with all that they refer to; the plan has only their names."""
    memory: int | None = None
    """How many bytes of a shard's state stay resident; None for all."""
    queries: tuple[Node, ...] = ()
    """The same before some aggregates were made in parts."""

    @cached_property
    def fragments(self) -> list[Fragment]:
        """The fragments, by level."""
        return cut(self.roots, self.shards)

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

    def counts_external_ctis_alone(self, edges: Iterable[int]) -> bool:
        """Would a shard count only its own elements for the external CTIs that come over these edges?"""
        sources = [self.edges[number].source for number in edges]
        return self.shards > 1 and are_counted_alone(self.fragments, sources)

    def first_edge(self, source: Source) -> int:
        """The first of the edges that read a source: counts of what was read go there, once."""
        return next(number for number, edge in enumerate(self.edges) if edge.origin is source)

    def shards_from(self, level: int) -> int:
        """How many shards must take part when anything comes at a level.

        The CTI is the least over all shards: each shard of a later level has to give its own, even if no
        event came for it.
        """
        return max(self.shards_at(later) for later in range(level, self.levels + 1))

    @property
    def is_ordered(self) -> bool:
        """Does an output have an order to keep?"""
        return any(root.properties.is_ordered for root in self.roots)

    @cached_property
    def shards_share_ctis(self) -> bool:
        """Do all shards that answer have the same CTI? They get the same CTIs, and that may decide it.

        Then any of them can give it, and nobody has to wait for the others.
        """
        answering = [f for f in self.fragments if any(node in self.roots for node, _ in f.outputs)]
        plans = [lower({str(n): plan for n, (_, plan) in enumerate(f.outputs)}) for f in answering]
        running = [vertex.operator for plan in plans for vertex in plan.vertices]
        return all(operator is None or operator.shards_share_ctis for operator in running)

    @cached_property
    def is_gathered(self) -> bool:
        """Do the answers of several shards meet once more, for an order to keep or a CTI to agree on?"""
        return self.shards_at(self.levels) > 1 and (self.is_ordered or not self.shards_share_ctis)

    def answer_tasks(self, shard: int) -> range:
        """The tasks that get a shard's CTI; the first of them, or the shard's own, writes its answer."""
        if not self.is_gathered:
            return range(shard, shard + 1)
        return range(1 if self.is_ordered else self.shards_at(self.levels))

    @cached_property
    def owner(self) -> str:
        """The query and the number of shards, as they are kept with state.

        Every step is known by its structure, its inputs and its columns; its label is for messages.
        """
        described = zip(describe(self.roots)["nodes"], plan_structure(self.roots), strict=True)
        plan = [[node["label"], inputs, node["schema"], step] for node, (step, inputs) in described]
        tables = {name: inlet.table.digest for name, inlet in self.inlets.items() if inlet.table is not None}
        read = {"tables": dict(sorted(tables.items()))} if tables else {}
        kinds = {str(inlet.kind) for inlet in self.inlets.values() if inlet.kind is not None}
        times = {TIMES: kinds.pop()} if len(kinds) == 1 else {}
        delayed = {name: inlet.delay for name, inlet in self.inlets.items() if inlet.delay is not None}
        of_inputs = {WATERMARKS: dict(sorted(delayed.items())), **times}
        return json.dumps(
            {"format": FORMAT, "shards": self.shards, "plan": plan, **read, **of_inputs}, ensure_ascii=False
        )

    @cached_property
    def fingerprint(self) -> str:
        """A name for this query on this number of shards."""
        return fingerprint_of(self.owner)

    @cached_property
    def goes_by_time(self) -> bool:
        """Does a source or a step count by the timestamps of micro-batches?"""
        return self.wakes or any(source.idle is not None for source in self.sources().values())

    @cached_property
    def wakes(self) -> bool:
        """May something come out though no row comes?"""
        return goes_by_clock(self.roots)

    def sources(self) -> dict[str, Source]:
        """The query's own sources, by name."""
        return {edge.origin.name: edge.origin for edge in self.edges if isinstance(edge.origin, Source)}


def fingerprint_of(owner: str) -> str:
    """A short name for an owner: for its query, whatever its inputs."""
    described = {name: part for name, part in json.loads(owner).items() if name not in (WATERMARKS, TIMES)}
    owner = json.dumps(described, ensure_ascii=False)
    return hashlib.blake2b(owner.encode(), digest_size=12).hexdigest()


def topology(
    queries: Sequence[Node],
    shards: int,
    inlets: Mapping[str, Inlet],
    skew: Sequence[str] = (),
    memory: int | None = None,
) -> Topology:
    """The pipeline of some queries; what is grouped by a column of ``skew`` is made in parts."""
    optimized = optimize(queries)
    roots = tuple(preaggregate(optimized, skew) if shards > 1 else optimized)
    return Topology(roots, shards, dict(inlets), _code_digest(roots), memory, tuple(optimized))


# By fingerprint, the pipelines that were built here: who writes one, or hears of it, may have to know more.
_built: Final[dict[str, Topology]] = {}


def note_built(plan: Topology) -> None:
    """Keep a pipeline for `built_as`, without the rows of tables."""
    inlets = {name: replace(inlet, table=None) for name, inlet in plan.inlets.items()}
    _built[plan.fingerprint] = replace(plan, inlets=inlets)


def built_as(fingerprint: str) -> Topology | None:
    """The pipeline of this name, if it was built in this process."""
    return _built.get(fingerprint)


def require_refreshable(topology: Topology) -> None:
    """Refuse tables that are read again where the shards could not agree on what a version holds from.

    That is the CTI of the steps that the table is joined with. They must be where the table is, with CTIs
    that are equal in all shards, and must not wait for another such table in an earlier stage.
    """
    for table in topology.sources().values():
        if not isinstance(table, Table) or table.refresh is None:
            continue
        edges = [edge for edge in topology.edges if edge.origin is table]
        fragment = next(fragment for fragment in topology.fragments if edges[0] in fragment.edges)
        plans = [plan for _, plan in fragment.outputs]
        followed = find_followed(plans).get(edges[0].source.name, [])
        below = {edge.source: edge.origin for edge in fragment.edges}
        behind = [below[node] for step in followed for node in walk(step) if node in below]
        if (
            len(edges) > 1
            or _count_joins(topology.roots, table) > _count_joins(plans, edges[0].source)
            or any(_is_refreshed(node) for origin in behind for node in walk(origin))
        ):
            raise RecensionError(
                f"{table.name}: on Spark a table with refresh= is joined with streams in one stage, and here "
                "a shuffle is between its joins: declare a table for each join, over the same folder, or "
                "join on the same columns"
            )
        if not followed:
            raise RecensionError(
                f"{table.name}: a table with refresh= follows the streams that it is joined with, and there "
                "is none: leave refresh= out"
            )
        lowered = lower({str(n): step for n, step in enumerate(followed)})
        operators = [vertex.operator for vertex in lowered.vertices if vertex.operator is not None]
        is_spread = topology.shards > 1 and not fragment.is_single
        if is_spread and not all(operator.shards_share_ctis for operator in operators):
            raise RecensionError(
                f"{table.name}: a version of a table with refresh= holds from the CTI of what it is joined "
                "with, and here each shard has its own: run it with shards=1, or join the table first"
            )


def _is_refreshed(node: Node) -> bool:
    return isinstance(node, Table) and node.refresh is not None


def _count_joins(roots: Sequence[Node], table: Node) -> int:
    """How many joins are above a table."""
    return sum(isinstance(step, Join) and table in walk(step) for step in each_once(roots))


def _code_digest(roots: Sequence[Node]) -> str:
    try:
        sent = dumps(roots)
    except Exception as why:
        raise RecensionError(f"the query cannot be sent to Spark's workers: {why}") from None
    return hashlib.blake2b(sent, digest_size=12).hexdigest()


def require_format(found: int) -> None:
    """Refuse state of another format."""
    if found != FORMAT:
        raise RecensionError(
            f"the checkpoint's state has format {found}, this version reads {FORMAT}: {CUT_OVER}"
        )


def require_same(made_by: str, asked: str) -> None:
    """Refuse a checkpoint of another query or another number of shards; the message names the difference."""
    if made_by == asked:
        return
    old, new = json.loads(made_by), json.loads(asked)
    require_format(old.get("format", 1))
    # Labels are for people: a release may word them otherwise.
    if old["shards"] != new["shards"] or _without_labels(old) != _without_labels(new):
        raise RecensionError(_refusal(old, new))
    _require_same_watermarks(old, new)
    # Before Spark runs nobody has read the tables.
    for name, digest in new.get("tables", {}).items():
        if old.get("tables", {}).get(name, digest) != digest:
            raise RecensionError(
                f"the table {name!r} has other rows than those that the checkpoint was made with: go on with "
                f"the same, or {CUT_OVER}"
            )


def _require_same_watermarks(old: dict[str, Any], new: dict[str, Any]) -> None:
    """A watermark makes CTIs, which stay: it cannot be added or taken away. Its delay may change."""
    if WATERMARKS not in old:
        return  # An earlier version did not note them.
    had, has = old[WATERMARKS], new[WATERMARKS]
    for name in sorted(had.keys() ^ has.keys()):
        made, remedy = ("with", f"give it, {had[name]} ticks") if name in had else ("without", "leave it out")
        raise RecensionError(
            f"the checkpoint was made {made} a watermark for {name!r}, and no CTI is taken back: {remedy}, "
            f"or {CUT_OVER}"
        )


def _without_labels(owner: dict[str, Any]) -> list[Any]:
    return [step[1:] for step in owner["plan"]]


def _refusal(old: dict[str, Any], new: dict[str, Any]) -> str:
    was, now = old["shards"], new["shards"]
    if was != now:
        return f"the checkpoint was made with {was} shards, not {now}: go on with shards={was}, or {CUT_OVER}"
    found = _describe_plan_difference(old["plan"], new["plan"])
    return f"the checkpoint was made by another query: {found}; {CUT_OVER}"


def _describe_plan_difference(old: list[Any], new: list[Any]) -> str:
    theirs, ours = [node[0] for node in old], [node[0] for node in new]
    gone, fresh = _first_extra(theirs, ours), _first_extra(ours, theirs)
    if gone and fresh:
        return f"it has {gone!r} where this one has {fresh!r}"
    if gone:
        return f"it has {gone!r} and this one does not"
    return f"this one has {fresh!r} and it does not" if fresh else _describe_hidden_difference(old, new)


def _first_extra(steps: list[str], others: list[str]) -> str | None:
    """The first step that the others lack."""
    left = Counter(steps) - Counter(others)
    return next((step for step in steps if left[step]), None)


def _describe_hidden_difference(old: list[Any], new: list[Any]) -> str:
    """What differs in plans whose steps look alike."""
    for (label, _, was, step), (_, _, now, other) in zip(old, new, strict=True):
        if was != now:
            columns = [", ".join(f"{name} {kind}" for name, kind in schema.items()) for schema in (was, now)]
            return f"{label!r} has the columns {columns[0]} there and {columns[1]} here"
        if step != other:
            return f"{label!r} is another one: {describe_structure_difference(step, other)}"
    return "it has the same steps in another order"
