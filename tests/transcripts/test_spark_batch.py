"""Transcripts with a query as batch jobs over their inputs' histories, many in one job.

A few in which every method occurs; ``make soak`` plays all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.covering import one_of_every_method
from tests.runners.spark.batch.jobs import answers, batch, frame, quickly
from tests.transcripts.final_histories import check_final, has_valid_inputs, input_models

import recension as rc
from recension.core.errors import RecensionError
from recension.testing.assertions import assert_equivalent
from recension.testing.difference import compare_events
from recension.testing.transcripts import Transcript, load_transcripts

REFUSED = {
    "weak consistency": "finalize, remember 0",
    "time advances after every other event": "advance time, 2 behind",
    "time advances once an interval, late events are cut off": "advance time, 0 behind",
    "an event that was cut off is corrected as it is shown": "advance time, 2 behind",
    "a late change takes effect at the cti, and what corrects it there too": "advance time, 2 behind",
    "what corrects an event that was left out is left out": "advance time, 2 behind",
    "time comes from another stream": "advance time with another stream",
    "a group forgets by its own time": "finalize, remember 4",
    "time advances in each group, and for all with that of one not seen yet": "advance time, 2 behind",
    "time that a group takes from another stream": "advance time with another stream",
    "each group at a level of its own": "finalize, remember 0",
    "without a version the last to arrive counts": "without version= the last row to arrive counts",
}
# How a batch reads partitions is in runners/spark/batch.
QUERIES = [
    t for t in load_transcripts([Path(__file__).parent]) if t.query is not None and not t.has_partitions
]


def stand_for_one(transcript: Transcript) -> bool:
    """Do the inputs of a merge have one history in the end? Those that are still apart are refused."""
    first, *others = (walk.events() for walk in input_models(transcript).values())
    return "merge" not in str(transcript.query) or not any(compare_events(first, other) for other in others)


# Broken chains and repeats, which finalize repairs on the way, have no history of their own.
PLAYED = [t for t in QUERIES if has_valid_inputs(t) and t.name not in REFUSED and stand_for_one(t)]


def built(transcript: Transcript) -> tuple[rc.Stream, dict[str, list[Any]]]:
    sources = {name: rc.source(name, schema) for name, schema in transcript.inputs.items()}
    elements: dict[str, list[Any]] = {name: [] for name in sources}
    for step in transcript.steps:
        for name, element in step.input:
            elements[name].append(element)
    return transcript.build({"rc": rc, "col": rc.col, **sources}), elements


def _batch(spark: Any, transcript: Transcript) -> Any:
    query, _ = built(transcript)
    schemas = transcript.inputs
    histories = {name: walk.events() for name, walk in input_models(transcript).items()}
    return batch(spark, query, {n: frame(spark, events, schemas[n]) for n, events in histories.items()})


CHOSEN = one_of_every_method(PLAYED)
OTHERS = [t for t in PLAYED if t not in CHOSEN]
PARTS = [
    *(pytest.param(CHOSEN[at::2], id=f"chosen {at}") for at in range(2)),
    *(pytest.param(OTHERS[at::4], id=f"others {at}", marks=pytest.mark.soak) for at in range(4)),
]


@pytest.mark.parametrize("part", PARTS)
def test_transcripts(spark: Any, part: Sequence[Transcript]) -> None:
    """As they say, and as the local engine has it when it is closed."""
    with quickly(spark):
        found = answers([_batch(spark, transcript) for transcript in part])
    for transcript, events in zip(part, found, strict=True):
        query, elements = built(transcript)
        try:
            check_final(transcript, events)
            assert_equivalent(events, rc.run(query, elements, close=True).history())
        except AssertionError as why:
            raise AssertionError(f"{transcript.name}\n{why}") from None


@pytest.mark.parametrize("transcript", [t for t in QUERIES if t.name in REFUSED], ids=lambda t: t.name)
def test_what_depends_on_arrival_is_refused(spark: Any, transcript: Transcript) -> None:
    with pytest.raises(RecensionError, match=REFUSED[transcript.name]):
        _batch(spark, transcript)
