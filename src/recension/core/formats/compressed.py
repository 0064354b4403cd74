"""Text files as they are, or packed by gzip: read as a stream, whatever they unpack to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa

GZIP: Final = ".gz"
_AT_ONCE: Final = 1 << 20


def is_packed(path: Path) -> bool:
    """Does the file's name say that it is packed?"""
    return path.suffix.lower() == GZIP


def created(path: Path) -> Any:
    """A new file for bytes, packed if its name says so."""
    if not is_packed(path):
        return path.open("wb")
    return pa.output_stream(str(path), compression="gzip")


def opened(path: Path) -> Any:
    """The unpacked bytes of a file, to be read from start to end."""
    if not is_packed(path):
        return path.open("rb")
    return pa.input_stream(str(path), compression="gzip", buffer_size=_AT_ONCE)
