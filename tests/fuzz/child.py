"""What is done to each file in a process of its own: the commands, two readings, and one rewriting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import typer
from tests.fuzz.serving import serve

from recension.cli.root import BAD_INPUT
from recension.cli.streams import check, diff, history
from recension.core.difference import difference
from recension.core.errors import RecensionError
from recension.core.formats import open_stream, read_history, write_history
from recension.core.history import History
from recension.core.reconstitution import reconstitute


def read(path: Path) -> str:
    """Is a file accepted or refused? Whatever else happens is a failure."""
    codes = [_code(command, path) for command in (check, history)]
    try:
        result = _history(path)
    except RecensionError:
        assert 0 not in codes, f"the commands accept it ({codes}), the reader does not"
        return "refused"
    assert codes == [0, 0], f"the reader accepts it, the commands do not ({codes})"
    if path.stat().st_size % 4 == 0:
        assert _code(lambda file: diff(file, file), path) == 0, "it differs from itself"
    assert not difference(result, _history(path)), "a second reading gives another history"
    _rewrite(path, result)
    return "accepted"


def _code(command: Callable[[Path], None], path: Path) -> int:
    """How a command ends. To build the command line for each file would take far longer than to run it."""
    try:
        with redirect_stdout(TextIOWrapper(BytesIO())), redirect_stderr(StringIO()):
            command(path)
    except typer.Exit as end:
        return end.exit_code
    except RecensionError:
        return BAD_INPUT
    return 0


def _history(path: Path) -> History:
    reader = open_stream(path)
    return replace(reconstitute(reader, reader.schema), time_type=reader.time_type)


def _rewrite(path: Path, result: History) -> None:
    """Written in its own format and read in its own types it must be the same."""
    reader = open_stream(path)
    copy = path.with_name(f"copy-{path.name}")
    try:
        write_history(copy, result, reader.time_type)
    except RecensionError:
        return
    again = read_history(copy, schema=reader.schema)
    found = difference(again, result)
    assert not found, f"rewritten it is another history: {found}"


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]), read)
