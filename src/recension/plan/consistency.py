"""Consistency nodes: how long to wait for order, and how long to remember. None changes what is computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from recension.core.errors import RecensionError, TimeError
from recension.core.ticks import FOREVER
from recension.core.wall_clock import Length, WallClock
from recension.plan.node import FilterRule, LevelPart, Names, Needs, Node, columns_named, same_names
from recension.plan.properties import Properties

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
        """All events in one shard: shards do not wait for each other and have no common order."""
        return tuple(() for _ in self.inputs)

    def kept_columns(self) -> Mapping[str, str]:
        return same_names(self.schema)

    def columns_read(self, needed: Names) -> list[Names]:
        """Payloads are compared whole: elements are matched, and put in order, by them."""
        return self.all_columns()

    def filters_below(self) -> tuple[FilterRule | None, ...]:
        """None: whether an event is late, or first, depends on all events."""
        return self.no_filters()

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        return self.with_inputs(inputs)


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

    def needs(self) -> Needs | None:
        return (columns_named(self.by),) if self.block else None

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
            raise TimeError("advance_time: a cti after so many events or once an interval, not both")
        if min(self.events or 1, self.interval or 1) < 1 or 0 in (self.events, self.interval):
            raise TimeError("advance_time: events= and every= count from 1")
        super().__post_init__()

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


@dataclass(frozen=True, eq=False)
class ImportTime(Consistency):
    """CTIs of the stream ``clock`` hold for the input too."""

    input: Node
    clock: Node
    late: Late = "drop"

    ports: ClassVar[tuple[str, ...]] = ("input", "clock")

    level_parts = frozenset()
    advances_time = True
    holds_ctis_by_group = False

    def __post_init__(self) -> None:
        require_late(self.late)
        super().__post_init__()

    @property
    def label(self) -> str:
        return f"advance time with another stream, late: {self.late}"

    def derive_properties(self) -> Properties:
        return _with_late(self.input.properties, self.late)

    def kept_columns(self) -> Mapping[str, str]:
        """Of the clock only CTIs are read."""
        return {}

    @property
    def event_inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def visible_inputs(self) -> tuple[Node, ...]:
        return (self.input,)


def _with_late(of: Properties, late: Late) -> Properties:
    """Dropping elements breaks no order; moving them breaks order, keys and durations."""
    if late == "adjust":
        return Properties(is_insert_only=of.is_insert_only, is_shrink_only=of.is_shrink_only)
    return replace(of, has_deterministic_ties=of.is_strictly_increasing)


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
