"""Arrow IPC: the file form (random access) and the stream form, told apart by their first bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats.arrow_messages import check_file, check_stream
from recension.core.formats.columns import readable
from recension.core.formats.place import reading
from recension.core.formats.validation import validated

_MAGIC: Final = b"ARROW1"


class ArrowRows:
    """The rows of one Arrow file, mapped into memory rather than read."""

    is_typed = True
    may_lack_columns = False

    def __init__(self, path: Path) -> None:
        self._path = path
        with reading(str(path)), path.open("rb") as file:
            self._is_file = file.read(len(_MAGIC)) == _MAGIC
        with reading(str(path)), pa.memory_map(str(path)) as source:
            self._check(source)
        with reading(str(path)), self._opened() as reader:
            self.schema: pa.Schema = readable(reader.schema)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""
        with reading(str(self._path)), self._opened() as reader:
            for batch in _record_batches(reader):
                chosen = validated(batch.select(wanted.names))
                for start in range(0, len(chosen), size):
                    yield chosen.slice(start, size)

    def _check(self, source: pa.MemoryMappedFile) -> None:
        try:
            check_file(source) if self._is_file else check_stream(source)
        except (struct.error, EOFError):
            raise FormatError(
                "damaged: an offset leads outside of its message", file=str(self._path)
            ) from None

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with pa.memory_map(str(self._path)) as source:
            open_form = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
            with open_form(source) as reader:
                yield reader


def _record_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        yield from reader


class ArrowSink:
    """Writes the file form; the stream form for the extension ``.arrows`` and to files that are open."""

    def __init__(self, path: Path, schema: pa.Schema, file: BufferedIOBase | None = None) -> None:
        new_form = pa.ipc.new_stream if file or path.suffix == ".arrows" else pa.ipc.new_file
        self._writer = new_form(file or str(path), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
