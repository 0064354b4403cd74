"""What operators do while a query runs, and what a person should know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from recension.core.batch import EventBatch
from recension.core.ticks import BEGINNING
from recension.core.validity import ADJUSTED, LATE, STALE_CTI
from recension.gate.partition_state import PartitionProgress
from recension.gate.repeats import REPEATED
from recension.operators.due import AHEAD
from recension.operators.pipeline import Flow
from recension.runners.blockers import Blocker

ROWS_WITHOUT_CTI: Final = 1_000_000
# Where less than this part of the rows is held, something else keeps the state small.
_LEAST_HELD: Final = 0.1


@dataclass(slots=True)
class Metrics:
    """What one operator has done so far. Its lists are replaced, never changed: copies may share them."""

    name: str
    events_in: int = 0
    retractions_in: int = 0
    events_out: int = 0
    retractions_out: int = 0
    cti: int = BEGINNING
    state_rows: int = 0
    state_bytes: int = 0
    seconds: float = 0.0
    dropped: int = 0
    late: int = 0
    """Elements that broke a CTI: dropped, or moved to it."""
    skipped: int = 0
    """Elements that no reader wanted, by feedback."""
    inputs: list[str] = field(default_factory=list)
    """Of a merge: whether each input is joining, joined, leaving or has left."""
    anomalies: int = 0
    """Of a merge: how often an input contradicted what is final."""
    contradictions: dict[str, int] = field(default_factory=dict)
    """Of a merge: the same by input, its number and its sources."""
    warnings: list[str] = field(default_factory=list)
    """What a person should know of it, each said once; the logger ``recension`` has them too."""
    partitions: list[PartitionProgress] = field(default_factory=list)
    """Of a source: how far each of its partitions is."""
    held_back_by: str | None = None
    """The input, and its partition, that a step of several inputs or an answer waits for. Of a source with
    partitions: the one that the others wait for, or how many have yet to speak."""
    held_at: int | None = None
    """The CTI that this input stands at."""
    held_since: int | None = None
    """When it got there, by the clock of the session."""
    freed_by: str | None = None
    """What would let it go on."""
    is_halted: bool = False
    """Of a merge: has every input left that could move the output, while others wait for it to move?"""

    def wait_for(self, blockers: Sequence[Blocker]) -> None:
        """Name the inputs that it waits for; those of equal CTIs all at once."""
        if blockers:
            first = blockers[0]
            self.held_back_by = "; ".join(one.name for one in blockers)
            self.held_at, self.held_since, self.freed_by = first.cti, first.since, first.remedy

    def count_in(self, batch: EventBatch) -> None:
        """Count elements that come in."""
        self.events_in += len(batch)
        self.retractions_in += batch.count_retractions()

    def count_out(self, flow: Flow) -> None:
        """Count what is given in one step."""
        for batch in flow.batches:
            self.events_out += len(batch)
            self.retractions_out += batch.count_retractions()
        if flow.cti is not None:
            self.cti = flow.cti


# What is counted while a query runs. The rest is looked up when somebody asks.
COUNTERS: Final = (
    *("events_in", "retractions_in", "events_out", "retractions_out"),
    *("cti", "seconds", "skipped", "warnings"),
)
counters_of: Final[Callable[[Metrics], tuple[Any, ...]]] = attrgetter(*COUNTERS)


def dropped_count(counts: Counter[str]) -> int:
    """How many elements were dropped. Not moved ones, repeats, CTIs that say nothing new, far starts."""
    return sum(n for reason, n in counts.items() if reason not in (ADJUSTED, REPEATED, STALE_CTI, AHEAD))


def late_count(counts: Counter[str]) -> int:
    """How many elements broke a CTI: those that were dropped for it, and those that were moved."""
    return counts[LATE] + counts[ADJUSTED]


class NoCtiWarning:
    """Warns, once, of a source that sends much and no CTI: nothing can become final, state only grows."""

    def __init__(self) -> None:
        self._next: int | None = ROWS_WITHOUT_CTI

    def check(self, source: str, rows: int, count_held: Callable[[], int]) -> str | None:
        """What to say of a source that has sent so many rows, if anything."""
        if self._next is None or rows < self._next:
            return None
        # Counting what is held is not free: it is looked at again when twice as much has come.
        self._next = 2 * rows
        if (held := count_held()) < _LEAST_HELD * rows:
            return None
        self._next = None
        return (
            f"source {source} has sent {rows:,} rows and no cti: nothing can become final, and {held:,} rows "
            f"of state are held; send ctis, promise times with session.advance({source!r}, t), or put "
            "advance_time(...) on it"
        )
