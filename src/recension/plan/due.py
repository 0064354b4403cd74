"""Due: events are shown when their time has come. What is refuted before is never shown.

progress    how far a stream has got, by its starts: what tells the time      Progress
due         waits for the own ctis, the clock, or the progress of another     Due, DueBy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa

from recension.core.errors import SchemaError, TimeError
from recension.plan.consistency import ByClock, Consistency
from recension.plan.expressions import column, expression, lit
from recension.plan.node import FilterRule, LevelPart, Names, Node, TimedNode, columns_named, each_once
from recension.plan.properties import Properties
from recension.plan.span import Project
from recension.plan.tables import find_table

ROWS: Final = "rows"
"""Of `Progress`: how many rows of this start have come, less those that were removed."""


@dataclass(frozen=True, eq=False)
class Progress(TimedNode):
    """How far a stream has got: the starts that may move time, as events of one tick, and its CTIs.

    ``ahead``: all starts are given that may turn out to be far ahead of all others; else only the latest.
    """

    input: Node
    ahead: int | None = None

    is_spread = True
    narrows_inputs = True
    ignores_ctis = False
    named_times = ()

    @property
    def label(self) -> str:
        return "time of a stream" + ("" if self.ahead is None else f", ahead {self.ahead}")

    def derive_schema(self) -> pa.Schema:
        if (table := find_table(self.input)) is not None:
            raise SchemaError(
                f"due: the rows of table {table.name!r} are true at all times and have no start; "
                "by= is a stream whose rows tell the time"
            )
        return pa.schema([(ROWS, pa.int64())])

    def derive_properties(self) -> Properties:
        return Properties(is_insert_only=True, is_point=True)

    def needs(self) -> None:
        """What shards have seen can be put together."""

    def kept_columns(self) -> Mapping[str, str]:
        return {}

    def columns_read(self, needed: Names) -> list[Names]:
        return [frozenset()]

    filters_below = Node.no_filters

    def with_group_keys(self, keys: tuple[str, ...], inputs: Sequence[Node]) -> Node:
        """Every start, with its group: which of them may move its time is another matter in each."""
        return Project(inputs[0], (*columns_named(keys), (ROWS, expression(lit(1)))))

    def is_keyed(self, grouped: Set[Node]) -> bool:
        """Each group has a time of its own."""
        return False


class _Due(Consistency):
    """What the kinds have in common."""

    is_before_state = False
    level_parts: frozenset[LevelPart] = frozenset()
    advances_time = False
    holds_ctis_by_group = True

    def needs(self) -> None:
        """All shards know the time, and an event waits for nothing else."""

    def filters_below(self) -> tuple[FilterRule | None, ...]:  # type: ignore[override]
        """When an event is due does not depend on others. But rows that are refuted in time never came."""
        own = FilterRule({name: column(name) for name in self.schema.names})
        return (own, *(None for _ in self.inputs[1:]))


def _when_due(of: Properties) -> Properties:
    """What is released comes by its start; then what is known of order holds only without retractions.

    An event that changes while it waits is shown as it is in the end.
    """
    return replace(
        of,
        is_ordered=of.is_perfect,
        has_deterministic_ties=of.is_strictly_increasing,
        cti_frequency=None,
    )


@dataclass(frozen=True, eq=False)
class Due(_Due):
    """Events are shown when the stream's own CTI is beyond their start; or when the clock has reached it."""

    input: Node
    by_clock: bool = False

    @property
    def label(self) -> str:
        return "due by the clock" if self.by_clock else "due by its own ctis"

    def derive_properties(self) -> Properties:
        return _when_due(self.input.properties)

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed]

    def is_keyed(self, grouped: Set[Node]) -> bool:
        """All groups have the same CTIs, and the same clock."""
        return True


@dataclass(frozen=True, eq=False)
class DueBy(_Due, ByClock):
    """Events are shown when another stream, by its `Progress`, has reached their start.

    A start of the other that is more than ``ahead`` beyond its time so far does not move it by itself.
    """

    input: Node
    clock: Node
    ahead: int | None = None

    everywhere: ClassVar[frozenset[int]] = frozenset({1})

    def __post_init__(self) -> None:
        if self.ahead is not None and self.ahead <= 0:
            raise TimeError(f"due: ahead={self.ahead} ticks; it takes 1 or more")
        super().__post_init__()

    @property
    def label(self) -> str:
        ahead = "" if self.ahead is None else f", ahead {self.ahead}"
        return f"due by another stream{ahead}"

    def derive_properties(self) -> Properties:
        return _when_due(self.input.properties)

    def columns_read(self, needed: Names) -> list[Names]:
        return [needed, frozenset({ROWS})]

    def is_keyed(self, grouped: Set[Node]) -> bool:
        """Groups that have a time of their own are done each by itself."""
        return self.clock not in grouped


def goes_by_clock(roots: Sequence[Node]) -> bool:
    """Is something due by the clock, in the query or in what it does group by group?"""
    steps = list(each_once(roots))
    held = [plan for step in steps for plan in step.own_plans]
    return any(isinstance(step, Due) and step.by_clock for step in steps) or (
        bool(held) and goes_by_clock(held)
    )


def without_waiting(node: Node) -> Node:
    """The step for a history, in which everything is due."""
    return node.inputs[0] if isinstance(node, Due | DueBy) else node
