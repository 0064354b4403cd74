"""Driving operators: one step of one operator, and pipelines of a few operators that end in one.

In a step an operator gets all its batches, then all its CTIs, and gives one batch and at most one CTI. A
pipeline runs for each group by itself. Its ports are numbered from 0, like those of an operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, concat, null_payload
from recension.core.change_log import tables_of
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.base import Chunks, Operator, Orphans, Output, worst_outcome


@dataclass(slots=True)
class Flow:
    """What comes out of an operator or a source in one step."""

    batches: list[EventBatch] = field(default_factory=list)
    cti: int | None = None
    has_external: bool = False

    def __bool__(self) -> bool:
        return bool(self.batches) or self.cti is not None

    def add(self, answer: Output) -> None:
        """What an operator emits in answer to a CTI or to the clock."""
        self.batches.append(answer.batch)
        self.cti = self.cti if answer.cti is None else answer.cti


def drive(operator: Operator, fed: Sequence[tuple[int, Flow]], now: int | None = None) -> Flow:
    """Give an operator the time, if it needs it, then all batches of a step, then all CTIs."""
    out = Flow()
    if now is not None:
        out.add(operator.on_clock(now))
    for port, flow in fed:
        for batch in flow.batches:
            is_parted = flow.has_external and operator.external_ctis != "take"
            taken, *passing = _part_external(operator, batch) if is_parted else (batch,)
            out.batches += [operator.on_batch(port, taken), *passing]
    for port, flow in fed:
        if flow.cti is not None:
            out.add(operator.on_cti(port, flow.cti))
    # One batch a step: readers must not see what holds only until the other half has come.
    given = [batch for batch in out.batches if len(batch)]
    out.batches = [concat(given)] if given else []
    if given and operator.makes_ctis:
        out = _without_ctis(out)
    out.has_external = operator.external_ctis == "pass" and any(flow.has_external for _, flow in fed)
    return out


def check_end(steps: Iterable[tuple[int, Operator, Sequence[int]]], ended: Collection[int]) -> None:
    """Raise what an operator would raise if these inputs ended, where that is certain; nothing changes.

    ``steps`` are numbered, each with the numbers that it reads. What an operator that may emit changes on a
    CTI does at the end is not known while it holds rows.
    """
    known, endless = set(ended), set[int]()
    for number, operator, inputs in steps:
        ended = [port for port, i in enumerate(inputs) if i in known]
        if operator.ends_with(ended, len(inputs)):
            operator.check_end()
            if not (operator.changes_on_cti and operator.state_rows()):
                known.add(number)
            elif operator.is_endless_after(ended):
                endless.add(number)
        elif endless.intersection(inputs):
            operator.refuse_endless()


def find_no_effect_times(
    steps: Sequence[tuple[int, Operator, Sequence[int]]], outputs: Iterable[int]
) -> dict[int, int]:
    """By number, the time before which changes have no effect, as `Operator.no_effect_before`.

    ``steps`` are as for `check_end`. Every change in one of the ``outputs`` has an effect.
    """
    times = dict.fromkeys(outputs, BEGINNING)
    for number, operator, inputs in reversed(steps):
        for port, i in enumerate(inputs):
            since = operator.no_effect_before(port, times.get(number, BEGINNING))
            times[i] = min(times.get(i, FOREVER), since)
    return times


def parts_of_all(operators: Sequence[Operator | None]) -> dict[str, Any]:
    """The state of operators, each under its place among them; see `Operator.parts`."""
    running = ((place, one) for place, one in enumerate(operators) if one is not None)
    return {f"{place}/{name}": part for place, one in running for name, part in one.parts().items()}


def restore_all(operators: Sequence[Operator | None], chunks: Chunks) -> None:
    """Become the operators whose snapshot this is; other chunks in it have no place in their names."""
    by_place: dict[int, dict[str, pa.Table]] = {}
    for name, table in chunks.items():
        place, slash, rest = name.partition("/")
        if slash:
            by_place.setdefault(int(place), {})[rest] = table
    for number, own in by_place.items():
        operator = operators[number]
        assert operator is not None
        operator.restore(own)


def split_ctis(batch: EventBatch) -> tuple[EventBatch, int | None]:
    """The changes of a batch, and the last CTI in it, which includes the earlier ones."""
    if batch.last_kind < CTI:
        return batch, None
    is_cti = batch.kind == CTI
    if not bool(is_cti.any()):
        return batch, None
    changes = batch.slice(0, 0) if bool(is_cti.all()) else batch.filter(~is_cti)
    return changes, int(batch.vs[is_cti].max())


def flow_of(batch: EventBatch) -> Flow:
    """The elements of a source as what it gives in one step."""
    changes, t = split_ctis(batch)
    has_external = changes.last_kind >= EXTERNAL_CTI and bool((changes.kind == EXTERNAL_CTI).any())
    return Flow([changes] if len(changes) else [], t, has_external)


def _without_ctis(flow: Flow) -> Flow:
    """CTIs that an operator made are one with the CTI of the step."""
    batch, t = split_ctis(flow.batches[0])
    made = [time for time in (t, flow.cti) if time is not None]
    return Flow([batch] if len(batch) else [], max(made, default=None))


def _part_external(operator: Operator, batch: EventBatch) -> list[EventBatch]:
    """The batch without external CTIs; then these, if the operator lets them pass."""
    is_external = batch.kind == EXTERNAL_CTI
    taken, passing = batch.filter(~is_external), batch.filter(is_external)
    if operator.external_ctis != "pass":
        return [taken]
    return [taken, replace(passing, payload=null_payload(len(passing), operator.schema))]


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """An operator and what it reads: ports by their numbers, then stages, numbered on from the last port."""

    operator: Operator
    inputs: tuple[int, ...]


class Pipeline:
    """Stages with inputs before their readers; the last one's output is the pipeline's."""

    def __init__(self, ports: int, stages: Sequence[PipelineStage]) -> None:
        self._ports, self._stages = ports, stages
        self.operators = [stage.operator for stage in stages]
        self._steps = [(number, one.operator, one.inputs) for number, one in enumerate(stages, ports)]
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
        check_end(self._steps, range(self._ports))

    def no_effect_before(self, port: int) -> int:
        """The time before which changes on a port have no effect, as `Operator.no_effect_before`."""
        return find_no_effect_times(self._steps, [self._last]).get(port, BEGINNING)

    def orphans(self, port: int) -> Orphans:
        """What happens to orphans on a port, as `Operator.orphans`; ``pass``: they reach the output."""
        readers = [
            (number, own_port)
            for number, stage in enumerate(self._stages, self._ports)
            for own_port, i in enumerate(stage.inputs)
            if i == port
        ]
        becomes = [self._orphans_above(number, own_port) for number, own_port in readers]
        return worst_outcome([*becomes, "pass"] if port == self._last else becomes)

    def _orphans_above(self, number: int, port: int) -> Orphans:
        becomes = self.operators[number - self._ports].orphans(port)
        return self.orphans(number) if becomes == "pass" else becomes

    def is_like(self, fresh: Pipeline) -> bool:
        """Will this behave like a fresh pipeline that got the same CTIs and times, and no events?"""
        return all(_are_alike(*pair) for pair in zip(self.operators, fresh.operators, strict=True))

    def take_counts(self) -> Counter[str]:
        """How many elements were dropped or adjusted since the last call, by reason."""
        taken: Counter[str] = Counter()
        for operator in self.operators:
            if counts := operator.counts():
                taken += counts
                counts.clear()
        return taken

    def take_dropped(self) -> list[tuple[str, EventBatch]]:
        """Elements dropped since the last call, with the reason."""
        return [one for operator in self.operators for one in operator.take_dropped()]

    def state_rows(self) -> int:
        """How many rows of state are held."""
        return sum(operator.state_rows() for operator in self.operators)

    def state_bytes(self) -> int:
        """How much memory the state takes."""
        return sum(operator.state_bytes() for operator in self.operators)

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of all stages."""
        return tables_of(parts_of_all(self.operators))

    def restore(self, chunks: Chunks) -> None:
        """Become the pipeline whose snapshot this is."""
        restore_all(self.operators, chunks)


def _are_alike(operator: Operator, fresh: Operator) -> bool:
    if operator.out_cti != fresh.out_cti or operator.state_rows() or fresh.state_rows():
        return False
    trace = operator.trace()
    return trace is not None and trace == fresh.trace()
