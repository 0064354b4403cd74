"""Long texts in dictionaries: a file of some kilobytes may stand for gigabytes of text.

A value of a dictionary may stand in every row, and elements have their texts without dictionaries. So rows
are cut into small parts where their texts take much room, and refused where no memory would hold what is made
of them: what is remembered of elements, and every result, has the texts as often as the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.errors import FormatError

TEXTS: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
# So many bytes of text a batch may have without its dictionaries; one that has more is cut into small parts,
# since some of them are together in memory.
DECODED: Final = 1 << 26
_PART: Final = 1 << 22
# So much more than its dictionaries a file may have, and so much for each row: texts of a usual length pass
# however many rows there are, and however they are cut into batches.
_AT_LEAST: Final = 1 << 28
_PER_ROW: Final = 1 << 13


class LongTexts:
    """Cuts the rows of one file or table, batch by batch, and refuses those whose texts are too much."""

    def __init__(self, names: Collection[str], file: str) -> None:
        """``names`` are the columns that are read of ``file``."""
        self._names, self._file = names, file
        self._rows = self._repeated = 0

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch, or slices of it, whose texts do not take much more room than a batch has."""
        sizes = {name: size for name in self._names if (size := _decoded_sizes(batch, name)) is not None}
        self._count(batch, sizes)
        ends = np.cumsum(np.sum(list(sizes.values()), axis=0)) if sizes else np.zeros(0, np.int64)
        if not len(ends) or ends[-1] <= DECODED:
            yield batch
            return
        start = 0
        while start < len(batch):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _PART, "right")))
            yield batch.slice(start, stop - start)
            start = stop

    def _count(self, batch: pa.RecordBatch, sizes: dict[str, Any]) -> None:
        self._rows += len(batch)
        for name, size in sizes.items():
            # What the dictionary has is in the file: only that it stands in many rows is counted.
            self._repeated += max(0, int(size.sum()) - batch.column(name).dictionary.nbytes)
        if self._repeated > _AT_LEAST + _PER_ROW * self._rows:
            name = max(sizes, key=lambda name: int(sizes[name].sum()))
            raise FormatError(
                f"column {name}: {self._rows:,} rows repeat the long texts of a dictionary and take "
                f"{self._repeated / 1e9:,.1f} GB: keep each text once, in a table of its own, and in the "
                "rows a short key",
                file=self._file,
            )


def longest_text(column: pa.DictionaryArray) -> int:
    """The bytes of the longest text in its dictionary."""
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def _decoded_sizes(batch: pa.RecordBatch, name: str) -> Any:
    """How many bytes the text of each row takes without its dictionary; None if that is not one of texts."""
    column = batch.column(name) if name in batch.schema.names else None
    if column is None or not pa.types.is_dictionary(column.type) or column.type.value_type not in TEXTS:
        return None
    if not len(column.dictionary):
        return None
    sizes = pc.binary_length(column.dictionary).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes[column.indices.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)]
