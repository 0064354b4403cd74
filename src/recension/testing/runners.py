"""Running transcripts: what a runner is, and whether what it did is what the transcript says.

Some runners see whole inputs and close every one of them: of these only the final history can be compared
(`check_final`). Where a transcript closes its inputs too, the history it states is the answer. Where it stops
before, its answer is final up to the last CTI it puts out, and only that part is compared.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from recension.core.events import Cti, Element, Event, ExternalCti, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.difference import compare_events
from recension.testing.model import Close, Open, StreamModel
from recension.testing.notation import render
from recension.testing.transcripts import OUTPUT, Step, Transcript


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a runner gave after one step, by output: the elements of this step, the history so far."""

    output: Mapping[str, Sequence[Element]]
    history: Mapping[str, Sequence[Event]]
    refused: str | None = None


class Runner(Protocol):
    """Something that can play transcripts: reconstitution, the local engine, Spark."""

    @property
    def name(self) -> str:
        """What ``broken_on`` calls it."""

    @property
    def is_exact(self) -> bool:
        """Does it take elements one at a time, so that its output must be as the papers print it?

        Other runners may put out the net effect of a step: only what it adds up to is compared.
        """

    def plays(self, transcript: Transcript) -> bool:
        """Is this the kind of transcript it runs?"""

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        """One outcome per step; it may end early with a refusal."""


@dataclass(frozen=True, slots=True)
class Case:
    """A transcript on a runner."""

    transcript: Transcript
    runner: Runner

    @property
    def id(self) -> str:
        """The name a test report shows."""
        return f"{self.transcript.name} [{self.runner.name}]"

    def check(self) -> None:
        """Fail unless the runner does what the transcript says; fail if it does where it is marked broken."""
        reason = self.transcript.broken_on.get(self.runner.name)
        if reason is None:
            _compare(self.transcript, self.runner)
            return
        try:
            _compare(self.transcript, self.runner)
        except Exception:
            return
        raise AssertionError(f"{self.id} works, but is marked broken ({reason}): remove the mark")


def cases(transcripts: Iterable[Transcript], runners: Sequence[Runner]) -> list[Case]:
    """Every transcript on every runner that plays it; none may be left unplayed."""
    known, found = {runner.name for runner in runners}, []
    for transcript in transcripts:
        playing = [runner for runner in runners if runner.plays(transcript)]
        if not playing:
            raise ValueError(f"no runner plays {transcript.name!r}")
        if unknown := transcript.broken_on.keys() - known:
            raise ValueError(f"{transcript.name!r} is broken on {unknown}, of which there is no runner")
        found += [Case(transcript, runner) for runner in playing]
    return found


def _compare(transcript: Transcript, runner: Runner) -> None:
    check_outcomes(transcript, list(runner.run(transcript)), runner.name, is_exact=runner.is_exact)


def check_outcomes(transcript: Transcript, outcomes: Sequence[Outcome], name: str, *, is_exact: bool) -> None:
    """Fail unless what a runner of that name gave is what the transcript says."""
    comparison = _Comparison(is_exact)
    for step, outcome in zip(transcript.steps, outcomes, strict=False):
        try:
            comparison.check_step(step, outcome)
        except AssertionError as why:
            where = f"{transcript.file}:{step.line}: {transcript.name} [{name}]"
            raise AssertionError(f"{where}\n{why}") from None
    if len(outcomes) != len(transcript.steps):
        raise AssertionError(f"{name} ended after {len(outcomes)} of {len(transcript.steps)} steps")


class _Comparison:
    """What has been put out and expected so far."""

    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._output: defaultdict[str, StreamModel] = defaultdict(StreamModel)
        self._expected: defaultdict[str, StreamModel] = defaultdict(StreamModel)

    def check_step(self, step: Step, outcome: Outcome) -> None:
        if outcome.refused is not None or step.refused is not None:
            _check_refusal(step.refused, outcome.refused)
            return
        for name, elements in outcome.output.items():
            self._take_output(name, elements)
            _check_history(outcome.history[name], self._output[name].events(), "history against output")
        for name, elements in (step.expect or {}).items():
            self._check_output(name, outcome.output[name], elements)
        for name, events in (step.history or {}).items():
            _check_history(outcome.history[name], events, f"history of {name}")

    def _take_output(self, name: str, elements: Sequence[Element]) -> None:
        """Whatever comes out must be a valid stream."""
        model = self._output[name]
        for element in elements:
            if fault := model.fault(element):
                raise AssertionError(f"{name}: {render(element)} {fault}")
            model.take(element)

    def _check_output(self, name: str, actual: Sequence[Element], expected: Sequence[Element]) -> None:
        for element in expected:
            self._expected[name].take(element)
        if self._is_exact:
            _check_elements(name, actual, expected)
            return
        _check_history(self._output[name].events(), self._expected[name].events(), f"net output of {name}")
        if self._output[name].cti != self._expected[name].cti:
            raise AssertionError(f"{name} reached {render(Cti(self._output[name].cti))}")


def _check_refusal(expected: str | None, actual: str | None) -> None:
    if expected is None:
        raise AssertionError(f"refused: {actual}")
    if actual is None:
        raise AssertionError(f"was accepted, but should be refused: {expected}")
    if expected not in actual:
        raise AssertionError(f"refused for another reason: {actual}\n  expected: {expected}")


def _check_elements(name: str, actual: Sequence[Element], expected: Sequence[Element]) -> None:
    got, wanted = [render(e) for e in actual], [render(e) for e in expected]
    if got != wanted:
        lines = "\n".join(f"    {line}" for line in difflib.ndiff(wanted, got) if not line.startswith("?"))
        raise AssertionError(f"{name} differs (- expected, + actual)\n{lines}")


def _check_history(actual: Sequence[Event], expected: Sequence[Event], what: str) -> None:
    if found := compare_events(actual, expected):
        raise AssertionError(f"{what}: {found}")


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
