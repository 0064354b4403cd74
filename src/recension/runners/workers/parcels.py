"""Messages between a session and its own workers: small ones in a pipe, what they carry in shared memory.

A file in memory, without a name, is open on both sides since before the fork. The sender writes a message
there, and the receiver copies it: so nobody keeps what the next message overwrites. Events and tables cross
as Arrow streams, everything else by pickle; only processes that this one has forked can write there.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch
from recension.runners.exchange.packets import as_rows, from_buffer

_ALIGNED: Final = 64
# The most that one call of the system copies.
_MOST: Final = 1 << 30
# So much memory stays with a place, whatever its messages need.
_KEPT: Final = 1 << 26

# From where to where in the file; a message itself is after its columns.
Extent: TypeAlias = tuple[int, int]


class Parcel:
    """A place in memory for one message at a time."""

    def __init__(self) -> None:
        self._file = _open_nameless()
        self._map: mmap.mmap | None = None

    def write(self, message: Any) -> Extent:
        """Put a message there; gives where it is."""
        with open(self._file, "r+b", buffering=0, closefd=False) as file:
            file.seek(0)
            head = io.BytesIO()
            _Writer(head, file).dump(message)
            start = file.tell()
            _write_all(file, head.getbuffer())
            end = file.tell()
        # What one large message took is not kept for the small ones that follow.
        if os.fstat(self._file).st_size > max(_KEPT, 4 * end):
            os.ftruncate(self._file, end)
        return start, end

    def read(self, extent: Extent, *, is_borrowed: bool = False) -> Any:
        """The message; one that is borrowed is overwritten later, and must not be kept."""
        start, end = extent
        content = self._mapped(end) if is_borrowed else memoryview(b"".join(self._copy(end)))
        return _Reader(io.BytesIO(content[start:end]), content).load()

    def _mapped(self, end: int) -> memoryview:
        if self._map is None or len(self._map) < end:
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def _copy(self, end: int) -> Iterator[bytes]:
        at = 0
        while at < end:
            part = os.pread(self._file, min(_MOST, end - at), at)
            yield part
            at += len(part)

    def close(self) -> None:
        """Give the memory back; the other side has it until it closes it too."""
        os.close(self._file)


def _write_all(file: io.FileIO, content: memoryview) -> None:
    while len(content):
        content = content[file.write(content[:_MOST]) :]


class _Sink:
    """A file that Arrow may write to, and not close."""

    closed = False

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def write(self, content: Any) -> None:
        _write_all(self._file, memoryview(content))

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _Writer(pickle.Pickler):
    """Writes a message, and its columns straight to the file: only the rows that are meant."""

    def __init__(self, head: io.BytesIO, file: io.FileIO) -> None:
        super().__init__(head, protocol=5)
        self._file = file

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, EventBatch):
            return "events", self._put(as_rows(obj, {})), obj.schema
        if isinstance(obj, pa.Table):
            return "table", self._put(obj), None
        if isinstance(obj, np.ndarray):
            start = self._align()
            _write_all(self._file, np.ascontiguousarray(obj).data.cast("B"))
            return "array", (start, self._file.tell()), obj.dtype
        return None

    def _put(self, rows: pa.RecordBatch | pa.Table) -> Extent:
        start = self._align()
        sink = pa.PythonFile(_Sink(self._file), "w")
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write(rows)
        return start, self._file.tell()

    def _align(self) -> int:
        """Arrow reads aligned values faster."""
        return self._file.seek(-(-self._file.tell() // _ALIGNED) * _ALIGNED)


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` wrote."""

    def __init__(self, head: io.BytesIO, content: memoryview) -> None:
        super().__init__(head)
        self._content = content

    def persistent_load(self, pid: Any) -> Any:
        form, (start, end), kind = pid
        own = self._content[start:end]
        if form == "array":
            return np.frombuffer(own, kind)
        if form == "events":
            return from_buffer(pa.py_buffer(own), kind).events
        return pa.ipc.open_stream(pa.py_buffer(own)).read_all()


def _open_nameless() -> int:
    """A file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("recension")
    file, path = tempfile.mkstemp(prefix="recension-")
    os.unlink(path)
    return file
