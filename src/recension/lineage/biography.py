"""The biography of an answer: what was said as the inputs came, element by element.

Only elements are replayed of events that ever were where the answer rests, and CTIs. Sources are taken in
turn, a batch from each, as `rc.run` takes them. After the element that makes the answer final all is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from recension.core.batch import CTI, INSERT, EventBatch, cti, new_end
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.lineage import Region, identity
from recension.lineage.inputs import SourceInput, common_kind
from recension.lineage.result import Biography, Cause, Question, Revision
from recension.plan.node import Node
from recension.plan.nodes import Table
from recension.runners.local import Session

_FIRST: Final = -1


def tell_biography(
    plan: Node,
    inputs: Mapping[str, SourceInput],
    regions: Mapping[str, Region],
    question: Question,
    answer: Event,
    batch_size: int,
) -> Biography:
    """What was said to a question, from the first element to the one that made it final."""
    session = Session({"query": plan}, history_limit=0, clock=lambda: 0)
    said, kind = _Said(question), common_kind(inputs)
    revisions: list[Revision] = []
    for place in _places(inputs, regions, batch_size):
        one = inputs[place.source]
        is_end = place.row == len(one)
        batch = cti(FOREVER, one.source.columns) if is_end else one.batch.slice(place.row, place.row + 1)
        session.feed(place.source, batch)
        before = list(said.events)
        said.follow(session.read().batches)
        is_new = list(map(identity, before)) != list(map(identity, said.events))
        is_final = bool(said.events) and _is_final(said, plan)
        if is_new or is_final:
            text = "its end" if is_end else str(batch.to_elements(kind)[0])
            cause = Cause(place.source, place.row + 1, text)
            if is_new:
                revisions.append(Revision(cause, before, list(said.events)))
            if is_final:
                return Biography(revisions, cause, True)
    return Biography(revisions, None, identity(answer) in map(identity, said.events))


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


def _places(
    inputs: Mapping[str, SourceInput], regions: Mapping[str, Region], batch_size: int
) -> Iterator[_Place]:
    """The rows to replay in the order in which sources are read; tables first."""
    found: list[_Place] = []
    for number, (name, one) in enumerate(inputs.items()):
        rows = one.rows(regions[name]) if name in regions else np.zeros(0, np.int64)
        rows = np.sort(np.concatenate([rows, one.ctis, [len(one)] if one.is_closed else []])).astype(np.int64)
        is_table = isinstance(one.source, Table)
        found += [
            _Place(_FIRST if is_table else row // batch_size, number, row, name) for row in rows.tolist()
        ]
    found.sort()
    for place, after in zip(found, [*found[1:], None], strict=True):
        if after is None or not _is_overtaken(place, after, inputs, regions):
            yield place


def _is_overtaken(
    place: _Place, after: _Place, inputs: Mapping[str, SourceInput], regions: Mapping[str, Region]
) -> bool:
    """Is it a CTI before all that matters, which another CTI follows at once?"""
    if place.source != after.source or after.row == len(inputs[place.source]):
        return False
    batch, start = inputs[place.source].batch, regions.get(place.source, Region()).start
    are_ctis = batch.kind[place.row] == CTI == batch.kind[after.row]
    return bool(are_ctis and batch.vs[after.row] <= start)
