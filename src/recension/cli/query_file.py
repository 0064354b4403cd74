"""Query files: Python that the user chose to run, which defines a stream; and ``recension explain``."""

from __future__ import annotations

import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from recension.api.stream import Stream
from recension.cli.root import app
from recension.core.errors import RecensionError, suggest_name

_NAME: Final = "query"


@app.command()
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY.py[:name]", help="A file that defines a stream.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """The plan of a query as it will run: columns, known properties, chosen variants, fragments on Spark."""
    stream = load_query(query)
    if as_json:
        print(stream.explain("json"), end="")
        return
    print(stream.explain(), "On Spark, as a stream:", stream.fragments(), sep="\n", end="")


def load_query(given: str) -> Stream:
    """The stream that ``QUERY.py`` defines as ``query``, or ``QUERY.py:name`` as ``name``.

    The file is executed: it is code, not data. What it prints goes to standard error, since standard output
    is for results.
    """
    file, name = split_query(given)
    if not file.is_file():
        raise RecensionError(f"{file}: is a directory" if file.is_dir() else f"{file}: no such query file")
    defined = _execute(file)
    if name not in defined:
        raise RecensionError(f"{file}: {name} is not defined{_hint(file, name, defined)}")
    found = defined[name]
    if not isinstance(found, Stream):
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise RecensionError(f"{file}: {name} is {kind}, not a stream{_hint(file, name, defined)}")
    return found


def _execute(file: Path) -> dict[str, Any]:
    """Run the file. Like a script it can import modules from its folder, but none hides an installed one."""
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


def _hint(file: Path, name: str, defined: dict[str, Any]) -> str:
    """The names of the streams in the file, or the nearest name."""
    streams = [other for other, value in defined.items() if isinstance(value, Stream)]
    if not streams:
        return "; a query file defines one, as in query = rc.source(...)"
    others = f"; the streams in it are {', '.join(streams)}: name one as {file}:{streams[-1]}"
    return suggest_name(name, streams) or others


def split_query(given: str) -> tuple[Path, str]:
    """The file and the name of the stream in it."""
    file, colon, name = given.rpartition(":")
    if not colon or Path(given).is_file():
        return Path(given), _NAME
    if not name.isidentifier() and Path(file).is_file():
        raise RecensionError(f"{given}: {name!r} is not the name of a stream; write {file}:{_NAME}")
    return (Path(file), name) if name.isidentifier() else (Path(given), _NAME)


def _line_of(file: Path, why: BaseException) -> str:
    """The line of the query file that led to the error."""
    if isinstance(why, SyntaxError) and why.filename == str(file):
        return f"{file}, line {why.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if frame.filename == str(file)]
    return f"{file}, line {lines[-1]}" if lines else str(file)
