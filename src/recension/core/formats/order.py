"""Rows that several writers have numbered: read in the order of ``(_batch, _seq)``.

Spark's tasks write one file each per micro-batch, so the numbers of the files of one micro-batch
interleave and those of different micro-batches do not. Files whose numbers overlap are read together and
sorted; the others are only put in order. Memory: the largest set of files that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.agreement import StreamFile
from recension.core.formats.columns import BATCH, SEQ

_KEYS = pa.schema([(BATCH, pa.int64()), (SEQ, pa.int64())])


def in_order(table: pa.Table) -> pa.Table:
    """The rows of a table by their numbers, if they have any."""
    if {BATCH, SEQ} <= set(table.column_names):
        return table.sort_by([(BATCH, "ascending"), (SEQ, "ascending")])
    return table


@dataclass(slots=True)
class _Extent:
    """The first and last number in a file, and whether its rows are in order."""

    file: StreamFile
    first: tuple[int, int]
    last: tuple[int, int]
    is_sorted: bool = True

    def add(self, batch: Index, seq: Index) -> None:
        order = np.lexsort((seq, batch))
        first, last = ((int(batch[i]), int(seq[i])) for i in (order[0], order[-1]))
        # A stable sort of rows in order leaves them where they are.
        in_order = bool((order == np.arange(len(order))).all())
        self.is_sorted &= in_order and first >= self.last
        self.first, self.last = min(self.first, first), max(self.last, last)


def clusters(files: Sequence[StreamFile], size: int) -> Iterator[tuple[list[StreamFile], bool]]:
    """Files that must be read together, in order of their numbers, and whether they must be sorted."""
    extents = [extent for file in files if (extent := _extent(file, size)) is not None]
    held: list[_Extent] = []
    for extent in sorted(extents, key=lambda e: e.first):
        if held and extent.first > max(e.last for e in held):
            yield _cluster(held, files)
            held = []
        held.append(extent)
    if held:
        yield _cluster(held, files)


def _cluster(held: list[_Extent], files: Sequence[StreamFile]) -> tuple[list[StreamFile], bool]:
    # Rows of equal numbers keep the order of the files.
    members = {extent.file.name for extent in held}
    is_sorted = len(held) == 1 and held[0].is_sorted
    return [file for file in files if file.name in members], not is_sorted


def _extent(file: StreamFile, size: int) -> _Extent | None:
    extent, row = None, 1
    for rows in file.rows.batches(_KEYS, size):
        batch, seq = keys_of(rows, file.name, row)
        row += len(rows)
        if len(rows):
            extent = extent or _Extent(file, (int(batch[0]), int(seq[0])), (int(batch[0]), int(seq[0])))
            extent.add(batch, seq)
    return extent


def keys_of(rows: pa.RecordBatch, file: str, first_row: int) -> tuple[Index, Index]:
    """The numbers of a run of rows, none of which may be missing."""
    columns = []
    for name in (BATCH, SEQ):
        column = rows.column(name)
        if column.null_count:
            at = column.is_null().index(True).as_py()
            raise FormatError(f"{name} is null", file=file, row=first_row + at)
        columns.append(column.cast(pa.int64()).to_numpy())
    return columns[0], columns[1]
