"""The local engine as a runner of transcripts that have a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import recension
from recension.core.events import Element
from recension.runners.local import Session
from recension.testing.openclose import Close, Open
from recension.testing.runners import Outcome
from recension.testing.transcripts import OUTPUT, Step, Transcript
from recension.testing.walk import Walk


class LocalRunner:
    """Feeds a session element by element, as the papers do, or a whole step at a time."""

    def __init__(self, unit: Literal["element", "step"]) -> None:
        self.name = f"local by {unit}"
        self.is_exact = unit == "element"

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is not None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        sources = {name: recension.source(name, schema) for name, schema in transcript.inputs.items()}
        session = recension.session(transcript.build({"rc": recension, "col": recension.col, **sources}))
        shown = Walk()
        return [self._turn(session, step, shown) for step in transcript.steps]

    def _turn(self, session: Session, step: Step, shown: Walk) -> Outcome:
        for name, elements in self._units(step):
            session.push(name, elements)
        output = session.read().elements()
        for element in output:
            shown.take(element)
        return Outcome({OUTPUT: output}, {OUTPUT: shown.events()})

    def _units(self, step: Step) -> list[tuple[str, list[Element]]]:
        units: list[tuple[str, list[Element]]] = []
        for name, element in step.input:
            if isinstance(element, Open | Close):
                raise TypeError(f"{element}: open and close are for transcripts without a query")
            if not self.is_exact and units and units[-1][0] == name:
                units[-1][1].append(element)
            else:
                units.append((name, [element]))
        return units
