"""A merge fed from several inputs, with its twin restored from a snapshot, judged after every batch."""

from __future__ import annotations

from collections.abc import Callable

from recension.core.batch import EventBatch, cti, from_elements
from recension.core.events import Cti, Element
from recension.core.ticks import BEGINNING
from recension.operators.base import Output
from recension.operators.lmerge.merge import LogicalMerge
from recension.testing.compatibility import Compatibility
from recension.testing.strategies import SCHEMA


class Play:
    """The operator, its twin if there is one, and the judge."""

    def __init__(self, make: Callable[[int], LogicalMerge], ports: int, *, in_order: bool = False) -> None:
        self._make = make
        self.operators = [make(ports)]
        self.judge = Compatibility(ports, in_order=in_order)
        self.output: list[Element] = []
        self._left: set[int] = set()

    @property
    def merge(self) -> LogicalMerge:
        return self.operators[0]

    def feed(self, port: int, elements: list[Element]) -> list[Element]:
        if port not in self._left:
            self.judge.take_input(port, elements)
        batch = from_elements([e for e in elements if not isinstance(e, Cti)], SCHEMA)
        t = max((e.t for e in elements if isinstance(e, Cti)), default=None)

        def answer(merge: LogicalMerge) -> list[Element]:
            shown = merge.on_batch(port, batch).to_elements()
            return shown if t is None else shown + _elements(merge.on_cti(port, t), merge)

        return self._all(answer)

    def attach(self, since: int) -> int:
        port = self.judge.attach(since)
        self._all(lambda merge: _elements(merge.attach(since), merge))
        return port

    def detach(self, port: int) -> None:
        self._left.add(port)
        self._all(lambda merge: _elements(merge.detach(port), merge))

    def restore_twin(self) -> None:
        """From now on a twin restored from a snapshot must say the same."""
        twin = self._make(0)
        twin.restore(self.merge.snapshot())
        self.operators[1:] = [twin]

    def _all(self, answer: Callable[[LogicalMerge], list[Element]]) -> list[Element]:
        answers = [_ctis_last(answer(merge)) for merge in self.operators]
        for other in answers[1:]:
            assert list(map(str, other)) == list(map(str, answers[0])), "the restored merge goes astray"
        self.judge.take_output(answers[0])
        self.output += answers[0]
        return answers[0]


def _elements(answer: Output, merge: LogicalMerge) -> list[Element]:
    batches: list[EventBatch] = [answer.batch]
    batches += [] if answer.cti is None else [cti(answer.cti, merge.schema)]
    return [element for batch in batches for element in batch.to_elements()]


def _ctis_last(elements: list[Element]) -> list[Element]:
    """As an engine does: the CTIs of a step are one, after its changes."""
    t = max((e.t for e in elements if isinstance(e, Cti)), default=BEGINNING)
    changes: list[Element] = [e for e in elements if not isinstance(e, Cti)]
    return changes if t == BEGINNING else [*changes, Cti(t)]
