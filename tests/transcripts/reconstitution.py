"""Runners for transcripts without a query: what is checked and reconstituted is the inputs by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, from_elements
from recension.core.errors import StreamError
from recension.core.events import Cti, Element, Event, Insert
from recension.core.formats import decode
from recension.core.reconstitution import HistoryBuilder
from recension.core.ticks import BEGINNING
from recension.core.validity import Checker
from recension.gate import open_close
from recension.testing.model import Close, Open, OpenClose, StreamModel, Written
from recension.testing.runners import Outcome
from recension.testing.transcripts import Step, Transcript


class PlainReconstitution:
    """The reference: the model of every input, in plain Python."""

    name, is_exact = "plain", True

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        return _run_steps(transcript, {name: _ModelInput() for name in transcript.inputs})


class CoreReconstitution:
    """The library's own checker and history, fed one element or one step at a time."""

    is_exact = True

    def __init__(self, unit: Literal["element", "step"]) -> None:
        self.name = f"core by {unit}"
        self._whole_steps = unit == "step"

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        inputs = {name: _CoreInput(schema, self._whole_steps) for name, schema in transcript.inputs.items()}
        return _run_steps(transcript, inputs)


class _ModelInput:
    """One input, as the model has it."""

    def __init__(self) -> None:
        self._model, self._openclose = StreamModel(), OpenClose()

    def push(self, written: Iterable[Written]) -> list[Element]:
        accepted: list[Element] = []
        for element in map(self._openclose.translate, written):
            if fault := self._model.fault(element):
                raise StreamError(f"{fault}: {element}")
            if not isinstance(element, Cti) or element.t > self._model.cti:
                accepted.append(element)
            self._model.take(element)
        return accepted

    def events(self) -> list[Event]:
        return self._model.events()


class _CoreInput:
    """One input, checked and reconstituted by the core."""

    def __init__(self, schema: pa.Schema, whole_steps: bool) -> None:
        self._schema, self._whole_steps = schema, whole_steps
        self._openclose, self._checker = open_close.OpenClose(), Checker()
        self._history = HistoryBuilder(schema)

    def push(self, written: Iterable[Written]) -> list[Element]:
        items = list(written)
        accepted: list[Element] = []
        for unit in [items] if self._whole_steps else [[item] for item in items]:
            batch = self._checker.check(self._openclose.translate(written_batch(unit, self._schema)))
            self._history.add(batch)
            accepted += batch.to_elements()
        return accepted

    def events(self) -> list[Event]:
        return self._history.build().to_events()


def written_batch(written: Sequence[Written], schema: pa.Schema) -> EventBatch:
    """A batch as a file reader makes it: open and close have kinds of their own."""
    kinds = {Open: decode.OPEN, Close: decode.CLOSE}
    elements = [_as_element(item) for item in written]
    batch = from_elements(elements, schema)
    known = zip(written, batch.kind.tolist(), strict=True)
    kind = np.array([kinds.get(type(item), code) for item, code in known], np.uint8)
    return replace(batch, kind=kind)


def _as_element(written: Written) -> Element:
    match written:
        case Open(payload, vs):
            return Insert(payload, vs)
        case Close(payload, ve):
            return Insert(payload, BEGINNING, ve)
        case _:
            return written


def _run_steps(
    transcript: Transcript, inputs: dict[str, _ModelInput] | dict[str, _CoreInput]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for step in transcript.steps:
        try:
            outcomes.append(_run_step(step, inputs))
        except StreamError as why:
            return [*outcomes, Outcome({}, {}, refused=str(why))]
    return outcomes


def _run_step(step: Step, inputs: dict[str, _ModelInput] | dict[str, _CoreInput]) -> Outcome:
    output = {
        name: one.push(element for tag, element in step.input if tag == name) for name, one in inputs.items()
    }
    return Outcome(output, {name: one.events() for name, one in inputs.items()})
