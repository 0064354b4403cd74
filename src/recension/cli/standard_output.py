"""Standard output as a file for results: always UTF-8, written at once, and named in errors."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StandardOutput(io.BufferedIOBase):
    """A file that may be closed while others still write to standard output."""

    name = "standard output"

    def __init__(self) -> None:
        with _named():
            # What was printed before comes first.
            sys.stdout.flush()
        self._file = sys.stdout.buffer

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        # At once: a reader such as `head` waits for the first lines, not for the last.
        with _named():
            written = self._file.write(data)
            self._file.flush()
        return written


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as why:
        raise OSError(why.errno, why.strerror, StandardOutput.name) from None
