"""Consistency nodes: how long to wait for order, and how long to remember. None changes what is computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, TypeAlias

import pyarrow as pa

from recension.core.errors import RecensionError, TimeError
from recension.core.ticks import FOREVER
from recension.core.wall_clock import Length, WallClock
from recension.plan.node import LevelPart, Names, Needs, Node, columns_named
from recension.plan.properties import Properties
from recension.plan.source import Source
from recension.plan.span import SpanNode

# Shards can be told what a task sees in the rows that it sends, or a shard in its answers.
_ONLY_KNOWN: Final = (
    "is known only above a source with on_violation='raise' (or a filter of it), or a step with state"
)

Late: TypeAlias = Literal["drop", "adjust"]


class Consistency(Node):
    """A step that decides when elements are shown or dropped, and leaves payloads as they are."""

    input: Node

    passes_external_ctis = False
    is_before_state = True
    ignores_ctis = False
    named_times = ()

    @property
    @abstractmethod
    def level_parts(self) -> frozenset[LevelPart]: ...

    @property
    @abstractmethod
    def advances_time(self) -> bool: ...

    @property
    @abstractmethod
    def holds_ctis_by_group(self) -> bool: ...

    def derive_schema(self) -> pa.Schema:
        return self.input.schema

    def needs(self) -> Needs | None:
        """All events in one shard: shards do not wait for each other and have no common order.

        A step that needs only the CTIs, which all shards hear, says None; one that needs to know besides how
        far all rows have got `can_hear` that.
        """
        return tuple(() for _ in self.inputs)

    kept_columns = Node.every_column
    # Payloads are compared whole: elements are matched, and put in order, by them.
    columns_read = Node.all_columns
    # None: whether an event is late, or first, depends on all events.
    filters_below = Node.no_filters
    with_group_keys = Node.with_grouped_inputs


class ByClock(Consistency):
    """A step that reads of a second stream how far time has got."""

    clock: Node

    ports: ClassVar[tuple[str, ...]] = ("input", "clock")

    def kept_columns(self) -> Mapping[str, str]:
        """Of the clock no columns are read."""
        return {}

    @property
    def event_inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Cleanse(Consistency):
    """Only what is final, by (vs, payload, ve); for each value of the columns ``by``, if any, by itself."""

    input: Node
    by: tuple[str, ...] = ()

    level_parts = frozenset({"block"})
    advances_time = False
    holds_ctis_by_group = True

    @property
    def label(self) -> str:
        return f"cleanse by {', '.join(self.by)}" if self.by else "cleanse"

    def derive_properties(self) -> Properties:
        """Perfect, with ties in payload order. Its CTI waits for the first event that may still change."""
        of = self.input.properties
        if self.by:
            return Properties(is_insert_only=True, has_key=of.has_key, constant_duration=of.constant_duration)
        return Properties(
            is_insert_only=True,
            is_ordered=True,
            is_strictly_increasing=of.is_strictly_increasing,
            has_deterministic_ties=True,
            has_key=of.has_key,
            constant_duration=of.constant_duration,
        )

    why_single = "shows nothing before what starts first, in whatever shard, is final"

    def needs(self) -> Needs:
        return (columns_named(self.by),)

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return True

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], by=(*keys, *self.by))


@dataclass(frozen=True, eq=False)
class Align(Consistency):
    """Changes wait for their order: for ``block``, FOREVER until a CTI.

    ``by``: only those with equal values of these columns need be in order.
    """

    input: Node
    block: Length
    by: tuple[str, ...] = ()

    level_parts = frozenset({"block"})
    advances_time = False
    holds_ctis_by_group = False

    def __post_init__(self) -> None:
        if isinstance(self.block, int) and self.block < 0:
            raise TimeError(f"align: a block of {self.block} ticks; it takes 0 or more, or FOREVER")
        super().__post_init__()

    @property
    def label(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"align{by}, block {in_ticks(self.block)}"

    def derive_properties(self) -> Properties:
        """An endless block puts changes in order; what is perfect passes as it is.

        A removal and an insert that wait together may become one lengthening. Groups wait each by its own
        time: what was in order may no longer be.
        """
        of = self.input.properties
        if not self.block or (of.is_perfect and not self.by):
            return of
        return replace(
            of,
            is_ordered=self.block == FOREVER and not self.by,
            is_strictly_increasing=False,
            has_deterministic_ties=False,
            is_shrink_only=of.is_insert_only or of.constant_duration is not None,
        )

    @property
    def why_single(self) -> str:
        if isinstance(self.block, WallClock):
            return "notes by one clock how far all rows have got"
        return f"waits for how far all rows have got, which {_ONLY_KNOWN}"

    def needs(self) -> Needs | None:
        """An endless block waits for CTIs alone."""
        is_timed = self.block not in (0, FOREVER)
        return (columns_named(self.by),) if is_timed or (self.block and self.by) else None

    def can_hear(self, source: Node | None) -> bool:
        return isinstance(self.block, int) and not self.by and _has_known_rows(source)

    def with_clock(self, stream: Node, clock: Node) -> Node:
        assert isinstance(self.block, int)
        return AlignByClock(stream, clock, self.block)

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed | set(self.by)]

    def is_keyed(self, grouped: Set[Node]) -> bool:
        return not isinstance(self.block, WallClock)

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], by=(*keys, *self.by))


@dataclass(frozen=True, eq=False)
class Finalize(Consistency):
    """Retraction chains repaired, external CTIs honoured, the past closed ``remember`` behind.

    External CTIs begin at ``since``. ``by_level``: a level of consistency has put it there, and has given
    the block too.
    """

    input: Node
    remember: Length
    since: int = 0
    by_level: bool = False

    advances_time = False
    holds_ctis_by_group = False

    @property
    def level_parts(self) -> frozenset[LevelPart]:
        return frozenset({"remember", "block"}) if self.by_level else frozenset({"remember"})

    def __post_init__(self) -> None:
        if isinstance(self.remember, int) and self.remember < 0:
            raise TimeError(f"finalize: a memory of {self.remember} ticks; it takes 0 or more, or FOREVER")
        super().__post_init__()

    @property
    def label(self) -> str:
        since = f", since {self.since}" if self.since else ""
        return f"finalize, remember {in_ticks(self.remember)}{since}"

    def derive_properties(self) -> Properties:
        """Elements are dropped or joined, not moved. In disorder an equal event may come before one goes."""
        of = self.input.properties
        known = of
        if not of.is_perfect:
            known = Properties(
                is_insert_only=of.is_insert_only,
                has_key=of.has_key and of.is_insert_only,
                is_shrink_only=of.is_shrink_only,
                constant_duration=of.constant_duration,
            )
        if self.remember == FOREVER or isinstance(self.remember, WallClock):
            return known
        return replace(known, cti_frequency=self.remember)

    @property
    def why_single(self) -> str:
        if self.remember != FOREVER:
            return "forgets by the latest time of all elements, in their order"
        return "counts the elements of all shards for external ctis"

    def needs(self) -> Needs | None:
        """Chains of retractions are of equal payloads. What else an endless memory goes by are CTIs."""
        is_counted = isinstance(self.input, Source) and self.input.external_ctis
        return super().needs() if is_counted or self.remember != FOREVER else None


@dataclass(frozen=True, eq=False)
class AdvanceTime(Consistency):
    """CTIs ``delay`` behind the greatest start seen, after every so many events or once an interval."""

    input: Node
    delay: int
    events: int | None = None
    interval: int | None = None
    late: Late = "drop"

    level_parts = frozenset()
    advances_time = True
    holds_ctis_by_group = False

    def __post_init__(self) -> None:
        require_late(self.late)
        if self.delay < 0:
            raise TimeError(f"advance_time: a delay of {self.delay} ticks; it takes 0 or more")
        if self.events is not None and (isinstance(self.events, bool) or not isinstance(self.events, int)):
            raise TimeError(f"advance_time: events= is a whole number of events, not {self.events!r}")
        if self.events is not None and self.interval is not None:
            raise TimeError("advance_time: give events= or every=, not both")
        if min(self.events or 1, self.interval or 1) < 1 or 0 in (self.events, self.interval):
            raise TimeError("advance_time: events= and every= count from 1")
        self._require_partitions()
        super().__post_init__()

    def _require_partitions(self) -> None:
        """Over a source with partitions it goes by these, which only the source itself knows."""
        below = self.input
        while isinstance(below, SpanNode):
            below = below.input
        if below is not self.input and isinstance(below, Source) and below.partition:
            raise RecensionError(
                f"advance_time: source {below.name} has partitions, each with its own latest start: "
                f"put advance_time directly on the source, before {self.input.label!r}"
            )

    @property
    def partitioned_source(self) -> Source | None:
        """The source with partitions that it stands on, if it does: then it goes by each of them."""
        return self.input if isinstance(self.input, Source) and self.input.partition else None

    @property
    def label(self) -> str:
        pace = f"every {self.interval}" if self.interval else f"after every {self.events or 1} events"
        return f"advance time, {self.delay} behind, {pace}, late: {self.late}"

    def derive_properties(self) -> Properties:
        """What is in order is never late. How far CTIs lag is known where every event moves them."""
        of = self.input.properties
        known = of if of.is_ordered else _with_late(of, self.late)
        is_bounded = of.is_insert_only and (self.events or 1) == 1
        lag = self.delay + (self.interval or 0)
        return replace(known, cti_frequency=lag if is_bounded else of.cti_frequency)

    @property
    def why_single(self) -> str:
        return f"decides what is late by the order of all rows, which {_ONLY_KNOWN}"

    def can_hear(self, source: Node | None) -> bool:
        """To count rows, all must count: closes may come to nothing, and become retractions otherwise.

        A clock tells how far all rows are, not those of each partition.
        """
        if isinstance(source, Source) and source.partition:
            return False
        if source is None or self.events in (None, 1):
            return _has_known_rows(source)
        return _has_known_rows(source) and source.properties.is_insert_only

    def with_clock(self, stream: Node, clock: Node) -> Node:
        return AdvanceTimeByClock(stream, clock, self.label, self.late)


@dataclass(frozen=True, eq=False)
class ImportTime(ByClock):
    """CTIs of the stream ``clock`` hold for the input too."""

    input: Node
    clock: Node
    late: Late = "drop"

    level_parts = frozenset()
    advances_time = True
    holds_ctis_by_group = False

    def __post_init__(self) -> None:
        require_late(self.late)
        super().__post_init__()

    @property
    def label(self) -> str:
        return f"advance time with another stream, late: {self.late}"

    why_single = "takes the ctis of another stream between its own rows"

    def derive_properties(self) -> Properties:
        return _with_late(self.input.properties, self.late)


@dataclass(frozen=True, eq=False)
class AdvanceTimeByClock(ByClock):
    """`AdvanceTime`, ``called`` so, in a shard. The clock says how far its CTIs are before each row."""

    input: Node
    clock: Node
    called: str
    late: Late

    level_parts = frozenset()
    advances_time = True
    holds_ctis_by_group = False

    @property
    def label(self) -> str:
        return self.called

    def derive_properties(self) -> Properties:
        return _with_late(self.input.properties, self.late)


@dataclass(frozen=True, eq=False)
class AlignByClock(ByClock):
    """`Align` in a shard. The CTIs of the clock are the latest times of the rows of all shards."""

    input: Node
    clock: Node
    block: int

    level_parts = frozenset({"block"})
    advances_time = False
    holds_ctis_by_group = False

    @property
    def label(self) -> str:
        return f"align, block {in_ticks(self.block)}"

    def derive_properties(self) -> Properties:
        return Align(self.input, self.block).properties


def _with_late(of: Properties, late: Late) -> Properties:
    """Dropping elements breaks no order; moving them breaks order, keys and durations."""
    if late == "adjust":
        return Properties(is_insert_only=of.is_insert_only, is_shrink_only=of.is_shrink_only)
    return replace(of, has_deterministic_ties=of.is_strictly_increasing)


def _has_known_rows(source: Node | None) -> bool:
    """Are the rows that a task reads those that come out of the source, or None: the answers of shards?"""
    return source is None or (isinstance(source, Source) and source.on_violation == "raise")


def require_late(late: str) -> None:
    """Raise unless it is a way to treat late elements."""
    if late not in ("drop", "adjust"):
        raise RecensionError(f"advance_time: late is 'drop' or 'adjust', not {late!r}")


def in_ticks(length: Length) -> str:
    """A length of time for people.

    >>> in_ticks(FOREVER), in_ticks(5), in_ticks(WallClock(5))
    ('forever', '5', '5 by the wall clock')
    """
    return "forever" if length == FOREVER else str(length)
