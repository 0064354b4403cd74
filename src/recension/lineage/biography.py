"""The biography of an answer: what was said as the inputs came, element by element.

Of very many elements only those are replayed of events that ever were where the answer rests, and CTIs; so
what waits for others, of other keys, to show how far time is, may be told of too late. Sources are taken in
turn, a batch from each, as `rc.run` takes them. After the element that makes the answer final all is said.

CTIs, and elements of other keys, can only move time on. So many of them are fed at once; if what is said has
changed then, they are fed again, one by one, to a second session that was left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from recension.core.batch import CTI, INSERT, EventBatch, cti, new_end
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.lineage import Region, identity
from recension.denote.order import Key
from recension.lineage.inputs import SourceInput, common_kind
from recension.lineage.result import Biography, Cause, Question, Revision
from recension.plan.node import Node
from recension.plan.nodes import Table
from recension.runners.local import Session

_FIRST: Final = -1
_CHUNK: Final = 512


def find_biography(
    plan: Node,
    inputs: Mapping[str, SourceInput],
    regions: Mapping[str, Region],
    keys: Mapping[str, Region],
    question: Question,
    answer: Event | None,
) -> Biography:
    """How the answer to a question changed, from the first element to the one that made it final.

    Elements in ``regions`` are replayed; only those that are in ``keys`` as well can change the answer.
    Without an answer: until the inputs have ended.
    """
    ahead, behind = (_Player(plan, inputs, question) for _ in range(2))
    revisions, missed = list[Revision](), list[_Place]()
    for chunk in _chunks(_places(inputs, regions), _changing(inputs, keys)):
        one_by_one = ahead
        if len(chunk) > 1:
            before = ahead.identities()
            ahead.feed(chunk)
            if ahead.identities() == before and not ahead.is_final():
                missed += chunk
                continue
            behind.feed(missed)
            one_by_one, missed = behind, []
        else:
            missed += chunk
        for place in chunk:
            said = list(one_by_one.said.events)
            known = one_by_one.identities()
            one_by_one.feed([place])
            if one_by_one.identities() != known:
                cause = one_by_one.describe(place)
                revisions.append(Revision(cause, said, list(one_by_one.said.events)))
            if one_by_one.is_final():
                return Biography(revisions, one_by_one.describe(place), True)
    return Biography(revisions, None, answer is not None and identity(answer) in ahead.identities())


class _Player:
    """A session of the query, and what it says to the question."""

    def __init__(self, plan: Node, inputs: Mapping[str, SourceInput], question: Question) -> None:
        self._plan, self._inputs = plan, inputs
        self._session = Session({"query": plan}, history_limit=0, clock=lambda: 0)
        self.said = _Said(question)

    def feed(self, places: Sequence[_Place]) -> None:
        """Feed some rows, those of one source that follow each other at once."""
        for name, run in groupby(places, key=lambda place: place.source):
            one, rows = self._inputs[name], [place.row for place in run]
            taken = [row for row in rows if row < len(one)]
            if taken:
                self._session.feed(name, one.batch.take(np.array(taken)))
            if len(taken) < len(rows):
                self._session.feed(name, cti(FOREVER, one.source.columns))
        if places:
            self.said.follow(self._session.read().batches)

    def identities(self) -> list[Key]:
        """What is said, to compare."""
        return [identity(event) for event in self.said.events]

    def is_final(self) -> bool:
        """Is something said that cannot change any more?"""
        return bool(self.said.events) and _is_final(self.said, self._plan)

    def describe(self, place: _Place) -> Cause:
        """A row as the cause of what is said after it."""
        one, kind = self._inputs[place.source], common_kind(self._inputs)
        is_end = place.row == len(one)
        text = "its end" if is_end else str(one.batch.slice(place.row, place.row + 1).to_elements(kind)[0])
        return Cause(place.source, one.place(place.row) + 1, text)


class _Said:
    """The events of the output that answer the question, as they are now."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.events: list[Event] = []
        self.cti = BEGINNING

    def follow(self, batches: list[EventBatch]) -> None:
        """Take in what the query has given."""
        for batch in batches:
            ctis = batch.vs[batch.kind == CTI]
            self.cti = max(self.cti, *ctis.tolist(), BEGINNING)
            data = batch.filter(batch.is_data())
            rows = zip(data.to_elements(), data.kind.tolist(), new_end(data).tolist(), strict=True)
            for element, kind, end in rows:
                payload, vs, ve = element.payload, element.vs, element.ve  # type: ignore[union-attr]
                if kind != INSERT:
                    self._remove(Event(payload, vs, ve))
                if end > vs and self._question.holds_of(new := Event(payload, vs, end)):
                    self.events.append(new)

    def _remove(self, event: Event) -> None:
        gone = identity(event)
        at = next((i for i, known in enumerate(self.events) if identity(known) == gone), None)
        if at is not None:
            del self.events[at]


def _is_final(said: _Said, plan: Node) -> bool:
    """Can nothing of it change any more? An end at the CTI may still move, unless ends only shrink."""
    if said.cti == FOREVER:
        return True
    shrinks = plan.properties.is_shrink_only
    return all(event.ve < said.cti or (shrinks and event.ve == said.cti) for event in said.events)


class _Place(NamedTuple):
    turn: int
    number: int
    row: int
    source: str


def _places(inputs: Mapping[str, SourceInput], regions: Mapping[str, Region]) -> Iterator[_Place]:
    """The rows to replay in the order in which sources are read; tables first."""
    found: list[_Place] = []
    for number, (name, one) in enumerate(inputs.items()):
        rows = one.rows(regions[name]) if name in regions else np.zeros(0, np.int64)
        rows = np.sort(np.concatenate([rows, one.ctis, [len(one)] if one.is_closed else []])).astype(np.int64)
        is_table = isinstance(one.source, Table)
        found += [_Place(_FIRST if is_table else one.turn(row), number, row, name) for row in rows.tolist()]
    found.sort()
    following: list[_Place | None] = [*found[1:], None]
    for place, after in zip(found, following, strict=False):
        if after is None or not _is_overtaken(place, after, inputs, regions):
            yield place


def _changing(inputs: Mapping[str, SourceInput], keys: Mapping[str, Region]) -> dict[str, set[int]]:
    """The rows that can change the answer, by source."""
    return {name: set(one.rows(keys[name]).tolist()) for name, one in inputs.items() if name in keys}


def _chunks(places: Iterable[_Place], changing: Mapping[str, set[int]]) -> Iterator[list[_Place]]:
    """Rows that can change the answer one by one, others together."""
    chunk: list[_Place] = []
    for place in places:
        can_change = place.row in changing.get(place.source, ())
        if chunk and (can_change or len(chunk) == _CHUNK):
            yield chunk
            chunk = []
        if can_change:
            yield [place]
        else:
            chunk.append(place)
    if chunk:
        yield chunk


def _is_overtaken(
    place: _Place, after: _Place, inputs: Mapping[str, SourceInput], regions: Mapping[str, Region]
) -> bool:
    """Is it a CTI before all that matters, which another CTI follows at once?"""
    if place.source != after.source or after.row == len(inputs[place.source]):
        return False
    batch, start = inputs[place.source].batch, regions.get(place.source, Region()).start
    are_ctis = batch.kind[place.row] == CTI == batch.kind[after.row]
    return bool(are_ctis and batch.vs[after.row] <= start)
