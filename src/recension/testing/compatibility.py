"""Is the output of a merge right so far: does it fit whatever its inputs may still bring?

One exact test replaces the papers' conditions, for any case, policy and lag (LMerge ruling 11). The *image*
of a history at ``L`` is what a stable there has settled: every event that starts before ``L``, with its end
if that is final, else with the mark that it is not. The output must have the image of its inputs.

>>> from recension.core.events import Cti, Insert
>>> merge = Compatibility(inputs=2)
>>> merge.take_input(0, [Insert({"p": "A"}, 2, 16), Cti(14)])
>>> merge.take_output([Insert({"p": "A"}, 2, 12), Cti(13)])
>>> merge.check()
Traceback (most recent call last):
    ...
AssertionError: at 13 the output has settled [2, 12) (('p', 'A'),), and input 0 has not
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import BEGINNING, FOREVER
from recension.testing.model import StreamModel, payload_key

SettledEvent: TypeAlias = tuple[int, int | None, Hashable]


def image(events: Iterable[Event], t: int, since: int = BEGINNING) -> Counter[SettledEvent]:
    """What a stable at ``t`` has settled: (start, end or None, payload); not what ended before ``since``."""
    found: Counter[SettledEvent] = Counter()
    for event in events:
        is_final = event.ve < t or t == FOREVER
        if event.vs < t and not (is_final and event.ve < since):
            found[event.vs, event.ve if is_final else None, payload_key(event.payload)] += 1
    return found


@dataclass(slots=True)
class Counts:
    """How many elements of each kind."""

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0

    def add(self, element: Element) -> None:
        """Count one more."""
        self.inserts += isinstance(element, Insert)
        self.adjusts += isinstance(element, Retract)
        self.stables += isinstance(element, Cti)


@dataclass(slots=True)
class _InputSoFar:
    """One input: its elements so far, and from when on it is complete."""

    since: int = BEGINNING
    latest: int = BEGINNING
    model: StreamModel = field(default_factory=lambda: StreamModel(orphans=False))


class Compatibility:
    """Follows the inputs and the output of one merge.

    ``in_order``: inputs are insert-only and ordered, so that an insert says what a stable at its start
    would (ruling 5).
    """

    def __init__(self, inputs: int, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._inputs = [_InputSoFar() for _ in range(inputs)]
        self._output = StreamModel()
        self.consumed, self.produced = Counts(), Counts()

    def attach(self, since: int) -> int:
        """One more input, complete for what ends at ``since`` or later; its number."""
        self._inputs.append(_InputSoFar(since))
        return len(self._inputs) - 1

    def take_input(self, port: int, elements: Sequence[Element]) -> None:
        """An input has sent these. What one sends after it was detached is not for the merge to know."""
        for element in elements:
            self._inputs[port].model.take(element)
            if self._in_order and isinstance(element, Insert):
                self._inputs[port].latest = element.vs
            self.consumed.add(element)

    def take_output(self, elements: Sequence[Element]) -> None:
        """The merge has put out these: they must go on from a valid stream."""
        for element in elements:
            fault = self._output.fault(element)
            assert fault is None, f"{element} {fault}"
            self._output.take(element)
            self.produced.add(element)

    @property
    def stable(self) -> int:
        """The last stable of the output."""
        return self._output.cti

    def history(self) -> list[Event]:
        """The history of the output."""
        return self._output.events()

    def check(self) -> None:
        """Fail unless the output is compatible with every input that has come as far."""
        t = self.stable
        known = [
            (number, one)
            for number, one in enumerate(self._inputs)
            if max(one.model.cti, one.latest) >= t and one.since <= t
        ]
        assert t == BEGINNING or known, f"the output's stable {t} is ahead of all inputs"
        for number, one in known:
            ours, theirs = (image(model.events(), t, one.since) for model in (self._output, one.model))
            for settled in ours - theirs:
                raise AssertionError(
                    f"at {t} the output has settled {_describe(settled)}, and input {number} has not"
                )
            for settled in theirs - ours:
                raise AssertionError(
                    f"at {t} input {number} has settled {_describe(settled)}, and the output has not"
                )

    def check_key(self) -> None:
        """Fail if the output has two events with one start and payload (ruling 12)."""
        keys = Counter((event.vs, payload_key(event.payload)) for event in self.history())
        assert all(count == 1 for count in keys.values()), "two events of one key"

    def check_bound(self, *, fails: bool) -> None:
        """Fail if the output has more elements than its inputs (ruling 38; not so for eager and lead)."""
        taken, given = self.consumed, self.produced
        assert given.inserts <= taken.inserts, f"{given.inserts} inserts out of {taken.inserts}"
        assert given.adjusts <= taken.inserts + taken.adjusts, f"{given.adjusts} adjusts"
        assert given.stables <= taken.stables, f"{given.stables} stables out of {taken.stables}"
        if not fails:
            assert given.inserts + given.adjusts <= taken.inserts + taken.adjusts, (
                "more changes than the inputs had"
            )


def _describe(settled: SettledEvent) -> str:
    vs, ve, payload = settled
    return f"[{vs}, {'not yet' if ve is None else ve}) {payload}"
