"""The folder of a service: a snapshot of its session, and a log of what came and went since.

    state-12    the session after batch 12, with how far each topic was read
    log-12      batches 13, 14, …: the offsets of each with a digest of what was there, its time, and every
                message that it sends

A batch is written to the log, and is on the disk, before its messages are sent. So after a kill the same
messages come in by the same batches, and the very messages that may have been sent are sent again: readers
know them by their numbers. What was still being written when the process died was not sent.

The last two snapshots are kept. A log begins with its snapshot and goes on until the next one.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.formats.files import format_errors
from recension.operators.base import Chunks
from recension.runners.durable_files import hold_lock, publish_bytes, sync_folder

TopicPartition: TypeAlias = tuple[str, int]
Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""Per partition of a topic the first offset, and the one after the last."""
Contents: TypeAlias = Mapping[TopicPartition, tuple[int, str]]
"""Per partition of a topic how many messages were there, and a digest of them."""

HEADERS: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
MESSAGES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("seq", pa.int64()),
        ("headers", HEADERS),
    ]
)
_STATE: Final = "state-"
_LOG: Final = "log-"
_FRAME: Final = struct.Struct(">Q16s")
_KEPT: Final = 2
_FACTS: Final = b"batch"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch: what came, when, and what it sends. ``delivered`` is the last batch that surely arrived.

    ``contents`` says what the messages of each range were; a record of an earlier version has none.
    """

    number: int
    now: int
    ranges: Ranges
    delivered: int
    messages: pa.Table = field(default_factory=MESSAGES.empty_table)
    contents: Contents = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As an Arrow stream, whose schema carries the rest."""
        ranges = [[topic, partition, *ends] for (topic, partition), ends in self.ranges.items()]
        contents = [[topic, partition, *one] for (topic, partition), one in self.contents.items()]
        facts = {
            "number": self.number,
            "now": self.now,
            "ranges": ranges,
            "delivered": self.delivered,
            "contents": contents,
        }
        table = self.messages.replace_schema_metadata({_FACTS: json.dumps(facts)})
        return _to_stream(table)

    @staticmethod
    def from_bytes(data: bytes) -> BatchRecord:
        """What `to_bytes` gave."""
        table = _from_stream(data)
        facts = json.loads(table.schema.metadata[_FACTS])
        ranges = {(topic, partition): (first, end) for topic, partition, first, end in facts["ranges"]}
        contents = {
            (topic, partition): (n, digest) for topic, partition, n, digest in facts.get("contents", ())
        }
        return BatchRecord(facts["number"], facts["now"], ranges, facts["delivered"], table, contents)


class Journal:
    """The folder, which one process at a time may have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = ExitStack()
        self._log: BinaryIO | None = None
        self._base = 0
        with format_errors(str(folder)):
            refusal = f"{folder}: another service works there; each needs a folder of its own"
            self._held.enter_context(hold_lock(folder, refusal))

    def close(self) -> None:
        """Let go of the folder."""
        self._close_log()
        self._held.close()

    def load_state(self) -> dict[str, pa.Table] | None:
        """The tables of the newest snapshot; None if there is none yet."""
        numbers = self._numbers(_STATE)
        if not numbers:
            return None
        self._base = numbers[-1]
        path = self.folder / f"{_STATE}{self._base}"
        frames, rest = _read_frames(path)
        if len(frames) != 1 or rest:
            earlier = f"; remove it to go on from {_STATE}{numbers[-2]}" if len(numbers) > 1 else ""
            raise RecensionError(f"{path} is damaged{earlier}")
        stored = _from_stream(frames[0])
        names, tables = stored["name"].to_pylist(), stored["table"].to_pylist()
        return {name: _from_stream(table) for name, table in zip(names, tables, strict=True)}

    def save_state(self, number: int, chunks: Chunks) -> None:
        """Keep a snapshot taken after batch ``number``; what came before is no longer needed."""
        tables = pa.array([_to_stream(table) for table in chunks.values()], pa.large_binary())
        stored = _to_stream(pa.table({"name": pa.array(list(chunks), pa.string()), "table": tables}))
        with format_errors(str(self.folder)):
            publish_bytes(self.folder / f"{_STATE}{number}", _to_frame(stored))
            self._close_log()
            self._base = number
            oldest = self._numbers(_STATE)[-_KEPT:][0]
            for kind in (_STATE, _LOG):
                for old in self._numbers(kind):
                    if old < oldest:
                        (self.folder / f"{kind}{old}").unlink()

    def read_log(self) -> Iterator[BatchRecord]:
        """The batches since the newest snapshot. One that was not written to its end is cut off."""
        for number in self._numbers(_LOG):
            if number < self._base:
                continue
            path = self.folder / f"{_LOG}{number}"
            frames, rest = _read_frames(path)
            if rest:
                with format_errors(str(path)), path.open("r+b") as file:
                    file.truncate(path.stat().st_size - rest)
                    os.fsync(file.fileno())
            for frame in frames:
                yield BatchRecord.from_bytes(frame)

    def append(self, record: BatchRecord) -> None:
        """Write a batch to the log; it is on the disk when this returns."""
        with format_errors(str(self.folder)):
            if self._log is None:
                last = max([self._base, *self._numbers(_LOG)])
                self._log = (self.folder / f"{_LOG}{last}").open("ab")
                sync_folder(self.folder)
            self._log.write(_to_frame(record.to_bytes()))
            self._log.flush()
            os.fsync(self._log.fileno())

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _numbers(self, kind: str) -> list[int]:
        """Of the snapshots or logs that are there, in order."""
        names = (file.name.removeprefix(kind) for file in self.folder.glob(f"{kind}*"))
        return sorted(int(name) for name in names if name.isdigit())


def _to_frame(content: bytes) -> bytes:
    return _FRAME.pack(len(content), _digest(content)) + content


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _read_frames(path: Path) -> tuple[list[bytes], int]:
    """The contents of a file, and how many bytes at its end were not written as a whole."""
    with format_errors(str(path)):
        data = path.read_bytes()
    frames, at = list[bytes](), 0
    while at + _FRAME.size <= len(data):
        size, digest = _FRAME.unpack_from(data, at)
        content = data[at + _FRAME.size : at + _FRAME.size + size]
        if len(content) < size or _digest(content) != digest:
            if at + _FRAME.size + size < len(data):
                raise RecensionError(f"{path} is damaged at byte {at}: restore the folder from a backup")
            break
        frames.append(content)
        at += _FRAME.size + size
    return frames, len(data) - at


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_stream(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
