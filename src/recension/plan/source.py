"""Sources: where streams come in; and the kind of times that a query and its inputs must share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa

from recension.core.errors import RecensionError, SchemaError, suggest_name
from recension.core.formats.columns import BATCH, RUN, SEQ, TimeColumns
from recension.core.placement import PartitionColumns
from recension.core.ticks import TimeUnit, describe_duration
from recension.core.time_kind import (
    AWARE,
    TICKS,
    OneKind,
    TimeKind,
    kind_of,
    kind_of_column,
    merge_kinds,
    of_kind,
)
from recension.core.validity import Policy
from recension.plan.node import Needs, Node, walk
from recension.plan.properties import NOTHING_KNOWN, Properties
from recension.plan.structure import NOT_STRUCTURE, Structure


class Leaf(Node):
    """A node that stands for a stream, not for a step: nothing goes below it."""

    ports: ClassVar[tuple[str, ...]] = ()
    passes_external_ctis = False
    is_before_state = False
    ignores_ctis = False

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        return ()

    @property
    def stands_for(self) -> Node | None:
        """The step whose events it has, if it is a part of a stream."""
        return None

    def needs(self) -> Needs | None:
        raise RecensionError(f"{self.label!r} cannot be spread over shards")

    def kept_columns(self) -> Mapping[str, str]:
        return {}

    columns_read = Node.all_columns
    filters_below = Node.no_filters

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        raise SchemaError(f"apply: {self.label} cannot be done for every group by itself")


# Fields that sources did not always have, and how they are written where nothing is said.
_LATER: Final = (
    *("times", "partition", "order", "partitions", "idle", "run", "sequence"),
    *("unit", "closes_once"),
)
_UNSAID: Final = (None, ("tuple",), (tuple,), ("bool", "False"))


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
    times: pa.DataType | None = None
    """The kind of its times, if its owner says it: int64 ticks or timestamps."""
    partition: tuple[str, ...] = ()
    """The columns that tell its sub-streams apart; they need not be in the schema."""
    order: tuple[str, ...] = ()
    """The columns that put the rows of each in order."""
    partitions: int | None = None
    """How many sub-streams must have spoken before a CTI counts."""
    idle: int | None = None
    """After so many microseconds of silence by the clock a sub-stream holds the others back no more."""
    run: str | None = None
    """The column that says which run of its producer sent an element."""
    sequence: tuple[str, ...] = ()
    """The columns in which the producer numbers the elements of a run."""
    unit: TimeUnit | None = None
    """What integers in its columns of times count since 1970; they are timestamps in UTC then."""
    closes_once: bool = False
    """Does each of equal events have a close of its own? Else another close revises the last end."""
    arrival: str | None = field(default=None, metadata=NOT_STRUCTURE)
    """The column that says when a row arrived: no part of the payload, nor of what a query means."""

    are_rows: ClassVar[bool] = False
    """Are its inserts rows, of which a step above makes a stream? Then they may begin before a CTI,
    and be empty."""

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
        if self.times is not None and not (self.times == TICKS or pa.types.is_timestamp(self.times)):
            raise SchemaError(
                "source: times are 'int64' ticks or timestamps, as in times='timestamp[us, UTC]', "
                f"not {self.times}"
            )
        if self.unit is not None and self.times not in (None, AWARE):
            raise SchemaError(f"source: unit={self.unit!r} is about times in UTC, not {self.times}")
        if self.arrival is not None and self.arrival in self.columns.names:
            raise SchemaError(
                f"source: arrival={self.arrival!r} is no part of the payload: leave it out of the schema"
            )
        self._check_partitions()
        super().__post_init__()

    def _check_partitions(self) -> None:
        for name, given in (("order", self.order), ("partitions", self.partitions), ("idle", self.idle)):
            if given not in (None, ()) and not self.partition:
                raise RecensionError(f"source: {name}= is about partitions, and needs partition= as well")
        if self.run is not None and not self.sequence:
            raise RecensionError("source: run= needs sequence= as well")
        if self.partitions is not None and self.partitions < 1:
            raise RecensionError(f"source: partitions= is a number from 1, not {self.partitions}")
        if self.idle is not None and self.idle < 1:
            raise RecensionError(f"source: idle= is 1 microsecond or more, not {self.idle}")
        if self.partition and self.external_ctis:
            raise RecensionError(
                "source: external_ctis= counts the elements of one stream, and partition= makes several of "
                "it: leave one of them out"
            )
        for role, names in (("partition", self.partition), ("order", self.order)):
            if len(set(names)) < len(names):
                raise RecensionError(f"source: {role}= names a column twice: {', '.join(names)}")

    def identity(self) -> tuple[Any, ...]:
        """Sources whose rows are read in two ways are two, though a state fits both."""
        return (*super().identity(), self.arrival)

    @cached_property
    def structure(self) -> Structure:
        """Without what its owner does not say and could not say before: older checkpoints still fit.

        Nor with the number of its sub-streams: a topic may have got more of them since.
        """
        said = (part for part in super().structure if part[0] != "partitions")
        return tuple(part for part in said if part[0] not in _LATER or part[1] not in _UNSAID)

    @property
    def kind(self) -> TimeKind:
        """The kind of its times as its owner says it, or as the types of its time columns do."""
        if self.times is not None:
            return kind_of_column(self.times)
        if self.unit is not None:
            return AWARE
        named = (name for name in (self.start, self.end) if name in self.columns.names)
        return next((kind_of_column(self.columns.field(name).type) for name in named), None)

    @property
    def named_times(self) -> tuple[tuple[str, int], ...]:
        """That its times are timestamps, if its owner says so."""
        kind = None if self.times is None else self.kind
        return () if kind is None else ((f"source {self.name}, times={kind}", of_kind(0, kind)),)

    @property
    def time_columns(self) -> TimeColumns:
        """The columns of a plain table that hold times."""
        return TimeColumns.of(self.start, self.end, self.columns, self.kind, self.unit)

    @property
    def columns_of_times(self) -> TimeColumns:
        """The same, and the column that says when a row arrived."""
        return replace(self.time_columns, arrival=self.arrival)

    @property
    def sub_streams(self) -> PartitionColumns | None:
        """The columns that say where rows stand, if it is several streams in one or numbers its elements."""
        if not self.partition and not self.sequence:
            return None
        return PartitionColumns(self.partition, self.order, self.run, self.sequence)

    def sub_streams_in(self, names: Collection[str]) -> PartitionColumns | None:
        """The same for rows with these columns: what a query has written carries its run and its numbers."""
        if self.sequence or not {RUN, BATCH, SEQ} <= set(names):
            return self.sub_streams
        return PartitionColumns(self.partition, self.order, RUN, (BATCH, SEQ))

    @property
    def label(self) -> str:
        times = [f"{which}={name}" for which, name in (("start", self.start), ("end", self.end)) if name]
        policy = [] if self.on_violation == "raise" else [f"on_violation={self.on_violation}"]
        since = f" since {self.since}" if self.since else ""
        kind = [] if self.times is None else [f"times={self.unit or self.times}"]
        external = [f"with external ctis{since}"] if self.external_ctis else []
        return " ".join(
            ["source", self.name, *times, *kind, *policy, *external, *self._describe_partitions()]
        )

    def _describe_partitions(self) -> list[str]:
        named = {"partition": self.partition, "order": self.order, "sequence": self.sequence}
        words = [f"{what}={','.join(names)}" for what, names in named.items() if names]
        words += [] if self.run is None else [f"run={self.run}"]
        words += [] if self.partitions is None else [f"partitions={self.partitions}"]
        return words + ([] if self.idle is None else [f"idle={describe_duration(self.idle)}"])

    def derive_schema(self) -> pa.Schema:
        return self.columns

    def derive_properties(self) -> Properties:
        """What its owner declares; nothing is known of data that has not come yet.

        Of a source with partitions it is declared of each. Two that are in order are not when they are put
        together, and two may have equal events.
        """
        if not self.partition:
            return self.declared
        return replace(
            self.declared,
            is_ordered=False,
            is_strictly_increasing=False,
            has_deterministic_ties=False,
            has_key=False,
            cti_frequency=None,
        )

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
        if self.partition or self.sequence:
            raise RecensionError("table: it comes as a whole, and has no partitions and no sequence")
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


def declared_kind(plan: Node) -> TimeKind:
    """The kind of the times of a query, as its sources say it, or steps that make times of columns."""
    kind: TimeKind = None
    for node in walk(plan):
        if isinstance(node, Source):
            kind = merge_kinds(kind, node.kind)
        elif isinstance(node, Leaf):
            kind = merge_kinds(kind, None if node.stands_for is None else declared_kind(node.stands_for))
        else:
            kind = merge_kinds(kind, node.times_made)
    return kind


def require_one_kind(plan: Node, inputs: Mapping[str, TimeKind]) -> TimeKind:
    """The kind of all times of a run; an error that names the input or the time in the query that differs."""
    times = OneKind()
    for where, ticks in times_in([plan]):
        times.note_named(kind_of(ticks), where)
    for name, kind in inputs.items():
        times.note(kind, name)
    return times.kind
