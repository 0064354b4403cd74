"""The step *place*: each row in its partition, by the order there; repeats are left out.

    rows as they came ──> rows in their places, each with the CTI before it in its own partition

A source without partitions has the step *repeats* instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EXTERNAL_CTI, EventBatch
from recension.core.placement import Placement
from recension.core.rows import Rows
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, describe_time
from recension.gate.partition_state import PartitionProgress
from recension.gate.partitions import JudgedRows, Partitions
from recension.gate.step import Arrival, Step, Verdict
from recension.plan.source import Source

NOWHERE: Final = Placement((), np.zeros(0, np.int64))
_SHOWN: Final = 12


class Place(Step):
    """Puts the rows of a source with partitions in their places."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._is_strict = source.on_violation == "raise"
        self.partitions = Partitions(expected=source.partitions, idle=source.idle)

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The rows by partition and order; one that goes back in its partition is a fault."""
        _refuse_external(rows)
        judged = self.partitions.judge(
            rows.batch,
            NOWHERE if rows.placement is None else rows.placement,
            arrival.now,
            promise=arrival.promise,
            heard=arrival.heard,
            is_strict=self._is_strict,
            origin=rows.origin,
            kind=rows.kind,
        )
        placed = replace(
            rows, batch=judged.batch, origin=judged.origin, placed=judged.placed, spoke=judged.spoke
        )
        return placed, partial(self._take_over, judged)

    def _take_over(self, judged: JudgedRows, batch: EventBatch) -> EventBatch:
        self.partitions.admit(judged)
        for reason, elements, counts in judged.dropped:
            self.counts[reason] += int(counts.sum())
            if elements is not None:
                self.dropped.append((reason, elements))
        return batch

    def snapshot(self) -> dict[str, pa.Table]:
        """What is known of the partitions."""
        return self.partitions.snapshot()

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        self.partitions.restore(chunks)


def _refuse_external(rows: Rows) -> None:
    is_external = rows.batch.kind == EXTERNAL_CTI
    if bool(is_external.any()):
        reason = "an external cti counts the elements of one stream, and the source has partitions"
        raise rows.origin.error(reason, int(np.argmax(is_external)))


def describe_progress(progress: Sequence[PartitionProgress], holder: str | None, kind: TimeKind) -> list[str]:
    """How far partitions are, for people: those that are behind first, and what holds the others back."""
    behind = sorted(progress, key=lambda one: (one.cti, len(one.name), one.name))
    lines = [_describe_one(one, kind) for one in behind[:_SHOWN]]
    if len(behind) > _SHOWN:
        lines.append(f"and {len(behind) - _SHOWN} more partitions, which are further")
    return lines if holder is None else [f"held back by {holder}", *lines]


def _describe_one(one: PartitionProgress, kind: TimeKind) -> str:
    facts = ["has ended" if one.has_ended else f"cti {describe_time(one.cti, kind)}"]
    if one.cti == BEGINNING:
        facts = ["no cti yet"]
    if one.latest_start > BEGINNING:
        facts.append(f"latest start {describe_time(one.latest_start, kind)}")
    facts += ["idle"] if one.is_idle and not one.has_ended else []
    facts += [f"{n:,} × {reason}" for reason, n in one.dropped.items()]
    return f"partition {one.name}: {', '.join(facts)}"
