"""Judges what `why` says of an answer: it suffices, nothing else matters, and the marks are right.

What a query means for less input is said by the oracle, or by the local engine over whole histories. Both run
closed; equal events cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from recension.core.errors import RecensionError
from recension.core.events import Event
from recension.denote.lineage import identity
from recension.lineage import Why, explain_answer
from recension.lineage.inputs import common_kind, read_inputs
from recension.lineage.replay import Replay
from recension.lineage.result import Absence, Question, is_same
from recension.lineage.search import Search, Trace
from recension.plan.node import Node
from recension.plan.source import sources_of
from recension.runners.finite import push_inputs, run
from recension.runners.local import Session

Inputs: TypeAlias = Mapping[str, Sequence[Event]]


class Judge:
    """A query over histories, and what it means."""

    def __init__(self, query: Node, meaning: Callable[[Inputs], Sequence[Event]], inputs: Inputs) -> None:
        self._query, self._meaning, self._inputs = query, meaning, inputs
        self._meanings = dict[frozenset[tuple[str, int]], Sequence[Event]]()

    def why(
        self, answer: Event, feeds: Mapping[str, Any], small: int = 1000, *, biography: bool = False
    ) -> Why:
        """What is said of an answer, by the elements of the inputs that are read; ``small`` as there."""
        read = {name: feeds[name] for name in sources_of(self._query)}
        return explain_answer(
            self._query, read, answer, biography=biography, close=True, small=small, batch_size=2
        )

    def check_absences(self, answer: Event, absences: Sequence[Absence], added: Inputs) -> None:
        """What is new elsewhere changes nothing; where the query refuses it nothing is said."""
        for name, several in added.items():
            for one in several:
                if any(absence.region.touches(one) for absence in absences if absence.source == name):
                    continue
                try:
                    found = self._meaning({n: [*e, one] if n == name else e for n, e in self._inputs.items()})
                except RecensionError:
                    continue
                assert _is_there(answer, found), f"{one} at {name} matters and no absence says so"

    def check(self, answer: Event, why: Why | Trace, removed: Sequence[int] = (0, 2)) -> None:
        """The three properties; ``removed`` are places among the events that are not named."""
        named = {n: [identity(o.event) for o in why.named.get(n, [])] for n in self._inputs}
        unnamed = [
            (n, i)
            for n, events in self._inputs.items()
            for i, event in enumerate(events)
            if identity(event) not in named[n]
        ]
        assert self._has(answer, unnamed), "what is named does not suffice"
        for one in unnamed:
            assert self._has(answer, [one]), f"{one} matters and is not named"
        some = [one for place, one in enumerate(unnamed) if place in removed]
        assert self._has(answer, some), f"{some} matter together and are not named"
        for name, several in why.named.items() if isinstance(why, Why) else ():
            for marked in several:
                key = identity(marked.event)
                at = next(i for i, e in enumerate(self._inputs[name]) if identity(e) == key)
                is_needed = not self._has(answer, [(name, at)])
                assert (marked.mark == "needed") == is_needed, f"{marked.event} is marked {marked.mark}"

    def _has(self, answer: Event, removed: Sequence[tuple[str, int]]) -> bool:
        """Is the answer still there without some events of the inputs?"""
        return _is_there(answer, self._mean_without(frozenset(removed)))

    def _mean_without(self, removed: frozenset[tuple[str, int]]) -> Sequence[Event]:
        """What is left of the inputs means the same for every answer that is asked about."""
        if removed not in self._meanings:
            left = {
                n: [e for i, e in enumerate(events) if (n, i) not in removed]
                for n, events in self._inputs.items()
            }
            self._meanings[removed] = self._meaning(left)
        return self._meanings[removed]


def traces(query: Node, feeds: Mapping[str, Any], *, small: int) -> Iterator[tuple[Event, Trace]]:
    """All answers of a query and what each rests on, without marks and biographies."""
    inputs = read_inputs(query, feeds, close=True, small=small)
    search = Search(Replay(query, inputs, small), common_kind(inputs))
    answers = run(query, feeds, close=True).history().to_events()
    for answer in {identity(event): event for event in answers}.values():
        question = search.question(answer, None)
        found = search.settle(lambda question=question: search.find(question))  # type: ignore[misc]
        yield answer, search.settle(lambda found=found: search.trace(found))  # type: ignore[misc]


def _is_there(answer: Event, found: Sequence[Event]) -> bool:
    return any(
        (event.vs, event.ve) == (answer.vs, answer.ve) and is_same(event.payload, answer.payload)
        for event in found
    )


def answers_given(
    query: Node, inputs: Mapping[str, Any], question: Question, *, batch_size: int, close: bool = False
) -> list[list[str]]:
    """What a run has given for an answer to a question after each of its batches, where that changes."""
    session = Session({"query": query}, batch_size, lambda: 0, history_limit=None)
    found: list[list[str]] = [[]]
    for _ in push_inputs(session, inputs, batch_size=batch_size, close=close):
        now = sorted(str(event) for event in session.history().to_events() if question.holds_of(event))
        if now != found[-1]:
            found.append(now)
    return found[1:]
