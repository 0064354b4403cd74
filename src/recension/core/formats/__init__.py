"""Streams and histories in files: Parquet, JSON Lines, CSV, Arrow, in one layout (docs/guide/formats.md).

What reads streams also judges them, so it is above, in `recension.gate.files`; it can be had from here too.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from recension.core.formats.reader import BATCH_SIZE
from recension.core.formats.writer import write_history, write_stream

_ABOVE = ("StreamReader", "open_stream", "read_bitemporal", "read_history")
__all__ = ["BATCH_SIZE", *_ABOVE, "write_history", "write_stream"]


def __getattr__(name: str) -> _Any:
    if name not in _ABOVE:
        raise AttributeError(f"recension.core.formats has no {name!r}")
    return getattr(_import_module("recension.gate.files"), name)
