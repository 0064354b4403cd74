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


def is_local(path: str | PathLike[str]) -> bool:
    """Is it in a file system that Python sees as well?"""
    return urlparse(fspath(path)).scheme in ("", "file")


def address(path: str | PathLike[str]) -> str:
    """A path that Spark takes as Python does: it has a working directory of its own, and decodes nothing."""
    return f"file:{local_path(path)}" if is_local(path) else fspath(path)


def pattern(path: Path) -> str:
    """The same where Spark takes a path for a pattern."""
    return "file:" + "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in str(path))
