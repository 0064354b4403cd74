"""Arrow IPC: the file form (random access) and the stream form, told apart by their first bytes.

Arrow's own readers stop at the end mark of a stream, or where the file stops, and unpack a record batch as a
whole, however large it becomes. So the messages of a file are looked at before any of them is unpacked. They
are FlatBuffers: only the few numbers needed are read.
Sources: the Arrow columnar format, "Serialization and Interprocess Communication"; Message.fbs and File.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats.columns import require_readable
from recension.core.formats.files import format_errors, validate_batch
from recension.core.formats.long_texts import LongTexts

LARGEST: Final = 512 << 20
"""What one record batch may be when it is unpacked."""
_MAGIC: Final = b"ARROW1"
# The second is of Arrow before 0.15.
_END_MARKS: Final = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
# Numbers of fields in the FlatBuffers tables of messages and of the footer.
_MESSAGE_HEADER: Final = 2
_DICTIONARY_DATA: Final = 1
_BUFFERS, _COMPRESSION = 2, 3
_FOOTER_BLOCKS: Final = (2, 3)


class ArrowRows:
    """The rows of one Arrow file, mapped into memory rather than read.

    ``data`` is what stands there, if it is at hand: a message, of which ``path`` is the name.
    """

    is_typed = True
    may_lack_columns = False

    def __init__(self, path: Path | str, data: pa.Buffer | None = None) -> None:
        self._path, self._data = path, data
        with format_errors(str(path)), self._bytes() as source:
            self._is_file = source.read(len(_MAGIC)) == _MAGIC
            source.seek(0)
            self._check(source)
        with format_errors(str(path)), self._open() as reader:
            self.schema: pa.Schema = require_readable(reader.schema)

    def batches(self, wanted: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The wanted columns, at most ``size`` rows at a time."""
        texts = LongTexts(wanted.names, str(self._path))
        with format_errors(str(self._path)), self._open() as reader:
            for batch in _record_batches(reader):
                chosen = validate_batch(batch.select(wanted.names))
                for start in range(0, len(chosen), size):
                    yield from texts.slices(chosen.slice(start, size))

    def _check(self, source: pa.NativeFile) -> None:
        try:
            _check_file(source) if self._is_file else _check_stream(source)
        except (struct.error, EOFError):
            raise FormatError(
                "damaged: an offset leads outside of its message", file=str(self._path)
            ) from None

    def _bytes(self) -> Any:
        return pa.memory_map(str(self._path)) if self._data is None else pa.BufferReader(self._data)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with self._bytes() as source:
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


def _check_stream(source: Any) -> None:
    """Refuse a stream that was cut off, that something follows, or that unpacks to too much."""
    while True:
        at = source.tell()
        try:
            message = pa.ipc.read_message(source)
        except EOFError:
            break
        _check_size(message)
    end = source.tell()
    source.seek(at)
    if source.read(end - at) not in _END_MARKS:
        raise pa.ArrowInvalid("cut off: the stream has no end mark")
    if rest := source.size() - end:
        raise pa.ArrowInvalid(
            f"{rest:,} bytes after the end of the stream; are these several streams in one?"
        )


def _check_file(source: Any) -> None:
    """Refuse a file of which a record batch unpacks to too much."""
    for at in _block_offsets(source):
        source.seek(at)
        _check_size(pa.ipc.read_message(source))


def _block_offsets(source: Any) -> Iterator[int]:
    """Where the record batches and dictionaries of the file form are, by its footer."""
    tail = struct.calcsize("<i") + len(_MAGIC)
    source.seek(max(0, source.size() - tail))
    (length,) = struct.unpack_from("<i", source.read(tail))
    if not 0 < length <= source.size() - tail:
        raise pa.ArrowInvalid("cut off: the file has no footer")
    source.seek(source.size() - tail - length)
    footer = source.read(length)
    for blocks in _FOOTER_BLOCKS:
        for at in _items(footer, _field(footer, _root(footer), blocks), 24):
            yield struct.unpack_from("<q", footer, at)[0]


def _check_size(message: Any) -> None:
    if message.type not in ("record batch", "dictionary") or message.body is None:
        return
    size = _unpacked_size(message)
    if size > LARGEST:
        raise pa.ArrowInvalid(
            f"a record batch of {size:,} bytes when unpacked; at most {LARGEST >> 20} MiB can be read: "
            "write smaller batches"
        )


def _unpacked_size(message: Any) -> int:
    """What the buffers of a message will take; 0 if they are not packed, and so no larger than the file."""
    data = message.metadata.to_pybytes()
    header = _target(data, _field(data, _root(data), _MESSAGE_HEADER))
    if message.type == "dictionary":
        header = _target(data, _field(data, header, _DICTIONARY_DATA))
    if not _field(data, header, _COMPRESSION):
        return 0
    total = 0
    for at in _items(data, _field(data, header, _BUFFERS), 16):
        offset, length = struct.unpack_from("<qq", data, at)
        if length >= 8 and 0 <= offset <= message.body.size - 8:
            # The size when unpacked, or -1 for a buffer that is not packed.
            (size,) = struct.unpack("<q", message.body.slice(offset, 8).to_pybytes())
            total += max(size, 0)
    return total


def _root(data: bytes) -> int:
    return _target(data, 0)


def _target(data: bytes, at: int) -> int:
    """Where an offset leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a table has a field; 0 if it has none."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, fields)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, fields + at)[0] if at < size else 0
    return table + int(offset) if offset else 0


def _items(data: bytes, at: int, width: int) -> range:
    """Where the items of a vector are."""
    if not at:
        return range(0)
    start = _target(data, at)
    (number,) = struct.unpack_from("<I", data, start)
    if start + 4 + number * width > len(data):
        raise pa.ArrowInvalid("damaged: a list is longer than what holds it")
    return range(start + 4, start + 4 + number * width, width)
