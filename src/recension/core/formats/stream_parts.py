"""Parts of a stream in Parquet files: some of its elements, found by few columns and read without the rest.

Finding reads the control columns and those that are asked about, in bounded memory. Reading skips the row
groups in which no wanted element is. Only what is read is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, EventBatch, Index, Mask, concat, empty, null_payload
from recension.core.formats.decode import Decoder
from recension.core.formats.parquet import ParquetRows
from recension.core.formats.stream_files import StreamFile
from recension.core.rows import Origin, Rows

_SIZE: Final = 1 << 16


def can_read_parts(file: StreamFile) -> bool:
    """Can some rows of it be read without the others?"""
    return isinstance(file.rows, ParquetRows) and file.rows.count is not None


@dataclass(frozen=True)
class FoundElements:
    """Elements with some of their columns, and their places in the stream, from 0, ascending."""

    batch: EventBatch
    places: Index

    def filter(self, keep: Mask) -> FoundElements:
        """Those that are wanted."""
        return FoundElements(self.batch.filter(keep), self.places[keep])


class StreamParts:
    """A stream of which parts can be had; its files are read one after the other."""

    def __init__(
        self, files: Sequence[StreamFile], schema: pa.Schema, check: Callable[[Rows], EventBatch]
    ) -> None:
        self._files, self._schema, self._check = list(files), schema, check
        self._firsts: Index = np.cumsum([0, *(_rows_of(file).count or 0 for file in files)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def turns(self, places: Index, size: int) -> Index:
        """In which batch of so many rows each place is read; that after the last row is in none of them."""
        batches = np.cumsum([0, *(-(-np.diff(self._firsts) // size)).tolist()], dtype=np.int64)
        file = np.minimum(np.searchsorted(self._firsts, places, "right") - 1, len(self._files) - 1)
        turns: Index = batches[file] + (places - self._firsts[file]) // size
        return np.where(places == len(self), batches[-1], turns)

    def find(self, names: Sequence[str], keep: Callable[[EventBatch], Mask]) -> FoundElements:
        """The elements that are wanted, judged by their times and these columns."""
        columns = pa.schema([self._schema.field(name) for name in names])
        decoder, found, places = Decoder(columns, "raise"), [empty(columns)], [np.zeros(0, np.int64)]
        for file, start in zip(self._files, self._firsts.tolist(), strict=False):
            first = 0
            for rows in file.rows.batches(file.columns_to_read(columns), _SIZE):
                batch = decoder.decode(rows, file.layout, file.name, first + 1).batch
                at = np.flatnonzero(keep(batch))
                found.append(batch.take(at))
                places.append(at + start + first)
                first += len(rows)
        return FoundElements(concat(found), np.concatenate(places))

    def read(self, found: FoundElements) -> EventBatch:
        """Some elements, whole, which must be a valid stream; a fault names its row. CTIs need no reading."""
        places, has_payload = found.places, found.batch.kind != CTI
        ctis = found.batch.filter(~has_payload)
        data = self._read(places[has_payload])
        order = np.argsort(np.concatenate([np.flatnonzero(has_payload), np.flatnonzero(~has_payload)]))
        batch = concat([data, replace(ctis, payload=null_payload(len(ctis), self._schema))]).take(order)
        file = np.searchsorted(self._firsts, places, "right") - 1
        names = [file.name for file in self._files]
        origin = Origin(names, file=file, row=places - self._firsts[file] + 1)
        layout = self._files[0].layout
        return self._check(Rows(batch, origin, len(batch), layout, layout.kind)) if len(batch) else batch

    def _read(self, places: Index) -> EventBatch:
        decoder, parts = Decoder(self._schema, "raise"), [empty(self._schema)]
        for number, (file, start) in enumerate(zip(self._files, self._firsts.tolist(), strict=False)):
            low, high = np.searchsorted(places, self._firsts[number : number + 2])
            wanted, columns = places[low:high] - start, file.columns_to_read(self._schema)
            for first, rows in _rows_of(file).batches_with(columns, _SIZE, wanted):
                batch = decoder.decode(rows, file.layout, file.name, first + 1).batch
                here = wanted[slice(*np.searchsorted(wanted, (first, first + len(rows))))]
                parts.append(batch.take(here - first))
        return concat(parts)


def _rows_of(file: StreamFile) -> ParquetRows:
    assert isinstance(file.rows, ParquetRows)
    return file.rows
