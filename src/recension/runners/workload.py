"""Where the steps of a session run: in this process, or in workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recension.lowering import PhysicalPlan
from recension.runners.engine import Engine

if TYPE_CHECKING:
    from recension.runners.workers.split import Split


@dataclass(frozen=True, slots=True)
class Workload:
    """Who does the work of a session, and why."""

    asked: int = 1
    """How many workers the user wants."""
    split: Split | None = None
    """How the work is split among them."""
    reason: str = ""
    """Or why it is not."""

    def counts_external_ctis_alone(self, source: str) -> bool:
        """Would a worker count only its own elements for external CTIs of this source?"""
        return self.split is not None and self.split.counts_external_ctis_alone(source)

    def __str__(self) -> str:
        if self.split is not None:
            return f"in {self.asked} workers\n{self.split}"
        return f"in this process, not in {self.asked} workers: {self.reason}\n" if self.asked > 1 else ""


def open_engine(plan: PhysicalPlan, workers: int) -> tuple[Engine, Workload]:
    """The engine of a plan, with the work in so many processes if it can be split."""
    if workers > 1:
        from recension.runners.workers.engine import SplitEngine  # loads what processes need
        from recension.runners.workers.split import split_plan

        split = split_plan(plan, workers)
        if not isinstance(split, str):
            return SplitEngine(plan, split), Workload(workers, split)
        return _plain_engine(plan), Workload(workers, reason=split)
    return _plain_engine(plan), Workload()


def _plain_engine(plan: PhysicalPlan) -> Engine:
    return Engine(plan.vertices, plan.query_vertices.values())
