"""The biography of an answer: what was said as the inputs came, element by element.

Only elements of events that were ever where the answer rests are replayed, and CTIs; sources are taken in turn,
a batch from each, as `rc.run` takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from recension.core.batch import CTI, EventBatch
from recension.core.events import Event
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import TimeKind
from recension.denote.lineage import Region, identity
from recension.lineage.inputs import SourceInput, common_kind
from recension.lineage.result import Biography, Question, Revision
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
    for source, row, batch in _elements(inputs, regions, batch_size):
        session.feed(source, batch)
        before = said.now()
        cti = said.take(session)
        after = said.now()
        text = str(batch.to_elements(kind)[0])
        if list(map(identity, before)) != list(map(identity, after)):
            revisions.append(Revision(source, row + 1, text, before, after))
        if after and _is_final(after, cti, plan):
            return Biography(revisions, (source, row + 1, text), True)
    return Biography(revisions, None, any(identity(e) == identity(answer) for e in said.now()))


def _is_final(answers: list[Event], cti: int, plan: Node) -> bool:
    """Can nothing of them change any more? An end at the CTI may still move, unless ends only shrink."""
    if cti == FOREVER:
        return True
    shrinks = plan.properties.is_shrink_only
    return all(event.ve < cti or (shrinks and event.ve == cti) for event in answers)


class _Said:
    """The events of the output that answer the question, as they are now."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._events: list[Event] = []
        self._cti = BEGINNING

    def now(self) -> list[Event]:
        return list(self._events)

    def take(self, session: Session) -> int:
        """Follow what the query has given; the CTI that it has come to."""
        for batch in session.read().batches:
            self._follow(batch)
        return self._cti

    def _follow(self, batch: EventBatch) -> None:
        ctis = batch.vs[batch.kind == CTI]
        if len(ctis):
            self._cti = max(self._cti, int(ctis.max()))
        for element in batch.filter(batch.is_data()).to_elements():
            old = getattr(element, "ve", FOREVER), getattr(element, "new_ve", None)
            payload, vs = element.payload, element.vs  # type: ignore[union-attr]
            if old[1] is None:
                self._add(Event(payload, vs, old[0]))
            else:
                gone = identity(Event(payload, vs, old[0]))
                at = next((i for i, e in enumerate(self._events) if identity(e) == gone), None)
                if at is not None:
                    del self._events[at]
                if old[1] > vs:
                    self._add(Event(payload, vs, old[1]))

    def _add(self, event: Event) -> None:
        if self._question.holds_of(event):
            self._events.append(event)


def _elements(
    inputs: Mapping[str, SourceInput], regions: Mapping[str, Region], batch_size: int
) -> Iterator[tuple[str, int, EventBatch]]:
    """Single elements in the order in which sources are read; tables first, then closed."""
    order: list[tuple[int, int, int, str]] = []
    for place, (name, one) in enumerate(inputs.items()):
        if name in regions:
            rows = np.concatenate([one.rows(regions[name]), one.ctis])
            is_table = isinstance(one.source, Table)
            order += [(_FIRST if is_table else row // batch_size, place, row, name) for row in np.sort(rows).tolist()]
    for _, _, row, name in sorted(order):
        yield name, row, inputs[name].batch.slice(row, row + 1)


__all__ = ["TimeKind", "tell_biography"]
