"""Parquet: rows read a few pages at a time, never a whole file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recension.core.batch import Index
from recension.core.errors import FormatError
from recension.core.formats.columns import KIND, TIMES, require_readable
from recension.core.formats.files import format_errors, require_seal, require_size, validate_batch
from recension.core.formats.long_texts import DECODED, TEXTS, LongTexts, longest_text

_ROW_GROUP: Final = 1 << 18


class ParquetRows:
    """The rows of one Parquet file, without the deleted ones (numbered from 0, ascending).

    A sealed file is looked at whole when its rows are first asked for.
    """

    is_typed = True
    may_lack_columns = False

    def __init__(
        self, path: Path, without: Index | None = None, seal: str = "", rows: int | None = None
    ) -> None:
        self._path, self._without, self._seal = path, without, seal
        require_size(path, seal)
        with format_errors(str(path)), self._open([]) as file:
            self.schema: pa.Schema = require_readable(file.schema_arrow)
            groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
        # The place of the first row of every row group; at the end, how many rows there are.
        self._groups: Index = np.cumsum([0, *groups], dtype=np.int64)
        if rows is not None and self._groups[-1] != rows:
            there = self._groups[-1]
            raise FormatError(f"{there:,} rows, where the manifest says {rows:,}", file=str(path))

    @property
    def count(self) -> int | None:
        """How many rows there are; None if some are deleted."""
        return int(self._groups[-1]) if self._without is None else None

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, ``size`` rows at a time."""
        texts = LongTexts(wanted.names, str(self._path))
        with self._read(wanted, size) as file:
            batches = map(validate_batch, file.iter_batches(size, columns=wanted.names, use_threads=False))
            kept = batches if self._without is None else _without_rows(batches, self._without)
            yield from (part for batch in kept for part in texts.slices(batch))

    def batches_with(self, wanted: pa.Schema, size: int, rows: Index) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Those batches that have one of some rows (from 0, ascending), and where each begins.

        Row groups without any of them are not read. No row may be deleted.
        """
        groups = np.unique(np.searchsorted(self._groups, rows, "right") - 1)
        texts = LongTexts(wanted.names, str(self._path))
        with self._read(wanted, size) as file:
            for group in groups.tolist():
                first = int(self._groups[group])
                for batch in file.iter_batches(size, [group], columns=wanted.names, use_threads=False):
                    low, high = np.searchsorted(rows, (first, first + len(batch)))
                    if low < high:
                        at = first
                        for part in texts.slices(validate_batch(batch)):
                            yield at, part
                            at += len(part)
                    first += len(batch)

    @contextmanager
    def _read(self, wanted: pa.Schema, size: int) -> Iterator[Any]:
        # Few kinds, many rows: as a dictionary they cost a byte of decoding instead of a string each.
        few = [KIND] if KIND in wanted.names else []
        require_seal(self._path, self._seal)
        self._seal = ""
        with format_errors(str(self._path)):
            texts = [field.name for field in wanted if field.type in TEXTS and field.name not in few]
            long = self._long_texts(texts, size)
            with self._open([*few, *long]) as file:
                yield file

    def _long_texts(self, names: list[str], size: int) -> list[str]:
        """Columns with so long a text in a dictionary that it might not fit into as many rows at once."""
        if not names:
            return []
        found = set[str]()
        with self._open(names) as file:
            # A batch goes on from one row group into the next.
            most = DECODED // max(1, min(size, file.metadata.num_rows))
            stored = {file.metadata.schema.column(at).path: at for at in range(len(file.metadata.schema))}
            for group in range(file.num_row_groups):
                content = file.metadata.row_group(group)
                for name in (name for name in names if name in stored and name not in found):
                    chunk = content.column(stored[name])
                    if chunk.has_dictionary_page and chunk.total_uncompressed_size > most:
                        (first,) = islice(file.iter_batches(1, [group], columns=[name], use_threads=False), 1)
                        if longest_text(first.column(0)) > most:
                            found.add(name)
        return [name for name in names if name in found]

    def _open(self, dictionaries: list[str]) -> Any:
        # Spark's old timestamps (INT96) would else become nanoseconds, which end in the year 2262.
        return pq.ParquetFile(
            self._path,
            read_dictionary=dictionaries,
            memory_map=True,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )


def _without_rows(batches: Iterator[pa.RecordBatch], without: Index) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        keep = np.ones(len(batch), np.bool_)
        low, high = np.searchsorted(without, (first, first + len(batch)))
        keep[without[low:high] - first] = False
        first += len(batch)
        yield batch.filter(pa.array(keep))


class ParquetSink:
    """Writes batches into row groups of a readable size, however small the batches are.

    Times mostly grow: as differences they take a few bits each. LZ4 unpacks in half of Snappy's time.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="lz4",
            use_dictionary=[name for name in schema.names if name not in TIMES],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in TIMES if name in schema.names},
            write_page_checksum=True,
        )
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._held.append(batch)
        self._rows += len(batch)
        if self._rows >= _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is held back, and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held, self._rows = [], 0
