"""Why, for every transcript: some of its answers are explained, and what is said is judged by the engine.

Answers that are what they are because something came late are left out: lineage speaks of histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from tests.lineage.judge import Inputs, Judge
from tests.plan.test_structure import node_kinds
from tests.transcripts.final_histories import has_valid_inputs, input_models
from tests.transcripts.test_spark_batch import QUERIES, built, stand_for_one

import recension as rc
from recension.core.errors import RecensionError
from recension.core.events import Event, Insert
from recension.plan.node import walk
from recension.plan.parts import OfAllParts, OfOnePart
from recension.plan.source import Leaf
from recension.testing.difference import compare_events

MOST = 3
EXPLAINED = [t for t in QUERIES if has_valid_inputs(t) and stand_for_one(t)]
# Made of others by rewrites and by Spark, never asked for.
MADE = {"AlignByClock", "AdvanceTimeByClock", "Span", "TimedSpan"}


def _mean(query: rc.Stream, inputs: Inputs) -> Sequence[Event]:
    feeds = {name: [Insert(e.payload, e.vs, e.ve) for e in events] for name, events in inputs.items()}
    return rc.run(query, feeds, close=True).history().to_events()


@cache
def _answers(number: int) -> Sequence[Event]:
    """What a transcript's inputs mean in the end, if that does not depend on what came late."""
    query, feeds = built(EXPLAINED[number])
    inputs = {name: model.events() for name, model in input_models(EXPLAINED[number]).items()}
    try:
        answers, shown = _mean(query, inputs), rc.run(query, feeds, close=True).history().to_events()
    except RecensionError:
        return ()  # an event that never ends cannot be closed
    return () if compare_events(shown, answers) else answers


@pytest.mark.parametrize("number", range(len(EXPLAINED)), ids=lambda number: EXPLAINED[number].name)
def test_answers_can_be_explained(number: int) -> None:
    query, feeds = built(EXPLAINED[number])
    inputs = {name: model.events() for name, model in input_models(EXPLAINED[number]).items()}
    judge, answers = Judge(query.plan, lambda given: _mean(query, given), inputs), _answers(number)
    for answer in answers[:: max(1, len(answers) // MOST)][:MOST]:
        judge.check(answer, judge.why(answer, feeds))


def test_every_kind_of_node_is_in_a_transcript_that_is_explained() -> None:
    explained = {
        type(node)
        for number, transcript in enumerate(EXPLAINED)
        if _answers(number)
        for node in walk(built(transcript)[0].plan)
    }
    asked = {kind for kind in node_kinds() if not issubclass(kind, Leaf | OfOnePart | OfAllParts)}
    assert sorted(kind.__name__ for kind in asked - explained if kind.__name__ not in MADE) == []
