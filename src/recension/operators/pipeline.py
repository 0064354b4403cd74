"""A few operators that read each other and end in one: what runs for each group by itself.

Its ports are numbered from 0, as those of an operator; a step feeds one port, or tells the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from recension.core.batch import EventBatch
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Orphans, worst
from recension.operators.flow import Flow, check_end, drive


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator and what it reads: ports by their numbers, then stages, numbered on from the last port."""

    operator: Operator
    inputs: tuple[int, ...]


class Pipeline:
    """Stages with inputs before their readers; the last one's output is the pipeline's."""

    def __init__(self, ports: int, stages: Sequence[Stage]) -> None:
        self._ports, self._stages = ports, stages
        self.operators = [stage.operator for stage in stages]
        self._last = ports + len(stages) - 1

    @property
    def out_cti(self) -> int:
        """The last CTI that came out."""
        return self.operators[-1].out_cti

    @property
    def is_clocked(self) -> bool:
        """Does anything count by the wall clock?"""
        return any(operator.is_clocked for operator in self.operators)

    def feed(self, port: int, flow: Flow) -> Flow:
        """What comes out when this reaches a port."""
        return self._run({port: flow}, None)

    def tick(self, now: int) -> Flow:
        """What comes out when the wall clock shows ``now``."""
        return self._run({}, now)

    def _run(self, flows: dict[int, Flow], now: int | None) -> Flow:
        for number, stage in enumerate(self._stages, self._ports):
            fed = [(port, flows[i]) for port, i in enumerate(stage.inputs) if i in flows]
            at = now if stage.operator.is_clocked else None
            if fed or at is not None:
                flow = drive(stage.operator, fed, at)
                if flow:
                    flows[number] = flow
        return flows.get(self._last, Flow())

    def check_end(self) -> None:
        """Raise what a stage would raise if all ports ended, where nothing but the end can reach it."""
        stages = enumerate(self._stages, self._ports)
        check_end(((number, one.operator, one.inputs) for number, one in stages), range(self._ports))

    def settled(self, port: int) -> int:
        """A time such that nothing comes of changes, on this port, to events that ended before it."""
        times = {self._last: BEGINNING}
        for number, stage in reversed(list(enumerate(self._stages, self._ports))):
            for own_port, i in enumerate(stage.inputs):
                since = stage.operator.settled(own_port, times.get(number, BEGINNING))
                times[i] = min(times.get(i, FOREVER), since)
        return times.get(port, BEGINNING)

    def orphans(self, port: int) -> Orphans:
        """What becomes of retractions of events that are not there; ``pass``: they get to what comes out."""
        readers = [
            (number, own_port)
            for number, stage in enumerate(self._stages, self._ports)
            for own_port, i in enumerate(stage.inputs)
            if i == port
        ]
        becomes = [self._orphans_above(number, own_port) for number, own_port in readers]
        return worst([*becomes, "pass"] if port == self._last else becomes)

    def _orphans_above(self, number: int, port: int) -> Orphans:
        becomes = self.operators[number - self._ports].orphans(port)
        return self.orphans(number) if becomes == "pass" else becomes

    def goes_on_like(self, fresh: Pipeline) -> bool:
        """Will this do from now on what one does that was told the same CTIs and times, and nothing else?"""
        return all(_alike(*pair) for pair in zip(self.operators, fresh.operators, strict=True))

    def take_counts(self) -> Counter[str]:
        """The elements left out or moved since the last time of asking, by reason."""
        taken: Counter[str] = Counter()
        for operator in self.operators:
            if counts := operator.counts():
                taken += counts
                counts.clear()
        return taken

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """The elements left out and kept aside since the last time of asking."""
        return [one for operator in self.operators for one in operator.take_dropped()]

    def state_rows(self) -> int:
        """How many rows of state are held."""
        return sum(operator.state_rows() for operator in self.operators)

    def state_bytes(self) -> int:
        """How much memory the state takes."""
        return sum(operator.state_bytes() for operator in self.operators)

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of all stages."""
        return {
            f"{place}/{name}": table
            for place, operator in enumerate(self.operators)
            for name, table in operator.snapshot().items()
        }

    def restore(self, chunks: Chunks) -> None:
        """Become the pipeline whose snapshot this is."""
        own: list[dict[str, pa.Table]] = [{} for _ in self.operators]
        for name, table in chunks.items():
            place, _, rest = name.partition("/")
            own[int(place)][rest] = table
        for operator, tables in zip(self.operators, own, strict=True):
            operator.restore(tables)


def _alike(operator: Operator, fresh: Operator) -> bool:
    if operator.out_cti != fresh.out_cti or operator.state_rows() or fresh.state_rows():
        return False
    trace = operator.trace()
    return trace is not None and trace == fresh.trace()


def below(prefix: str, chunks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The chunks whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): table for name, table in chunks.items() if name.startswith(prefix)}
