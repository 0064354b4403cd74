"""Driving one operator as an engine does, with its contract checked at every step.

What comes out must be a valid stream with CTIs that advance; an operator restored from a snapshot must go
on exactly as the one the snapshot was taken from; and a snapshot must not change after it was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from recension.core.batch import EventBatch, cti, from_elements
from recension.core.events import Cti, Element, Event
from recension.core.ticks import BEGINNING
from recension.operators.base import Chunks, Operator, Output
from recension.testing.model import StreamModel


class Driver:
    """An operator, its twin restored from a snapshot if there is one, and all they have put out."""

    def __init__(self, make: Callable[[], Operator], *schemas: pa.Schema) -> None:
        self._make, self._schemas = make, schemas
        self._operators = [make()]
        self._inputs = [StreamModel() for _ in schemas]
        self._model = StreamModel()
        self._snapshots: list[tuple[Chunks, dict[str, pa.Buffer]]] = []
        self.output: list[Element] = []

    @property
    def operator(self) -> Operator:
        """The operator itself."""
        return self._operators[0]

    @property
    def cti(self) -> int:
        """The last CTI put out."""
        return self._model.cti

    def input_history(self, port: int = 0) -> list[Event]:
        """The history of what has been fed to a port."""
        return self._inputs[port].events()

    def input_cti(self, port: int = 0) -> int:
        """The last CTI fed to a port."""
        return self._inputs[port].cti

    def history(self) -> list[Event]:
        """The history of what has been put out."""
        return self._model.events()

    def feed(self, elements: Sequence[Element], port: int = 0) -> list[Element]:
        """One step: all inserts and retractions as one batch, then the last of the CTIs."""
        given = from_elements([e for e in elements if not isinstance(e, Cti)], self._schemas[port])
        ctis = [e for e in elements if isinstance(e, Cti)]
        for element in [*given.to_elements(), *ctis]:
            self._inputs[port].take(element)
        t = max((e.t for e in ctis), default=None)
        return self._check_answers([_feed(operator, port, given, t) for operator in self._operators])

    def tick(self, now: int) -> list[Element]:
        """The wall clock shows ``now``."""
        return self._check_answers(
            [_output_elements(operator, operator.on_clock(now)) for operator in self._operators]
        )

    def _check_answers(self, answers: list[list[Element]]) -> list[Element]:
        for other in answers[1:]:
            # How rows lie in memory is no part of a snapshot: those of one batch may come in another order.
            assert sorted(map(str, other)) == sorted(map(str, answers[0])), (
                "the restored operator gives something else"
            )
        for element in answers[0]:
            self._check(element)
        for taken, written in self._snapshots:
            assert written == {name: _to_bytes(table) for name, table in taken.items()}, "changed since"
        self.output += answers[0]
        return answers[0]

    def _check(self, element: Element) -> None:
        fault = self._model.fault(element)
        if isinstance(element, Cti) and element.t <= self.cti and element.t > BEGINNING:
            fault = f"does not advance the cti {self.cti}"
        assert fault is None, f"{element} {fault}, after\n" + "\n".join(map(str, self.output[-8:]))
        self._model.take(element)

    def restore_twin(self) -> None:
        """From now on a twin restored from a snapshot is fed too, and must give the same."""
        taken = self._operators[-1].snapshot()
        written = {name: _to_bytes(table) for name, table in taken.items()}
        self._snapshots = [*self._snapshots[-1:], (taken, written)]
        fresh = self._make()
        fresh.restore({name: _from_bytes(buffer) for name, buffer in written.items()})
        self._operators[1:] = [fresh]


def _feed(operator: Operator, port: int, given: EventBatch, t: int | None) -> list[Element]:
    elements = _elements(operator, operator.on_batch(port, given))
    if t is None:
        return elements
    return elements + _output_elements(operator, operator.on_cti(port, t))


def _output_elements(operator: Operator, answer: Output) -> list[Element]:
    elements = _elements(operator, answer.batch)
    return elements if answer.cti is None else elements + cti(answer.cti, operator.schema).to_elements()


def _elements(operator: Operator, batch: EventBatch) -> list[Element]:
    assert batch.schema.equals(operator.schema), f"{batch.schema} came out, {operator.schema} was declared"
    batch.payload.validate(full=True)
    return batch.to_elements()


def _to_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _from_bytes(buffer: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(buffer).read_all()
