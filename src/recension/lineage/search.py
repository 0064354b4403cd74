"""Why an answer is what it is: which one is meant, what it rests on, and what of that it needs.

    find      the one event of the output that is asked about
    trace     step by step down to the sources: the events that must stay, the regions that stay empty
    mark      each named event: *needed* if the answer is another without it, else *shared*

All of it works on a part of the inputs (`Replay`), which grows until it is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from recension.core.errors import RecensionError, TimeError, suggest_name
from recension.core.events import Event
from recension.core.history import History as HistoryTable
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TICKS, TimeKind, kind_of, merge_kinds
from recension.core.values import rows_of
from recension.denote.lineage import Basis, EachEvent, EqualEvents, Region, identity, region_of
from recension.denote.order import History, Key
from recension.lineage.biography import find_biography
from recension.lineage.inputs import SMALL, Input, common_kind, read_inputs, without_partitions
from recension.lineage.replay import Replay, StepFailedError, Widen, as_it_runs
from recension.lineage.result import Absence, Named, Question, Step, Why, is_same
from recension.lineage.words import StepWords, describe_event
from recension.plan.node import Node
from recension.plan.nodes import Source
from recension.runners.local import BATCH_SIZE

T = TypeVar("T")
_NEAR = 3


def explain_answer(
    plan: Node,
    inputs: Mapping[str, Any],
    answer: Event | Mapping[str, Any],
    at: int | None = None,
    *,
    biography: bool = True,
    marks: bool = True,
    close: bool = False,
    batch_size: int = BATCH_SIZE,
    small: int = SMALL,
) -> Why:
    """Why the one answer is what it is that has these columns and is true at this time."""
    read = read_inputs(plan, inputs, close=close, small=small, batch_size=batch_size)
    options = _Options(biography, marks, small)
    plan = without_partitions(plan)
    try:
        return _explain(plan, read, answer, at, options)
    except StepFailedError:
        return _explain(as_it_runs(plan), read, answer, at, options)


class _Options(NamedTuple):
    biography: bool
    marks: bool
    small: int


def _explain(
    plan: Node,
    read: Mapping[str, Input],
    answer: Event | Mapping[str, Any],
    at: int | None,
    options: _Options,
) -> Why:
    replay = Replay(plan, read, options.small)
    search = Search(replay, common_kind(read))
    question = search.question(answer, at)
    try:
        found = search.settle(lambda: search.find(question))
    except NoAnswerError as why:
        gone = search.describe_withdrawal(question) if options.biography else ""
        raise RecensionError(f"{why}{gone}") from None
    trace = search.settle(lambda: search.trace(found))
    trace.named = {name: trace.named[name] for name in read if name in trace.named}
    search.verify(trace, found)
    named = search.mark(trace, found) if options.marks else trace.named
    question = search.narrow(question, found)
    life = None
    if options.biography:
        life = find_biography(plan, *replay.to_replay(), question, found)
        if not (life.is_shown or replay.is_small):
            # It may wait for time alone, of which events of other keys tell.
            life = find_biography(plan, *replay.to_replay(whole=True), question, found)
    return Why(found, question, search.kind, trace.steps, named, trace.absences, life)


@dataclass
class Trace:
    """What an answer rests on: step by step, the events named, and where none may appear."""

    steps: list[Step] = field(default_factory=list)
    named: dict[str, list[Named]] = field(default_factory=dict)
    absences: list[Absence] = field(default_factory=list)


class NoAnswerError(RecensionError):
    """There is no answer to the question."""


class Search:
    """Looks for answers, and for what they rest on, in a replay."""

    def __init__(self, replay: Replay, kind: TimeKind) -> None:
        self.replay, self.kind = replay, kind

    def settle(self, ask: Callable[[], T]) -> T:
        """What a question gives once enough is known to answer it."""
        while True:
            try:
                return ask()
            except Widen as more:
                self.replay.widen(more)

    def describe_withdrawal(self, question: Question) -> str:
        """What took back the last answer to a question that has none now, if there was one."""
        if not self.replay.is_small:
            return ""
        revisions = find_biography(self.replay.plan, *self.replay.to_replay(), question, None).revisions
        if not revisions or revisions[-1].after:
            return ""
        was, cause = revisions[-1].before[0], revisions[-1].cause
        return f"; there was {describe_event(was, self.kind)}, until {cause} came"

    # Which answer.

    def question(self, answer: Event | Mapping[str, Any], at: int | None) -> Question:
        schema = self.replay.plan.schema
        where = dict(answer.payload) if isinstance(answer, Event) else dict(answer)
        for name in where:
            if name not in schema.names:
                hint = suggest_name(name, schema.names) or f"; it has {', '.join(schema.names)}"
                raise RecensionError(f"why: the answer has no column {name!r}{hint}")
        if isinstance(answer, Event):
            return Question(where, answer.vs, (answer.vs, answer.ve))
        if at is not None:
            self._require_kind(at)
        return Question(where, at, None)

    def _require_kind(self, at: int) -> None:
        """Refuse a time of another kind than those of the inputs."""
        try:
            merge_kinds(kind_of(at), self.kind)
        except TimeError as why:
            raise TimeError(f"why: at {at!r}: {why}") from None

    def find(self, question: Question) -> Event:
        replay = self.replay
        where = question.exact
        region = Region(where=where) if question.at is None else Region(question.at, question.at, where)
        if not replay.known:
            replay.need(replay.plan, region)
        try:
            events = replay.look(replay.plan).touching(region)
        except RecensionError as why:
            if question.at is None and "until=" in str(why):
                raise RecensionError(f"why: {why}; or say at which time the answer is true, at=") from None
            raise
        alive = [e for e in events if question.holds_of(e)]
        different = list({identity(e): e for e in alive}.values())
        if len(different) == 1:
            return different[0]
        if different:
            raise RecensionError(self._ambiguous(question, different))
        try:
            near = self._find_near(question)
        except RecensionError:  # what is there at all times may be more than can be run
            near = ""
        raise NoAnswerError(f"why: no answer {question.describe(self.kind)}{near}")

    def _ambiguous(self, question: Question, found: History) -> str:
        shown = "; ".join(self._show(e) for e in found[:_NEAR]) + ("; …" if len(found) > _NEAR else "")
        advice = "name more columns" if question.at is not None else "say at which time"
        return f"why: {len(found)} answers {question.describe(self.kind)}: {shown}; {advice}"

    def _find_near(self, question: Question) -> str:
        """What is near an answer that is not there."""
        plan = self.replay.plan
        for names in (list(question.where), list(question.where)[:-1], []):
            where = tuple((name, question.where[name]) for name in names)
            if not where and not self.replay.is_small:
                return "; nor at another time"
            near = self.settle(lambda where=where: self._touching(plan, Region(where=where)))  # type: ignore[misc]
            if near:
                at = question.at if question.at is not None else BEGINNING
                near.sort(key=lambda e: (max(e.vs - at, at + 1 - e.ve, 0), e.vs))
                return f"; near it: {'; '.join(self._show(e) for e in near[:_NEAR])}"
        return "; the query has no answers over these inputs"

    def _touching(self, node: Node, region: Region) -> History:
        if not self.replay.known:
            self.replay.need(node, region)
        return self.replay.look(node).touching(region)

    def _show(self, event: Event) -> str:
        return describe_event(event, self.kind)

    def narrow(self, question: Question, answer: Event) -> Question:
        """The question whose answer it is, for its biography: by key and time, not by what it says."""
        if question.lifetime is None and question.at is not None:
            return question
        lineage = self.replay.lineages.get(self.replay.plan)
        columns = set(answer.payload)
        if lineage is not None and not isinstance(lineage, EachEvent | EqualEvents):
            columns = set(lineage.columns[0]) if lineage.columns else set()
        where = {name: value for name, value in answer.payload.items() if name in columns}
        return Question(where, answer.vs if question.at is None else question.at, None)

    # What it rests on.

    def trace(self, answer: Event) -> Trace:
        replay, found = self.replay, Trace()
        kept: dict[Node, dict[Key, Event]] = {replay.plan: {identity(answer): answer}}
        absent: dict[Node, list[Region]] = {}
        for node in reversed(replay.steps):
            events, regions = kept.get(node, {}), absent.get(node, [])
            if isinstance(node, Source):
                self._end(found, node, events, regions)
            elif events or regions:
                bases = self._step(found, node, list(events.values()), regions)
                for child, basis in zip(node.inputs, bases, strict=True):
                    kept.setdefault(child, {}).update((identity(e), e) for e in basis.kept)
                    _add_regions(absent.setdefault(child, []), basis.absent)
        return found

    def _step(self, found: Trace, node: Node, events: History, regions: list[Region]) -> list[Basis]:
        """What a step's events and the regions where nothing may appear rest on, in its inputs."""
        lineage, inputs = self.replay.lineages[node], [self.replay.look(child) for child in node.inputs]
        words = StepWords(node, self.replay.lineages, self.kind)
        total, lines = [Basis() for _ in node.inputs], []
        for event in events:
            bases = lineage.presence(event, inputs)
            lines.append((event, lineage.sentence(event, bases, words)))
            _merge(total, bases)
        for region in regions:
            _merge(total, lineage.absence(region, inputs, self.replay.look(node)))
        found.steps.append(Step(node.label, self._title(node), lines, regions if not events else []))
        return total

    def _title(self, node: Node) -> str:
        """The step in a line; beside timestamps with durations in words."""
        label = node.label if self.kind == TICKS else getattr(node, "label_with_units", node.label)
        return str(label)

    def _end(self, found: Trace, source: Source, events: dict[Key, Event], regions: list[Region]) -> None:
        if events:
            copies = self.replay.look(source).find(_around(list(events.values())))
            named = [e for e in copies if identity(e) in events]
            found.named[source.name] = [Named(e, "shared") for e in named]
        found.absences += [Absence(source.name, region) for region in regions]

    def verify(self, trace: Trace, answer: Event) -> None:
        """Run what is named alone; if the answer is not there, an error: better none than a wrong reason."""
        parts = {
            name: keep_named(part, trace.named.get(name, [])) for name, part in self.replay.parts.items()
        }
        if not holds(self.replay.answers(parts), answer):
            raise RecensionError(
                f"why: {self._show(answer)} does not follow from the events that were found; if nothing in "
                "the query depends on when its inputs come, this is an error in the library"
            )

    # What it needs.

    def mark(self, trace: Trace, answer: Event) -> dict[str, list[Named]]:
        """Each event is needed if the answer is another when it is removed; equal ones are looked at once."""
        marked: dict[str, list[Named]] = {}
        for source, named in trace.named.items():
            seen: dict[Key, bool] = {}
            for one in named:
                if (key := identity(one.event)) not in seen:
                    seen[key] = not self.has_answer(answer, {source: [one.event]})
            marked[source] = [
                replace(one, mark="needed" if seen[identity(one.event)] else "shared") for one in named
            ]
        return marked

    def has_answer(self, answer: Event, without: Mapping[str, History]) -> bool:
        """Is the answer still given if one copy of each of these events is removed?"""
        parts = dict(self.replay.parts)
        for source, events in without.items():
            for event in events:
                parts[source] = remove_one(parts[source], event)
        try:
            return holds(self.replay.answers(parts), answer)
        except RecensionError:
            return False


def keep_named(history: HistoryTable, named: list[Named]) -> HistoryTable:
    """The events of a history that are named."""
    wanted = {identity(one.event) for one in named}
    rows = rows_of(history.payload) if history.payload.num_columns else [{}] * len(history)
    times = zip(rows, history.vs.tolist(), history.ve.tolist(), strict=True)
    return history.filter(np.array([identity(Event(*each)) in wanted for each in times], np.bool_))


def remove_one(history: HistoryTable, event: Event) -> HistoryTable:
    """A history without one copy of an event."""
    near = np.flatnonzero((history.vs == event.vs) & (history.ve == event.ve))
    rows = rows_of(history.payload.take(near)) if history.payload.num_columns else [{}] * len(near)
    wanted = identity(event)
    for at, row in zip(near.tolist(), rows, strict=True):
        if identity(Event(row, event.vs, event.ve)) == wanted:
            keep = np.ones(len(history), np.bool_)
            keep[at] = False
            return history.filter(keep)
    return history


def holds(history: HistoryTable, answer: Event) -> bool:
    """Is the answer in a history? Floats that differ by rounding are equal."""
    same = history.filter((history.vs == answer.vs) & (history.ve == answer.ve))
    return any(is_same(event.payload, answer.payload) for event in same.to_events())


def _merge(total: list[Basis], more: list[Basis]) -> None:
    for one, other in zip(total, more, strict=True):
        one.kept += other.kept
        one.absent += other.absent


def _add_regions(regions: list[Region], more: list[Region]) -> None:
    """Add regions; those within others are left out."""
    for region in more:
        if not any(other.covers(region) for other in regions):
            regions[:] = [other for other in regions if not region.covers(other)] + [region]


def _around(events: History) -> Region:
    start, end = min(e.vs for e in events), max(e.ve for e in events)
    first = region_of(events[0])
    for event in events[1:]:
        first = first.hull(region_of(event))
    return replace(first, start=max(start, BEGINNING), end=min(end, FOREVER))
