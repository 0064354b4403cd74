"""Runners for transcripts without a query: is each input valid, and what is its history?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core import openclose
from recension.core.batch import EventBatch, from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert
from recension.core.reconstitution import HistoryBuilder
from recension.core.ticks import BEGINNING
from recension.core.validity import Checker
from recension.testing.openclose import Close, Open, OpenClose, Written
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
        for element in map(self._feed.translate, written):
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
        self._feed, self._checker, self._history = openclose.OpenClose(), Checker(), HistoryBuilder(schema)

    def push(self, written: Iterable[Written]) -> list[Element]:
        items = list(written)
        accepted: list[Element] = []
        for unit in [items] if self._whole_steps else [[item] for item in items]:
            batch = self._checker.check(self._feed.translate(written_batch(unit, self._schema)))
            self._history.add(batch)
            accepted += batch.to_elements()
        return accepted

    def events(self) -> list[Event]:
        return self._history.build().to_events()


def written_batch(written: Sequence[Written], schema: pa.Schema) -> EventBatch:
    """A batch as a file reader makes it: open and close have kinds of their own."""
    kinds = {Open: openclose.OPEN, Close: openclose.CLOSE}
    stand_ins = [_stand_in(item) for item in written]
    batch = from_elements(stand_ins, schema)
    known = zip(written, batch.kind.tolist(), strict=True)
    kind = np.array([kinds.get(type(item), code) for item, code in known], np.uint8)
    return replace(batch, kind=kind)


def _stand_in(written: Written) -> Element:
    match written:
        case Open(payload, vs):
            return Insert(payload, vs)
        case Close(payload, ve):
            return Insert(payload, BEGINNING, ve)
        case _:
            return written


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
