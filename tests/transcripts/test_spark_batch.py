"""Every transcript with a query as a batch job over its inputs' histories, many in one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.batch.jobs import answers, batch, frame, quickly
from tests.transcripts.final_histories import check_final, has_valid_inputs, input_models

import recension as rc
from recension.core.errors import RecensionError
from recension.core.events import Event
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


@pytest.fixture(scope="module")
def played(spark: Any) -> dict[str, list[Event]]:
    """The answer of every transcript."""
    found: dict[str, list[Event]] = {}
    with quickly(spark):
        for part in (PLAYED[at::4] for at in range(4)):
            histories = answers([_batch(spark, transcript) for transcript in part])
            found |= dict(zip((t.name for t in part), histories, strict=True))
    return found


@pytest.mark.parametrize("transcript", PLAYED, ids=lambda t: t.name)
def test_transcript(transcript: Transcript, played: dict[str, list[Event]]) -> None:
    check_final(transcript, played[transcript.name])


@pytest.mark.parametrize("transcript", PLAYED, ids=lambda t: t.name)
def test_as_the_local_engine_when_it_is_closed(
    transcript: Transcript, played: dict[str, list[Event]]
) -> None:
    query, elements = built(transcript)
    assert_equivalent(played[transcript.name], rc.run(query, elements, close=True).history())


@pytest.mark.parametrize("transcript", [t for t in QUERIES if t.name in REFUSED], ids=lambda t: t.name)
def test_what_depends_on_arrival_is_refused(spark: Any, transcript: Transcript) -> None:
    with pytest.raises(RecensionError, match=REFUSED[transcript.name]):
        _batch(spark, transcript)
