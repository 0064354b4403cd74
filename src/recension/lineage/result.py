"""What `rc.why` gives: an answer, the events it rests on, and its biography; and their printed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from recension.core.difference import RELATIVE_TOLERANCE
from recension.core.errors import RecensionError, suggest_name
from recension.core.events import Event
from recension.core.history import History
from recension.core.time_kind import TimeKind, describe_time
from recension.denote.lineage import Region
from recension.denote.order import value_order
from recension.lineage.words import describe_absence, describe_event, describe_lifetime

Mark: TypeAlias = Literal["needed", "shared"]
_LINES: Final = 6
_EVENTS: Final = 20


def is_same(one: Any, other: Any) -> bool:
    """Are two values equal? Floats that differ by rounding are.

    >>> is_same({"x": 0.1 + 0.2, "y": None}, {"x": 0.3, "y": None}), is_same(0.1, 0.2)
    (True, False)
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(v, other[name]) for name, v in one.items())
    if isinstance(one, float) and isinstance(other, float | int):
        is_nan = one != one and other != other
        return is_nan or one == other or abs(one - other) <= RELATIVE_TOLERANCE * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(is_same(a, b) for a, b in zip(one, other, strict=True))
    return value_order(one) == value_order(other)


@dataclass(frozen=True)
class Question:
    """Which answer is asked about: by columns, at a time, or for a whole lifetime."""

    where: Mapping[str, Any]
    at: int | None
    lifetime: tuple[int, int] | None

    def holds_of(self, event: Event) -> bool:
        """Is the event an answer to it?"""
        if self.lifetime is not None and (event.vs, event.ve) != self.lifetime:
            return False
        if self.at is not None and not event.vs <= self.at < event.ve:
            return False
        return all(is_same(event.payload[name], v) for name, v in self.where.items())

    @property
    def exact(self) -> tuple[tuple[str, Any], ...]:
        """The columns by which answers can be looked up; floats may differ by rounding."""
        return tuple((name, v) for name, v in self.where.items() if not isinstance(v, float))

    def describe(self, kind: TimeKind) -> str:
        """The question in words, such as ``with site = Oslo at 9``."""
        columns = " and ".join(f"{name} = {value}" for name, value in self.where.items())
        words = [f"with {columns}"] if columns else []
        if self.lifetime is not None:
            words.append(f"in {describe_lifetime(*self.lifetime, kind)}")
        elif self.at is not None:
            words.append(f"at {describe_time(self.at, kind)}")
        return " ".join(words) or "at all"


@dataclass(frozen=True)
class Named:
    """An input event on which an answer rests.

    It is *needed* if the answer is another without it. It is *shared* if it is one of several reasons: an
    equal event, a zero in a sum, an event that matters only if others are not there.
    """

    event: Event
    mark: Mark


@dataclass(frozen=True)
class Step:
    """One step of the query: what it made the events of, each in its own words."""

    label: str
    title: str
    """The label for people: beside timestamps, with durations in words."""
    lines: list[tuple[Event, str]]
    empty: list[Region]
    """Regions of its output in which the answer rests on that nothing is there, or nothing else."""


@dataclass(frozen=True)
class Absence:
    """A region of a source in which the answer rests on there being no other events."""

    source: str
    region: Region


@dataclass(frozen=True)
class Cause:
    """An element of an input that changed something; ``row`` counts the elements of the source from 1."""

    source: str
    row: int
    element: str

    def __str__(self) -> str:
        return f"{self.source}, row {self.row}: {self.element}"


@dataclass(frozen=True)
class Revision:
    """A change of the answer: what was said at the time that is asked about, before and after."""

    cause: Cause
    before: list[Event]
    after: list[Event]


@dataclass(frozen=True)
class Biography:
    """When an answer was first given, each revision of it, and when it became final."""

    revisions: list[Revision]
    final: Cause | None
    """The element by which it became final."""
    is_shown: bool
    """Has it been given by the inputs as they are? If not it waits for them to go on."""


@dataclass(frozen=True, repr=False)
class Why:
    """Why an answer is what it is. Printed, it is an explanation in words."""

    answer: Event
    question: Question
    time_type: TimeKind
    steps: list[Step]
    named: dict[str, list[Named]]
    absences: list[Absence]
    biography: Biography | None

    def events(self, source: str | None = None) -> list[Event]:
        """The events that are named, of all sources or of one."""
        names = list(self.named) if source is None else [self._known(source)]
        return [one.event for name in names for one in self.named[name]]

    def _known(self, source: str) -> str:
        if source not in self.named:
            hint = suggest_name(source, list(self.named)) or f"; there are those of {', '.join(self.named)}"
            raise RecensionError(f"why: no events of {source!r} are named{hint}")
        return source

    def to_arrow(self, source: str | None = None) -> pa.Table:
        """The named events: ``_source``, ``_mark``, ``_vs``, ``_ve`` and the payload.

        Columns that a source does not have are null in its rows.
        """
        names = list(self.named) if source is None else [self._known(source)]
        tables = [self._table(name) for name in names]
        try:
            return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
        except pa.ArrowInvalid:
            raise RecensionError(
                "why: the sources have columns of one name and different types; ask for one source, "
                f"to_arrow({names[0]!r})"
            ) from None

    def _table(self, source: str) -> pa.Table:
        named = self.named[source]
        table = History.from_events([one.event for one in named]).to_arrow(self.time_type)
        marks, names = pa.array([one.mark for one in named]), pa.array([source] * len(named), pa.string())
        return table.add_column(0, "_mark", marks).add_column(0, "_source", names)

    def __repr__(self) -> str:
        return f"<Why {self._show(self.answer)}: {len(self.events())} events>"

    def __str__(self) -> str:
        return "\n".join(
            [*self._headline(), *self._step_lines(), *self._named_lines(), *self._biography_lines()]
        )

    def show(self) -> None:
        """Print it."""
        print(self)

    def _headline(self) -> list[str]:
        return [self._show(self.answer)]

    def _step_lines(self) -> list[str]:
        lines = ["", "Step by step"]
        for step in self.steps:
            lines.append(f"  {step.title}")
            for event, words in step.lines[:_LINES]:
                lines.append(f"    {self._show(event)}: {words}")
            if len(step.lines) > _LINES:
                lines.append(f"    … and {len(step.lines) - _LINES} more")
            if step.empty and not step.lines:
                lines.append("    gave no other event at the time of the answer")
        return lines

    def _named_lines(self) -> list[str]:
        lines = ["", "It rests on"]
        for source, named in self.named.items():
            for mark in ("needed", "shared"):
                events = [one.event for one in named if one.mark == mark]
                if events:
                    lines.append(f"  {source}, {mark}")
                    lines += [f"    {self._show(event)}" for event in events[:_EVENTS]]
                    lines += [f"    … and {len(events) - _EVENTS} more"] if len(events) > _EVENTS else []
        lines += [
            f"  {describe_absence(absence.source, absence.region, self.time_type)}"
            for absence in self.absences
        ]
        return lines

    def _biography_lines(self) -> list[str]:
        life = self.biography
        if life is None:
            return []
        lines = ["", f"How the answer {self.question.describe(self.time_type)} changed"]
        for revision in life.revisions:
            said = "; ".join(self._show(event) for event in revision.after) or "nothing"
            verb = "first" if not revision.before else "then"
            lines.append(f"  {verb} {said}")
            lines.append(f"    after {revision.cause}")
        if life.final is not None:
            lines.append(f"  final after {life.final}")
        elif life.is_shown:
            lines.append("  not final: no CTI has passed it yet")
        else:
            lines.append(
                "  not given yet: the query waits for input; this is the answer if the inputs end now"
            )
        return lines

    def _show(self, event: Event) -> str:
        return describe_event(event, self.time_type)
