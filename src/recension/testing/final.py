"""Transcripts on runners that see whole inputs: only what is left at the end can be compared.

Such a runner closes every input. Where a transcript does too, the history it states is the answer; where
it stops before, its answer is final up to the last CTI it puts out, and only that part is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from recension.core.events import Event, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.difference import difference
from recension.testing.openclose import Close, Open
from recension.testing.transcripts import OUTPUT, Transcript
from recension.testing.walk import Walk


def check_final(transcript: Transcript, actual: Sequence[Event]) -> None:
    """Fail unless the history of the closed inputs agrees with what the transcript says is final."""
    t = final_until(transcript)
    if found := difference(_before(actual, t), _before(stated(transcript), t)):
        raise AssertionError(f"{transcript.file}:{transcript.line}: {transcript.name}\n{found}")


def stated(transcript: Transcript) -> list[Event]:
    """The history that the transcript states last, or that its expected output adds up to."""
    shown = Walk()
    history: Sequence[Event] | None = None
    for step in transcript.steps:
        for element in (step.expect or {}).get(OUTPUT, ()):
            shown.take(element)
        if step.expect:
            history = None
        if step.history is not None:
            history = step.history[OUTPUT]
    return list(shown.events() if history is None else history)


def final_until(transcript: Transcript) -> int:
    """Up to where the transcript's answer is final."""
    if all(walk.cti == FOREVER for walk in inputs(transcript).values()):
        return FOREVER
    shown = Walk()
    for step in transcript.steps:
        for element in (step.expect or {}).get(OUTPUT, ()):
            shown.take(element)
    return shown.cti


def inputs(transcript: Transcript) -> dict[str, Walk]:
    """What each input has become at the end."""
    walks = {name: Walk() for name in transcript.inputs}
    for step in transcript.steps:
        for name, element in step.input:
            if not isinstance(element, Open | Close):
                walks[name].take(element)
    return walks


def has_valid_inputs(transcript: Transcript) -> bool:
    """Is every input a valid stream? Finalize alone copes with others, and those have no history."""
    walks = {name: Walk() for name in transcript.inputs}
    for step in transcript.steps:
        for name, element in step.input:
            if isinstance(element, Open | Close):
                continue
            if isinstance(element, Insert | Retract) and walks[name].fault(element):
                return False
            if isinstance(element, ExternalCti):
                continue
            walks[name].take(element)
    return True


def _before(events: Sequence[Event], t: int) -> list[Event]:
    return [Event(e.payload, e.vs, min(e.ve, t)) for e in events if e.vs < t]
