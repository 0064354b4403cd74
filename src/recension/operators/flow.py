"""One step of one operator: what reaches its ports, and what it gives for all of that together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, concat, null_payload
from recension.operators.base import Operator, Output


@dataclass(slots=True)
class Flow:
    """What a vertex gives in one step."""

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
    """Tell an operator the time, if it is to know it, then all batches of a step, then all its CTIs."""
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


def split(batch: EventBatch) -> tuple[EventBatch, int | None]:
    """The changes of a batch and the last CTI in it, which speaks for the earlier ones too."""
    is_cti = batch.kind == CTI
    if not bool(is_cti.any()):
        return batch, None
    return batch.filter(~is_cti), int(batch.vs[is_cti].max())


def flow_of(batch: EventBatch) -> Flow:
    """The elements of a source as what it gives in one step."""
    changes, t = split(batch)
    return Flow([changes] if len(changes) else [], t, bool((changes.kind == EXTERNAL_CTI).any()))


def _without_ctis(flow: Flow) -> Flow:
    """CTIs that an operator made are one with the CTI of the step."""
    batch, t = split(flow.batches[0])
    made = [time for time in (t, flow.cti) if time is not None]
    return Flow([batch] if len(batch) else [], max(made, default=None))


def _part_external(operator: Operator, batch: EventBatch) -> list[EventBatch]:
    """The batch without external CTIs; then these, if the operator lets them pass."""
    is_external = batch.kind == EXTERNAL_CTI
    taken, passing = batch.filter(~is_external), batch.filter(is_external)
    if operator.external_ctis != "pass":
        return [taken]
    return [taken, replace(passing, payload=null_payload(len(passing), operator.schema))]
