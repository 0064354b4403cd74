"""Rows of an input as elements, and where each comes from.

A row keeps its *origin*: the file and the row in it, its place in a partition. So whoever finds a fault can
say at once where it is, and nobody has to look for it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask
from recension.core.errors import StreamError
from recension.core.records import record
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind

if TYPE_CHECKING:
    from recension.core.formats.columns import Layout
    from recension.core.placement import PlacedRows, Placement


@record
class Origin:
    """Where rows come from: the first row of one file, or a file and a row for each.

    ``at`` says which of the rows these are, if they are not all of them in their order.
    """

    names: Sequence[str | None] = (None,)
    first_row: int = 1
    file: Index | None = None
    """The number of each row's file among ``names``; None if there is one file."""
    row: Index | None = None
    """The number of each row in its file; None if they follow the first one."""
    at: Index | None = None
    arrived: Index | None = None
    """When each row arrived, in microseconds since 1970 or ticks: `BEGINNING` where it is not known; None if
    no column says it."""

    def take(self, rows: Index | Mask) -> Origin:
        """The origins of some of the rows, or of all in another order."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64, copy=False)
        return replace(self, at=at if self.at is None else self.at[at])

    def position(self, at: int) -> int:
        """Which of the rows as they were given the row at ``at`` is."""
        return at if self.at is None else int(self.at[at])

    def locate(self, position: int) -> tuple[str | None, int | None]:
        """The file, and the row in it, of one of the rows as they were given."""
        file = self.names[0] if self.file is None else self.names[self.file[position]]
        return file, self.first_row + position if self.row is None else int(self.row[position])

    def error(self, reason: str, at: int) -> StreamError:
        """The fault of the row at ``at``."""
        position = self.position(at)
        file, row = self.locate(position)
        return StreamError(reason, file=file, row=row, position=position)

    def fault(self, why: StreamError, position: int) -> StreamError:
        """A fault that was found elsewhere, with the place of one of the rows as they were given."""
        file, row = self.locate(position)
        return StreamError(why.reason, file=file, row=row, position=position)

    def columns(self, size: int) -> tuple[Index, Index]:
        """The number of the file, and that of the row, of each of ``size`` rows."""
        at = np.arange(size) if self.at is None else self.at
        file = np.zeros(size, np.int64) if self.file is None else self.file[at]
        return file, at + self.first_row if self.row is None else self.row[at]

    def arrivals(self, size: int) -> Index | None:
        """When each of ``size`` rows arrived, if a column says it."""
        if self.arrived is None:
            return None
        return self.arrived[:size] if self.at is None else self.arrived[self.at]


def join_origins(parts: Sequence[tuple[Origin, int]]) -> Origin:
    """The origins of several parts, each of so many rows, one after the other."""
    names, files, rows = list[str | None](), list[Index](), list[Index]()
    came = [origin.arrivals(size) for origin, size in parts]
    arrived = None
    if any(one is not None for one in came):
        unknown = (np.full(size, BEGINNING) for _, size in parts)
        arrived = np.concatenate(
            [two if one is None else one for one, two in zip(came, unknown, strict=True)]
        )
    for origin, size in parts:
        file, row = origin.columns(size)
        files.append(file + len(names))
        rows.append(row)
        names += origin.names
    return Origin(names, file=np.concatenate(files), row=np.concatenate(rows), arrived=arrived)


NOWHERE: Final = Origin()


@record
class Rows:
    """Elements of an input with their origins; they end before the first row of which none could be made."""

    batch: EventBatch
    origin: Origin
    size: int
    """How many rows these were made of."""
    layout: Layout | None = None
    """What the columns of a table or a file mean."""
    kind: TimeKind = None
    placement: Placement | None = None
    """Where they stand in partitions, if columns or a folder say that."""
    placed: PlacedRows | None = None
    """How they stand there, once they are in their places."""
    spoke: Sequence[str] = ()
    """The partitions that there were rows of, also if these were left out."""
    dropped: Sequence[tuple[str, pa.RecordBatch]] = ()
    """The rows of which no element could be made, by reason, where the policy is to drop them."""
    fault: StreamError | None = None
    """What is wrong with the row after them."""

    @property
    def is_table(self) -> bool:
        """Is it a plain table, which is complete?"""
        return self.layout is not None and self.layout.is_table

    def before(self, position: int) -> Rows:
        """Those that were given before one of them."""
        at = self.origin.at
        size = position if at is None else int(np.searchsorted(at, position))
        kept = np.arange(size)
        placement = None if self.placement is None else self.placement.take(kept)
        origin = self.origin if at is None else self.origin.take(kept)
        batch = self.batch.slice(0, size)
        return replace(self, batch=batch, origin=origin, size=position, placement=placement, fault=None)
