"""Is the merged answer right, and what did it take? Computed from what was said, never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from recension.core.batch import INSERT
from recension.core.difference import Difference, difference
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import BEGINNING
from recension.demo.leases import as_history
from recension.demo.plans import first_plan
from recension.demo.script import World
from recension.demo.stage import Stage
from recension.demo.trace import MERGED, Said, Trace, final_up_to


@dataclass(frozen=True)
class Witness:
    """One stream, measured by the answer."""

    name: str
    answers: int
    revisions: int
    final_up_to: int
    missed: int
    """Answers that it never gave, or gave otherwise."""
    wrong: int
    """Answers that stood in it at its end and are not true."""


@dataclass(frozen=True)
class Verdict:
    """What there is to say when the day is over."""

    leases: int
    told: dict[str, int]
    truth: History
    merged: History
    difference: Difference
    """Between the batch answer and the history that the merge has left."""
    inputs: Sequence[Witness]
    output: Witness
    speculative: Sequence[float]
    """Of the answers that were shown before they were final: for how many seconds they were not."""

    @property
    def is_right(self) -> bool:
        """Is there no difference at all?"""
        return not self.difference

    @property
    def usual_wait(self) -> float:
        """Half of them were speculative for so many seconds or less."""
        return median(self.speculative) if self.speculative else 0.0

    @property
    def longest_wait(self) -> float:
        """None was speculative for longer."""
        return max(self.speculative, default=0.0)


def judge(world: World, stage: Stage) -> Verdict:
    """Ask the same question of the leases as they were in the end, and compare."""
    trace = stage.trace
    truth = stage.batch_answer(first_plan(), as_history(world.leases))
    merged = stage.history()
    return Verdict(
        leases=len(world.leases),
        told=dict(trace.told),
        truth=truth,
        merged=merged,
        difference=difference(truth, merged),
        inputs=[_witness(name, trace, truth) for name in trace.streams],
        output=_witness(MERGED, trace, truth),
        speculative=_speculative(trace.of(MERGED), merged),
    )


def history_of(said: Sequence[Said], schema_of: History) -> History:
    """What a stream means, by what it has said."""
    return reconstitute((one.batch for one in said), schema_of.schema)


def _witness(name: str, trace: Trace, truth: History) -> Witness:
    said = trace.of(name)
    found = difference(truth, history_of(said, truth))
    answers, revisions = sum(one.inserts for one in said), sum(one.revisions for one in said)
    missed, wrong = len(found.missing), len(found.unexpected)
    return Witness(name, answers, revisions, final_up_to(said), missed, wrong)


def _speculative(said: Sequence[Said], answers: History) -> list[float]:
    """An answer is for a site, from a time on; what is said of it first counts as its showing."""
    shown: dict[tuple[str, int], float] = {}
    promises: list[int] = []
    reached = BEGINNING
    for one in said:
        new = one.batch.filter(one.batch.kind == INSERT)
        for key in zip(new.payload["site"].to_pylist(), new.vs.tolist(), strict=True):
            shown.setdefault(key, one.at)
        reached = max(reached, one.promise)
        promises.append(reached)
    keys = zip(answers.payload["site"].to_pylist(), answers.vs.tolist(), strict=True)
    # An end is final when the promise has passed it.
    settled = np.searchsorted(promises, answers.ve, side="right").tolist()
    times = zip(keys, settled, strict=True)
    waits = [said[at].at - shown[key] for key, at in times if at < len(said) and key in shown]
    return [seconds for seconds in waits if seconds > 0]
