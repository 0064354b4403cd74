"""Query files in Python, which the user chose to run."""

from __future__ import annotations

import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from recension.core.errors import RecensionError


def read_python(file: Path) -> dict[str, Any]:
    """What a file defines by name. It is executed: it is code, not data.

    Like a script it can import modules from its folder, but none hides an installed one. What it prints goes
    to standard error, since standard output is for results.
    """
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with redirect_stdout(sys.stderr):
            return runpy.run_path(str(file))
    except KeyboardInterrupt:
        raise
    except RecensionError as why:
        raise RecensionError(f"{_line_of(file, why)}: {why}") from None
    except SystemExit as why:
        raise RecensionError(
            f"{_line_of(file, why)}: the query file ended the program (exit {why.code})"
        ) from None
    except BaseException as why:
        raise RecensionError(f"{_line_of(file, why)}: {type(why).__name__}: {why}") from None


def _line_of(file: Path, why: BaseException) -> str:
    """The line of the query file that led to the error."""
    if isinstance(why, SyntaxError) and why.filename == str(file):
        return f"{file}, line {why.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if frame.filename == str(file)]
    return f"{file}, line {lines[-1]}" if lines else str(file)
