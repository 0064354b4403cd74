"""Files that survive a kill: complete and on the disk before anyone can see them.

The file system must be able to rename and lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recension.core.errors import RecensionError


def publish(partial: Path, path: Path) -> None:
    """Give a complete file its name, at once and for good."""
    os.replace(partial, path)
    sync_folder(path.parent)


def publish_bytes(path: Path, content: bytes) -> None:
    """Write a file that is either there as a whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    sync_file(partial)
    publish(partial, path)


def publish_text(path: Path, text: str) -> None:
    """The same for text."""
    publish_bytes(path, text.encode())


def sync_folder(path: Path) -> None:
    """Make the names in a folder safe."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the bytes of a file safe."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def hold_lock(folder: Path, refusal: str) -> Iterator[None]:
    """Keep a second writer out, in this process or another; a killed one leaves no lock behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecensionError(refusal) from None
        yield
