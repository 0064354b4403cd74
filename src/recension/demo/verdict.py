"""Is the merged answer right, and what did it take? Computed from the outputs, never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from recension.core.batch import INSERT
from recension.core.difference import Difference, difference
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import BEGINNING, FOREVER
from recension.demo.late_lease import LateLease, find_late_lease
from recension.demo.leases import as_history, clock
from recension.demo.plans import first_plan
from recension.demo.script import ReplicaStage, World
from recension.demo.trace import MERGED, StreamOutput, Trace, last_cti

ENGINES: Final = {
    "spark": "Spark Structured Streaming: a streaming query for each replica, and one for the merge",
    "local": "the local engine: a session for each replica, and one for the merge",
}


@dataclass(frozen=True)
class StreamSummary:
    """One stream, compared with the answer."""

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
    """How the day went."""

    leases: int
    elements_fed: dict[str, int]
    truth: History
    merged: History
    difference: Difference
    """Between the batch answer and the history that the merge has left."""
    inputs: Sequence[StreamSummary]
    output: StreamSummary
    speculative: Sequence[float]
    """Of the answers that were shown before they were final: for how many seconds they were not."""
    late_lease: LateLease | None
    """Why an answer was wrong at noon; none if none was wrong for want of one lease."""

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


def judge(world: World, stage: ReplicaStage) -> Verdict:
    """Ask the same question of the leases as they were in the end, and compare."""
    trace = stage.trace
    truth = stage.batch_answer(first_plan(), as_history(world.leases))
    merged = stage.history()
    return Verdict(
        leases=len(world.leases),
        elements_fed=dict(trace.elements_fed),
        truth=truth,
        merged=merged,
        difference=difference(merged, truth),
        inputs=[_summarize(name, trace, truth) for name in trace.streams],
        output=_summarize(MERGED, trace, truth),
        speculative=_speculative_seconds(trace.outputs_of(MERGED), merged),
        late_lease=find_late_lease(world, trace, truth),
    )


def history_of(outputs: Sequence[StreamOutput], schema_of: History) -> History:
    """The history of what a stream has put out."""
    return reconstitute((output.batch for output in outputs), schema_of.schema)


def _summarize(name: str, trace: Trace, truth: History) -> StreamSummary:
    outputs = trace.outputs_of(name)
    found = difference(history_of(outputs, truth), truth)
    answers, revisions = (
        sum(output.inserts for output in outputs),
        sum(output.revisions for output in outputs),
    )
    missed, wrong = len(found.missing), len(found.unexpected)
    return StreamSummary(name, answers, revisions, last_cti(outputs), missed, wrong)


def _speculative_seconds(outputs: Sequence[StreamOutput], answers: History) -> list[float]:
    """An answer is for a site, from a time on; it is shown with the first output about it."""
    shown: dict[tuple[str, int], float] = {}
    ctis: list[int] = []
    reached = BEGINNING
    for output in outputs:
        new = output.batch.filter(output.batch.kind == INSERT)
        for key in zip(new.payload["site"].to_pylist(), new.vs.tolist(), strict=True):
            shown.setdefault(key, output.at)
        reached = max(reached, output.cti)
        ctis.append(reached)
    keys = zip(answers.payload["site"].to_pylist(), answers.vs.tolist(), strict=True)
    # An end is final when the CTI has passed it.
    final_at = np.searchsorted(ctis, answers.ve, side="right").tolist()
    times = zip(keys, final_at, strict=True)
    waits = [outputs[at].at - shown[key] for key, at in times if at < len(outputs) and key in shown]
    return [seconds for seconds in waits if seconds > 0]


def key_figures(verdict: Verdict) -> list[tuple[str, str]]:
    """What there is to count: a label and a number."""
    made = sum(stream.revisions for stream in verdict.inputs)
    return [
        ("elements sent by three feeds", f"{sum(verdict.elements_fed.values()):,}"),
        ("revisions made by the replicas", f"{made:,}"),
        ("revisions in the merged stream", f"{verdict.output.revisions:,}"),
        ("answers in the merged history", f"{len(verdict.merged):,}"),
        ("of them shown before they were final", f"{len(verdict.speculative):,}"),
        (f"so long at the median, {verdict.longest_wait:.1f} s at most", f"{verdict.usual_wait:.1f} s"),
    ]


def print_verdict(verdict: Verdict, console: Console) -> None:
    """A few lines that say how it went."""
    feeds = ", ".join(f"{name} {count:,}" for name, count in verdict.elements_fed.items())
    fed = sum(verdict.elements_fed.values())
    console.print(f"\nEvents in: {fed:,} elements on {verdict.leases:,} leases ({feeds}).")
    console.print(_table(verdict))
    console.print(
        f"{len(verdict.speculative):,} answers were shown before they were final: speculative for "
        f"{verdict.usual_wait:.1f} s at the median, {verdict.longest_wait:.1f} s at most."
    )
    if verdict.late_lease is not None:
        for line in verdict.late_lease.tell():
            console.print(line, markup=False, highlight=False)
    word = "yes" if verdict.is_right else "NO"
    console.print(
        f"Merged history ({len(verdict.merged):,} answers) equals the batch answer "
        f"({len(verdict.truth):,}): [bold {'green' if verdict.is_right else 'red'}]{word}[/]"
    )
    if not verdict.is_right:
        console.print(str(verdict.difference), markup=False)


def _table(verdict: Verdict) -> Table:
    table = Table("", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("new answers", "revisions", "final up to", "answers it missed", "left wrong"):
        table.add_column(name, justify="right")
    for stream in [*verdict.inputs, verdict.output]:
        counts = f"{stream.answers:,}", f"{stream.revisions:,}"
        table.add_row(stream.name, *counts, describe_final(stream), f"{stream.missed:,}", f"{stream.wrong:,}")
    return table


def describe_final(stream: StreamSummary) -> str:
    """Up to when its answers are final."""
    return "the end" if stream.final_up_to == FOREVER else clock(stream.final_up_to)
