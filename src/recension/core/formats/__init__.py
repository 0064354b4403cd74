"""Streams and histories in files: Parquet, JSON Lines, CSV, Arrow, in one layout (docs/guide/formats.md)."""

from recension.core.formats.reader import (
    BATCH_SIZE,
    StreamReader,
    open_stream,
    read_bitemporal,
    read_history,
)
from recension.core.formats.writer import write_history, write_stream

__all__ = [
    "BATCH_SIZE",
    "StreamReader",
    "open_stream",
    "read_bitemporal",
    "read_history",
    "write_history",
    "write_stream",
]
