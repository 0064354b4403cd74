"""Of which partition each row is: by columns of its own, or as whoever pushes it says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.placement import PartitionColumns, Placement, name_of
from recension.gate.step import Arrival, IntoPartition
from recension.plan.source import Source


class PartitionNames:
    """Names the partitions of the rows of one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._columns = source.sub_streams or PartitionColumns()

    def columns_in(self, schema: pa.Schema, arrival: Arrival) -> PartitionColumns | None:
        """The columns of a table that say where its rows stand, if any do."""
        columns = self._source.sub_streams_in(schema.names) or PartitionColumns()
        if arrival.partition is not None:
            self.refuse_both(schema.names)
            columns = replace(columns, partition=())
        return columns if columns.names else None

    def refuse_both(self, names: Collection[str]) -> None:
        """Refuse columns that say of which partition rows are, where whoever pushes them says it."""
        if there := [name for name in self._columns.partition if name in names]:
            raise RecensionError(
                f"{self._source.name}: push(..., partition=) is for data without the column {there[0]!r}, "
                "which says it already"
            )

    def refuse_folders(self, partitions: Sequence[str]) -> None:
        """Refuse directories that say it, where whoever pushes them says it."""
        if partitions:
            raise RecensionError(
                f"{self._source.name}: push(..., partition=) is for data without a directory for each "
                f"partition, such as {partitions[0]!r}, which says it already"
            )

    def name_rows(
        self, size: int, placement: Placement | None, given: IntoPartition | None
    ) -> Placement | None:
        """The places of rows by what their columns say, or who pushes them."""
        name, has_partitions = self._source.name, bool(self._source.partition)
        if isinstance(given, Placement):
            return given
        if not has_partitions:
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
