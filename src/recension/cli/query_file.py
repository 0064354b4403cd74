"""Query files, which define streams: read by the front end of their language; and ``recension explain``.

A file is Python, unless a front end says that it reads files of that kind (`FRONT_ENDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from recension.api.stream import Stream
from recension.cli.python_file import read_python
from recension.cli.root import app
from recension.core.errors import RecensionError, suggest_name

_NAME: Final = "query"
FRONT_ENDS: Final[dict[str, Callable[[Path], Mapping[str, Any]]]] = {".py": read_python}
"""By the end of a file's name, what reads it: gives what the file defines, by name."""


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

    The front end for files of that kind reads it; other files are Python.
    """
    file, name = split_query(given)
    if not file.is_file():
        raise RecensionError(f"{file}: is a directory" if file.is_dir() else f"{file}: no such query file")
    defined = FRONT_ENDS.get(file.suffix, read_python)(file)
    if name not in defined:
        raise RecensionError(f"{file}: {name} is not defined{_hint(file, name, defined)}")
    found = defined[name]
    if not isinstance(found, Stream):
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise RecensionError(f"{file}: {name} is {kind}, not a stream{_hint(file, name, defined)}")
    return found


def _hint(file: Path, name: str, defined: Mapping[str, Any]) -> str:
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
