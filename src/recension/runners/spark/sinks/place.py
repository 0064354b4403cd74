"""Where tables may be: directories of a file system that can rename and lock."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from urllib.parse import unquote, urlparse

from recension.core.errors import RecensionError


def local_path(path: str | PathLike[str]) -> Path:
    """The directory that a path or a ``file:`` address names."""
    text = fspath(path)
    named = urlparse(text)
    if not named.scheme:
        return Path(text).absolute()
    if named.scheme == "file" and named.netloc in ("", "localhost"):
        return Path(unquote(named.path))
    raise RecensionError(
        f"{text}: tables are kept in directories (a path or file:/...), since a commit is an atomic rename; "
        f"write the stream with .writeStream to {named.scheme}: instead"
    )


def address(path: str | PathLike[str]) -> str:
    """A path that Spark takes as Python does: Spark has a working directory of its own."""
    text = fspath(path)
    return text if urlparse(text).scheme else Path(text).absolute().as_uri()
