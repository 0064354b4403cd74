"""A merge that goes on with a stronger case when an element is not what the present case allows.

Assumes     nothing beyond the strongest case.
Guarantees  the output stays valid and compatible: the stronger case takes over what the weaker one has shown
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
from recension.operators.base import Chunks, Output
from recension.operators.lmerge.inputs import Inputs
from recension.operators.lmerge.merge import OUT, CaseMismatchError, Holdings, LogicalMerge

Make: TypeAlias = Callable[[int], LogicalMerge]


class Fallback(LogicalMerge):
    """A cheap case, and the strong one that takes over when it must."""

    makes_ctis = True

    def __init__(self, schema: pa.Schema, ports: int, cheap: Make, strong: Make) -> None:
        super().__init__(schema, ports)
        self._cheap, self._strong = cheap, strong
        self.has_fallen = False
        self._use(cheap(ports))

    def _use(self, merge: LogicalMerge) -> None:
        self._merge = merge
        self.inputs: Inputs = merge.inputs

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        try:
            shown = self._merge.on_batch(port, batch)
        except CaseMismatchError:
            self._fall()
            shown = self._merge.on_batch(port, batch)
        self._note()
        return shown

    def _fall(self) -> None:
        """The stronger case takes over: first what was shown, then what each input has sent."""
        stronger = self._strong(len(self.inputs))
        stronger.inputs, stronger.out_cti = self.inputs, self._merge.out_cti
        stronger.anomalies = self._merge.anomalies
        for port in set(range(len(self.inputs))) - set(self.inputs.live()):
            stronger.on_detach(port)
        for holding in sorted(self._merge.holdings(), key=lambda holding: holding.port != OUT):
            stronger.seed(holding)
        self.has_fallen = True
        self._use(stronger)

    def on_cti(self, port: int, t: int) -> Output:
        return self._noted(self._merge.on_cti(port, t))

    def advance(self) -> Output:
        return self._noted(self._merge.advance())

    def _noted(self, answer: Output) -> Output:
        self._note()
        return answer

    def _note(self) -> None:
        """What others ask of a merge is what the present one says."""
        self.out_cti, self.anomalies = self._merge.out_cti, self._merge.anomalies

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        return self._merge.on_feedback(t, shrinks)

    def on_attach(self, port: int) -> None:
        self._merge.on_attach(port)

    def on_detach(self, port: int) -> Output:
        return self._merge.on_detach(port)

    def holdings(self) -> Holdings:
        return self._merge.holdings()

    def state_rows(self) -> int:
        return self._merge.state_rows()

    def state_bytes(self) -> int:
        return self._merge.state_bytes()

    def snapshot_state(self) -> Chunks:
        own = {f"merge/{name}": table for name, table in self._merge.snapshot().items()}
        return {"fallen": pa.table({"fallen": [self.has_fallen]}), **own}

    def restore_state(self, chunks: Chunks) -> None:
        self.has_fallen = chunks["fallen"]["fallen"][0].as_py()
        self._use((self._strong if self.has_fallen else self._cheap)(0))
        own = {n.removeprefix("merge/"): table for n, table in chunks.items() if n.startswith("merge/")}
        self._merge.restore(own)
        self._note()
