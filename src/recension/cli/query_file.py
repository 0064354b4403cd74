"""Query files: Python that the user chose to run, which defines a stream."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path

from recension.api.stream import Stream
from recension.core.errors import RecensionError


def load_query(given: str) -> Stream:
    """The stream that ``QUERY.py`` defines as ``query``, or ``QUERY.py:name`` as ``name``.

    The file is executed: it is code, not data.
    """
    file, name = _split(given)
    if not file.is_file():
        raise RecensionError(f"{file}: no such query file")
    try:
        found = runpy.run_path(str(file)).get(name)
    except RecensionError as why:
        raise RecensionError(f"{_place(file, why)}: {why}") from None
    except Exception as why:
        raise RecensionError(f"{_place(file, why)}: {type(why).__name__}: {why}") from None
    if not isinstance(found, Stream):
        what = "is not defined" if found is None else f"is a {type(found).__name__}, not a stream"
        raise RecensionError(f"{file}: {name} {what}")
    return found


def _split(given: str) -> tuple[Path, str]:
    file, colon, name = given.rpartition(":")
    return (Path(file), name) if colon and name.isidentifier() else (Path(given), "query")


def _place(file: Path, why: BaseException) -> str:
    """The line of the query file that led to the error."""
    if isinstance(why, SyntaxError):
        return f"{file}, line {why.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if frame.filename == str(file)]
    return f"{file}, line {lines[-1]}" if lines else str(file)
