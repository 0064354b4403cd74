"""Runners for transcripts without a query: is each input valid, and what is its history?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import pyarrow as pa

from recension.core.batch import concat, empty, from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event
from recension.core.reconstitution import HistoryBuilder
from recension.core.validity import Checker
from recension.testing.openclose import OpenClose, Written
from recension.testing.runners import Outcome
from recension.testing.transcripts import Step, Transcript
from recension.testing.walk import Walk


class PlainReconstitution:
    """The reference: every input walked in plain Python."""

    name, is_exact = "plain", True

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        return _play(transcript, {name: _Walked() for name in transcript.inputs})


class CoreReconstitution:
    """The library's own checker and history, fed one element or one step at a time."""

    is_exact = True

    def __init__(self, unit: Literal["element", "step"]) -> None:
        self.name = f"core by {unit}"
        self._whole_steps = unit == "step"

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        sides = {name: _Checked(schema, self._whole_steps) for name, schema in transcript.inputs.items()}
        return _play(transcript, sides)


class _Walked:
    """One input, walked."""

    def __init__(self) -> None:
        self._walk, self._feed = Walk(), OpenClose()

    def push(self, written: Iterable[Written]) -> list[Element]:
        accepted: list[Element] = []
        for element in _meant(self._feed, written):
            if fault := self._walk.fault(element):
                raise StreamError(f"{fault}: {element}")
            if not isinstance(element, Cti) or element.t > self._walk.cti:
                accepted.append(element)
            self._walk.take(element)
        return accepted

    def events(self) -> list[Event]:
        return self._walk.events()


class _Checked:
    """One input, checked and reconstituted by the core."""

    def __init__(self, schema: pa.Schema, whole_steps: bool) -> None:
        self._schema, self._whole_steps = schema, whole_steps
        self._checker, self._history, self._feed = Checker(), HistoryBuilder(schema), OpenClose()

    def push(self, written: Iterable[Written]) -> list[Element]:
        elements = list(_meant(self._feed, written))
        units = [elements] if self._whole_steps else [[element] for element in elements]
        batches = [self._checker.check(from_elements(unit, self._schema)) for unit in units]
        for batch in batches:
            self._history.add(batch)
        return concat([*batches, empty(self._schema)]).to_elements()

    def events(self) -> list[Event]:
        return self._history.build().to_events()


def _meant(feed: OpenClose, written: Iterable[Written]) -> Iterator[Element]:
    return (element for item in written if (element := feed.translate(item)) is not None)


def _play(transcript: Transcript, sides: dict[str, _Walked] | dict[str, _Checked]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for step in transcript.steps:
        try:
            outcomes.append(_turn(step, sides))
        except StreamError as why:
            return [*outcomes, Outcome({}, {}, refused=str(why))]
    return outcomes


def _turn(step: Step, sides: dict[str, _Walked] | dict[str, _Checked]) -> Outcome:
    output = {
        name: side.push(element for tag, element in step.input if tag == name) for name, side in sides.items()
    }
    return Outcome(output, {name: side.events() for name, side in sides.items()})
