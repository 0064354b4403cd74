"""The elements of a stream's files, in arrival order, each with the place it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, concat
from recension.core.formats.agreement import StreamFile
from recension.core.formats.decode import Decoder
from recension.core.formats.order import clusters, keys_of


@dataclass(frozen=True, slots=True)
class Chunk:
    """Elements as the files have them; ``origin`` tells file and row where rows of files are mixed."""

    batch: EventBatch
    file: str
    first_row: int
    origin: tuple[Sequence[str], Index, Index] | None = None

    def place(self, row: int) -> tuple[str, int]:
        """The file and the row in it of what was called ``row`` in the chunk."""
        if self.origin is None:
            return self.file, row
        names, files, rows = self.origin
        return names[files[row - self.first_row]], int(rows[row - self.first_row])


def chunks(files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int) -> Iterator[Chunk]:
    """All elements, at most about ``size`` at a time."""
    if not any(file.layout.has_order for file in files):
        for file in files:
            yield from _straight(file, decoder, payload, size)
        return
    for members, is_mixed in clusters(files, size):
        if is_mixed:
            yield from _sorted(members, decoder, payload, size)
        else:
            yield from _straight(members[0], decoder, payload, size)


def _straight(file: StreamFile, decoder: Decoder, payload: pa.Schema, size: int) -> Iterator[Chunk]:
    first_row = 1
    for rows in file.rows.batches(file.wanted(payload), size):
        yield Chunk(decoder.decode(rows, file.layout, file.name, first_row).batch, file.name, first_row)
        first_row += len(rows)


def _sorted(files: Sequence[StreamFile], decoder: Decoder, payload: pa.Schema, size: int) -> Iterator[Chunk]:
    """The rows of several files together, by their numbers."""
    parts: list[EventBatch] = []
    columns: list[tuple[Index, ...]] = []
    for number, file in enumerate(files):
        first_row = 1
        for rows in file.rows.batches(file.wanted(payload), size):
            decoded = decoder.decode(rows, file.layout, file.name, first_row)
            at = np.flatnonzero(decoded.kept)
            batch, seq = keys_of(rows, file.name, first_row)
            parts.append(decoded.batch)
            columns.append((batch[at], seq[at], np.full(len(at), number), at + first_row))
            first_row += len(rows)
    everything = concat(parts)
    batch, seq, number_of, row_of = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((seq, batch))
    names = [file.name for file in files]
    for start in range(0, len(order), size):
        rows_at = order[start : start + size]
        origin = (names, number_of[rows_at], row_of[rows_at])
        yield Chunk(everything.take(rows_at), names[0], 1, origin)
