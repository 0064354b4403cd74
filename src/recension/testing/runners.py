"""Running transcripts: what a runner is, and whether what it did is what the transcript says."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from recension.core.events import Cti, Element, Event
from recension.testing.difference import compare_events
from recension.testing.model import StreamModel
from recension.testing.notation import render
from recension.testing.transcripts import Step, Transcript


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
