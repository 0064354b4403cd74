"""The merge of a case, by the name of the case; and a merge that changes to a general case when it must.

Assumes     nothing beyond the strongest case.
Guarantees  the output stays valid and compatible: the general case takes over what the weaker one has output
            and what every input has sent, as far as it may still change.
State       that of the present case; in the cases of streams in order also the events that may still change,
            of every input, which those cases themselves do not need.
Cost        that of the present case; once, a pass over the state.
Source      Physically Independent Stream Merging, §IV-G.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.errors import RecensionError
from recension.operators.base import Chunks, Output
from recension.operators.lmerge.merge import OUT, CaseMismatchError, Holdings, Inputs, LogicalMerge
from recension.operators.lmerge.policies import Policy
from recension.operators.lmerge.r0 import R0
from recension.operators.lmerge.r1 import R1
from recension.operators.lmerge.r2 import R2
from recension.operators.lmerge.r3 import R3
from recension.operators.lmerge.r3_minus import R3Minus
from recension.operators.lmerge.r4 import R4
from recension.operators.state.chunks import add_prefix, take_prefix

_IN_ORDER: dict[str, type[R0] | type[R1] | type[R2]] = {"R0": R0, "R1": R1, "R2": R2}
Make: TypeAlias = Callable[[int], LogicalMerge]


def make_merge(
    case: str,
    schema: pa.Schema,
    ports: int,
    policy: Policy | None = None,
    lag: int = 0,
    *,
    can_fall: bool = False,
) -> LogicalMerge:
    """One operator for a case; with ``can_fall`` it goes on as R4, the most general case, where it must."""

    def make(ports: int) -> LogicalMerge:
        match case:
            case "R0" | "R1" | "R2":
                return _IN_ORDER[case](schema, ports, remembers=can_fall)
            case "R3":
                return R3(schema, ports, policy, lag, repeats=not can_fall)
            case "R3-":
                return R3Minus(schema, ports)
        return R4(schema, ports)

    if not can_fall or case == "R4":
        return make(ports)
    if case == "R3-":
        raise RecensionError("merge: R3- is a baseline and does not fall back; say case='R3'")
    return Fallback(schema, ports, make, lambda ports: R4(schema, ports))


class Fallback(LogicalMerge):
    """A cheap case, and the general one (R4) that takes over when it must."""

    makes_ctis = True

    def __init__(self, schema: pa.Schema, ports: int, cheap: Make, general: Make) -> None:
        super().__init__(schema, ports)
        self._cheap, self._general = cheap, general
        self.has_fallen = False
        self._use(cheap(ports))

    def _use(self, merge: LogicalMerge) -> None:
        self._merge = merge
        self.inputs: Inputs = merge.inputs
        merge.contradictions, merge.sends_feedback = self.contradictions, self.sends_feedback

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        try:
            shown = self._merge.on_batch(port, batch)
        except CaseMismatchError:
            self._switch_to_r4()
            shown = self._merge.on_batch(port, batch)
        self._note()
        return shown

    def _switch_to_r4(self) -> None:
        """R4 takes over: first what was shown, then what each input has sent."""
        general = self._general(len(self.inputs))
        general.inputs, general.out_cti = self.inputs, self._merge.out_cti
        for port in set(range(len(self.inputs))) - set(self.inputs.live_ports()):
            general.on_detach(port)
        for holding in sorted(self._merge.open_events_by_port(), key=lambda holding: holding.port != OUT):
            general.seed(holding)
        self.has_fallen = True
        self._use(general)

    def on_cti(self, port: int, t: int) -> Output:
        self._merge.sends_feedback = self.sends_feedback
        return self._note_answer(self._merge.on_cti(port, t))

    def advance(self) -> Output:
        return self._note_answer(self._merge.advance())

    def _note_answer(self, answer: Output) -> Output:
        self._note()
        return answer

    def _note(self) -> None:
        """Copy the public attributes of the current merge."""
        self.out_cti = self._merge.out_cti

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        return self._merge.on_feedback(t, shrinks)

    def on_attach(self, port: int) -> None:
        self._merge.on_attach(port)

    def on_detach(self, port: int) -> Output:
        return self._merge.on_detach(port)

    def open_events_by_port(self) -> Holdings:
        return self._merge.open_events_by_port()

    def holds_endless(self, port: int) -> bool:
        return self._merge.holds_endless(port)

    def state_rows(self) -> int:
        return self._merge.state_rows()

    def state_bytes(self) -> int:
        return self._merge.state_bytes()

    def snapshot_state(self) -> Chunks:
        fallen = pa.table({"fallen": [self.has_fallen]})
        return {"fallen": fallen, **add_prefix("merge", self._merge.parts())}

    def restore_state(self, chunks: Chunks) -> None:
        before, self.has_fallen = self.has_fallen, chunks["fallen"]["fallen"][0].as_py()
        if before != self.has_fallen:
            self._use((self._general if self.has_fallen else self._cheap)(0))
        self._merge.restore(take_prefix("merge", chunks))
        self._note()
