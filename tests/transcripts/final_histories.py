"""What a transcript says of the history in the end, for runners that see whole inputs and close every one.

Where a transcript closes its inputs too, the history it states is the answer. Where it stops before, its
answer is final up to the last CTI it puts out, and only that part is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from recension.core.events import Event, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.difference import compare_events
from recension.testing.model import Close, Open, StreamModel
from recension.testing.transcripts import OUTPUT, Transcript


def check_final(transcript: Transcript, actual: Sequence[Event]) -> None:
    """Fail unless the history of the closed inputs agrees with what the transcript says is final."""
    t = final_until(transcript)
    if found := compare_events(_cut_before(actual, t), _cut_before(stated_history(transcript), t)):
        raise AssertionError(f"{transcript.file}:{transcript.line}: {transcript.name}\n{found}")


def stated_history(transcript: Transcript) -> list[Event]:
    """The history that the transcript states last, or that its expected output adds up to."""
    output = StreamModel()
    history: Sequence[Event] | None = None
    for step in transcript.steps:
        for element in (step.expect or {}).get(OUTPUT, ()):
            output.take(element)
        if step.expect:
            history = None
        if step.history is not None:
            history = step.history[OUTPUT]
    return list(output.events() if history is None else history)


def final_until(transcript: Transcript) -> int:
    """Up to where the transcript's answer is final."""
    if all(model.cti == FOREVER for model in input_models(transcript).values()):
        return FOREVER
    output = StreamModel()
    for step in transcript.steps:
        for element in (step.expect or {}).get(OUTPUT, ()):
            output.take(element)
    return output.cti


def input_models(transcript: Transcript) -> dict[str, StreamModel]:
    """Each input at its end."""
    models = {name: StreamModel() for name in transcript.inputs}
    for step in transcript.steps:
        for name, element in step.input:
            if not isinstance(element, Open | Close):
                models[name].take(element)
    return models


def has_valid_inputs(transcript: Transcript) -> bool:
    """Is every input a valid stream? Finalize alone copes with others, and those have no history."""
    models = {name: StreamModel() for name in transcript.inputs}
    for step in transcript.steps:
        for name, element in step.input:
            if isinstance(element, Open | Close):
                continue
            if isinstance(element, Insert | Retract) and models[name].fault(element):
                return False
            if isinstance(element, ExternalCti):
                continue
            models[name].take(element)
    return True


def _cut_before(events: Sequence[Event], t: int) -> list[Event]:
    return [Event(e.payload, e.vs, min(e.ve, t)) for e in events if e.vs < t]
