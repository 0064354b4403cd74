"""Sources: where streams come in; and the kind of times that a query and its inputs must share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from recension.core.errors import RecensionError, SchemaError, suggest_name
from recension.core.formats.columns import TimeColumns
from recension.core.ticks import describe_duration
from recension.core.time_kind import OneKind, TimeKind, kind_of
from recension.core.validity import Policy
from recension.plan.node import Needs, Node, walk
from recension.plan.properties import NOTHING_KNOWN, Properties


class Leaf(Node):
    """A node that stands for a stream, not for a step: nothing goes below it."""

    ports: ClassVar[tuple[str, ...]] = ()
    passes_external_ctis = False
    is_before_state = False
    ignores_ctis = False
    named_times = ()

    def needs(self) -> Needs | None:
        raise RecensionError(f"{self.label!r} cannot be spread over shards")

    def kept_columns(self) -> Mapping[str, str]:
        return {}

    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        raise SchemaError(f"apply: {self.label} cannot be done for every group by itself")


@dataclass(frozen=True, eq=False)
class Source(Leaf):
    """A named input. ``start`` and ``end`` name the time columns of a plain table.

    ``external_ctis``: it carries external CTIs, which begin at ``since``. Retractions may then come before
    what they retract.
    """

    name: str
    columns: pa.Schema
    start: str | None = None
    end: str | None = None
    declared: Properties = NOTHING_KNOWN
    on_violation: Policy = "raise"
    external_ctis: bool = False
    since: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise RecensionError("source: a source needs a name")
        if self.on_violation not in ("raise", "drop", "adjust"):
            raise RecensionError(
                f"source: on_violation is 'raise', 'drop' or 'adjust', not {self.on_violation!r}"
            )
        if self.end is not None and self.start is None:
            raise RecensionError(f"source: end={self.end!r} needs a start= column as well")
        if self.since and not self.external_ctis:
            raise RecensionError(
                "source: since= says where external CTIs begin, and needs external_ctis=True"
            )
        super().__post_init__()

    @property
    def time_columns(self) -> TimeColumns:
        """The columns of a plain table that hold times."""
        return TimeColumns(self.start, self.end)

    @property
    def label(self) -> str:
        times = [f"{which}={name}" for which, name in (("start", self.start), ("end", self.end)) if name]
        policy = [] if self.on_violation == "raise" else [f"on_violation={self.on_violation}"]
        since = f" since {self.since}" if self.since else ""
        external = [f"with external ctis{since}"] if self.external_ctis else []
        return " ".join(["source", self.name, *times, *policy, *external])

    def derive_schema(self) -> pa.Schema:
        return self.columns

    def derive_properties(self) -> Properties:
        """What its owner declares; nothing is known of data that has not come yet."""
        return self.declared

    def needs(self) -> None:
        """Its events can be sent to any shard."""
        return


@dataclass(frozen=True, eq=False)
class Table(Source):
    """A named table without times: its rows are true for ever (ruling T1), and nothing follows them.

    With ``refresh`` it is read again: what differs then holds from the CTI of the streams it is joined with.
    """

    refresh: int | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise RecensionError("table: a table needs a name")
        if self.refresh is not None and self.refresh <= 0:
            raise RecensionError(f"table: refresh is 1 microsecond or more, not {self.refresh}")
        super().__post_init__()

    @property
    def time_columns(self) -> TimeColumns:
        return TimeColumns(is_timeless=True)

    @property
    def label(self) -> str:
        refresh = "" if self.refresh is None else f", read again every {describe_duration(self.refresh)}"
        return f"table {self.name}{refresh}"


def sources_of(query: Node) -> dict[str, Source]:
    """The sources a query reads, by name."""
    found: dict[str, Source] = {}
    for node in walk(query):
        if isinstance(node, Source):
            add_source(found, node)
    return found


def add_source(sources: dict[str, Source], source: Source) -> None:
    """Note a source by its name, which no other has."""
    if sources.setdefault(source.name, source) is not source:
        raise RecensionError(f"two different sources are named {source.name!r}")


def describe_unknown_source(name: str, sources: Collection[str], reader: str = "the query reads") -> str:
    """That no source has this name, with the one that was meant and those that are read."""
    return f"no source {name!r}{suggest_name(name, list(sources))}; {reader} {', '.join(sources)}"


def times_in(plans: Iterable[Node]) -> Iterator[tuple[str, int]]:
    """The times that queries name, each with the argument that names it."""
    for node in (node for plan in plans for node in walk(plan)):
        yield from times_in(node.own_plans)
        yield from node.named_times


def require_one_kind(plan: Node, inputs: Mapping[str, TimeKind]) -> TimeKind:
    """The kind of all times of a run; an error that names the input or the time in the query that differs."""
    times = OneKind()
    for where, ticks in times_in([plan]):
        times.note_named(kind_of(ticks), where)
    for name, kind in inputs.items():
        times.note(kind, name)
    return times.kind
