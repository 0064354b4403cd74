"""The sub-streams of one source: where the rows of a push stand, and what is left out for that.

    rows of a push ── read, name ──> places ── place ──> rows in their places, without repeats ──> checks

A source without partitions has none of this, unless its producer numbers what it sends: then repeats are left
out, and the rest is as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EXTERNAL_CTI, EventBatch, Index
from recension.core.errors import RecensionError, StreamError
from recension.core.partitions import Heard, PartitionProgress, Partitions, PlacedRows
from recension.core.placement import PartitionColumns, Placement, name_of
from recension.core.records import record
from recension.core.repeats import REPEATED, Highest, Sequences
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, describe_time
from recension.core.validity import DroppedElements
from recension.plan.source import Source

IntoPartition: TypeAlias = Any
"""A value, a tuple of values, a list of these for the elements of a list, or a `Placement`."""
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Arrival:
    """Of what partition data is, and when it comes: ``now`` by the clock of the session.

    ``promise`` is a CTI for all partitions. A shard has ``heard`` of the rows of all shards.
    """

    partition: IntoPartition | None = None
    now: int = 0
    promise: int | None = None
    heard: Heard | None = None


@record
class SiftedRows:
    """Rows in their places, without repeats; nothing has changed yet."""

    batch: EventBatch
    placed: PlacedRows | None = None
    highest: Highest | None = None
    repeats: int = 0


class SubStreams(DroppedElements):
    """Finds the places of the rows of one source, and gives its CTI."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._columns = source.sub_streams or PartitionColumns()
        self._sequences = Sequences()
        self.partitions = (
            Partitions(expected=source.partitions, idle=source.idle) if source.partition else None
        )

    def columns_in(self, schema: pa.Schema, arrival: Arrival) -> PartitionColumns | None:
        """The columns of a table that say where its rows stand, if any do."""
        columns = self._source.sub_streams_in(schema.names) or PartitionColumns()
        if arrival.partition is not None:
            self._refuse_both(schema)
            columns = replace(columns, partition=())
        return columns if columns.names else None

    def _refuse_both(self, schema: pa.Schema) -> None:
        if there := [name for name in self._columns.partition if name in schema.names]:
            raise RecensionError(
                f"{self._source.name}: push(..., partition=) is for data without the column {there[0]!r}, "
                "which says it already"
            )

    def name_rows(
        self, size: int, placement: Placement | None, given: IntoPartition | None
    ) -> Placement | None:
        """The places of rows by what their columns say, or who pushes them."""
        name = self._source.name
        if isinstance(given, Placement):
            return given
        if self.partitions is None:
            if given is not None:
                raise RecensionError(
                    f"{name}: it has no partitions: declare rc.source({name!r}, ..., partition=...)"
                )
            return placement
        if given is None:
            if placement is None:
                raise RecensionError(
                    f"{name}: it has partitions: push(..., partition=) says of which one this is, or a "
                    f"column {self._source.partition[0]!r}"
                )
            return placement
        if isinstance(given, list):
            if len(given) != size:
                raise RecensionError(f"{name}: {size} elements, but partitions of {len(given)}")
            named = Placement.of_names([self._name(one) for one in given])
        else:
            named = Placement.of_one(self._name(given), size)
        return named if placement is None else replace(placement, names=named.names, code=named.code)

    def _name(self, partition: IntoPartition) -> str:
        values = partition if isinstance(partition, tuple) else (partition,)
        wanted = self._source.partition
        if len(values) != len(wanted):
            raise RecensionError(
                f"{self._source.name}: a partition is a value of {', '.join(wanted)}: {partition!r} has "
                f"{len(values)} values, not {len(wanted)}"
            )
        return name_of(partition)

    def place(
        self, batch: EventBatch, placement: Placement | None, arrival: Arrival, row: int, kind: TimeKind
    ) -> SiftedRows:
        """Put rows in their places and leave out repeats; what may not be there is an error or left out."""
        if self.partitions is not None:
            self._refuse_external(batch, row)
            return self._place(self.partitions, batch, placement, arrival, row, kind)
        if placement is None or not placement.sequence:
            return SiftedRows(batch)
        is_repeat, highest = self._sequences.find_repeats(placement, placement.code, placement.names)
        counts = is_repeat & (batch.kind != CTI) if _counts_no_ctis(arrival) else is_repeat
        return SiftedRows(batch.filter(~is_repeat), None, highest, int(counts.sum()))

    def _place(
        self,
        partitions: Partitions,
        batch: EventBatch,
        placement: Placement | None,
        arrival: Arrival,
        row: int,
        kind: TimeKind,
    ) -> SiftedRows:
        placed = partitions.judge(
            batch,
            Placement((), np.zeros(0, np.int64)) if placement is None else placement,
            arrival.now,
            promise=arrival.promise,
            heard=arrival.heard,
            is_strict=self._source.on_violation == "raise",
            first_row=row,
            file=self._source.name,
            kind=kind,
        )
        return SiftedRows(placed.batch, placed)

    def _refuse_external(self, batch: EventBatch, first_row: int) -> None:
        is_external = batch.kind == EXTERNAL_CTI
        if bool(is_external.any()):
            reason = "an external cti counts the elements of one stream, and the source has partitions"
            raise StreamError(reason, file=self._source.name, row=first_row + int(np.argmax(is_external)))

    def note(self, sifted: SiftedRows, counted: Sequence[tuple[str, Index]]) -> None:
        """Take over what was judged last; ``counted`` is what the checks dropped, by reason and partition."""
        if sifted.highest is not None:
            self._sequences.note(sifted.highest)
            self.counts[REPEATED] += sifted.repeats
        if sifted.placed is None or self.partitions is None:
            return
        self.partitions.note(sifted.placed)
        for reason, elements, counts in sifted.placed.dropped:
            self.counts[reason] += int(counts.sum())
            if elements is not None:
                self.dropped.append((reason, elements))
        for reason, counts in counted:
            self.partitions.count(reason, counts)

    @property
    def is_clocked(self) -> bool:
        """Can time alone move its CTI?"""
        return self.partitions is not None and self.partitions.is_clocked

    def progress(self) -> list[PartitionProgress]:
        """How far each partition is."""
        return [] if self.partitions is None else self.partitions.progress()

    def held_back_by(self) -> str | None:
        """What the others wait for."""
        return None if self.partitions is None else self.partitions.held_back_by()

    def snapshot(self) -> dict[str, pa.Table]:
        """What is known of partitions and sequences; nothing of a source that has neither."""
        if self.partitions is not None:
            return self.partitions.snapshot()
        return self._sequences.snapshot() if self._sequences else {}

    def restore(self, chunks: Mapping[str, pa.Table]) -> None:
        """Become what `snapshot` gave."""
        if self.partitions is not None:
            self.partitions.restore(chunks)
        else:
            self._sequences.restore(chunks)


def _counts_no_ctis(arrival: Arrival) -> bool:
    """Does another shard count the CTIs that are left out?"""
    return arrival.heard is not None and not arrival.heard.counts_ctis


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
