"""The runner in this process: the local engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import recension
from recension.core.events import Element
from recension.runners.local import Session
from recension.testing.model import Close, Open, StreamModel
from recension.testing.runners import Outcome
from recension.testing.transcripts import OUTPUT, Step, Transcript


class LocalRunner:
    """Feeds a session element by element, as the papers do, or a whole step at a time.

    With ``restores``, every step is taken by a new session, restored from a snapshot of the one before.
    """

    def __init__(self, unit: Literal["element", "step"], *, restores: bool = False) -> None:
        self.name = f"local by {unit}, restored" if restores else f"local by {unit}"
        self.is_exact, self._restores = unit == "element", restores

    def plays(self, transcript: Transcript) -> bool:
        return transcript.query is not None

    def run(self, transcript: Transcript) -> Sequence[Outcome]:
        sources = {name: recension.source(name, schema) for name, schema in transcript.inputs.items()}
        query = transcript.build({"rc": recension, "col": recension.col, **sources})
        session, output, outcomes = recension.session(query), StreamModel(), list[Outcome]()
        for step in transcript.steps:
            outcomes.append(self._run_step(session, step, output))
            if self._restores:
                state, session = session.snapshot(), recension.session(query)
                session.restore(state)
        return outcomes

    def _run_step(self, session: Session, step: Step, output: StreamModel) -> Outcome:
        for name, elements, partitions in self._units(step):
            session.push(name, elements, partitions or None)
        elements = session.read().elements()
        for element in elements:
            output.take(element)
        return Outcome({OUTPUT: elements}, {OUTPUT: output.events()})

    def _units(self, step: Step) -> list[tuple[str, list[Element], list[str]]]:
        units: list[tuple[str, list[Element], list[str]]] = []
        for tag, element in step.input:
            name, _, partition = tag.partition("@")
            if isinstance(element, Open | Close):
                raise TypeError(f"{element}: open and close are for transcripts without a query")
            if not self.is_exact and units and units[-1][0] == name:
                units[-1][1].append(element)
                units[-1][2].extend([partition] if partition else [])
            else:
                units.append((name, [element], [partition] if partition else []))
        return units
