"""Where tables may be: directories of a file system that can rename and lock."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from urllib.parse import unquote, urlparse

from recension.core.errors import RecensionError


def local_path(path: str | PathLike[str]) -> Path:
    """The directory that a path or a ``file:`` address names."""
    text = fspath(path)
    address = urlparse(text)
    if not address.scheme:
        return Path(text).absolute()
    if address.scheme == "file" and address.netloc in ("", "localhost"):
        return Path(unquote(address.path))
    raise RecensionError(
        f"{text}: tables are kept in directories (a path or file:/...), since a commit is an atomic rename; "
        f"write the stream with .writeStream to {address.scheme}: instead"
    )
