"""``recension why``: why an answer of a query over files is what it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from recension.cli.inputs import open_inputs, parse_inputs, refuse_versions
from recension.cli.progress import show_progress
from recension.cli.query_file import load_query
from recension.cli.root import app
from recension.core.errors import RecensionError, suggest_name
from recension.core.formats.reader import BATCH_SIZE
from recension.core.ticks import instant

if TYPE_CHECKING:
    from recension.runners.result import Result


@app.command()
def why(
    query: Annotated[str, typer.Argument(metavar="QUERY.py[:name]", help="A file that defines a stream.")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=PATH",
            help="A source of the query and its stream, or a recording that has it; once for each.",
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="COLUMN=VALUE",
            help="A column of the answer; once for each. null is null.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="A time at which the answer is true."),
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close every input at its end.")] = False,
    biography: Annotated[
        bool, typer.Option("--biography/--no-biography", help="Also show how the answer came about.")
    ] = True,
    marks: Annotated[
        bool,
        typer.Option("--marks/--no-marks", help="Find out which events are needed."),
    ] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Elements per batch.")] = BATCH_SIZE,
) -> None:
    """Why an answer of a query is what it is: the input events it rests on, and how it came about.

    The answer is named by values of its columns and a time at which it is true. Events are marked as needed
    (without it the answer would be different) or shared (one of several reasons).
    """
    # The engine is loaded when it is used.
    from recension.lineage import explain_answer
    from recension.runners.local import Session
    from recension.runners.recording import is_recording

    if not where and at is None:
        raise RecensionError("say which answer, as in --where site=Oslo --at 9")
    paths, plan = parse_inputs(inputs), load_query(query).plan
    refuse_versions(paths, plan)
    wanted, moment = _parse_where(where or (), plan.schema), None if at is None else _parse_time(at)
    unchecked = Session({"query": plan}, history_limit=0).unchecked_sources
    recorded = {name: _recorded(name, path) for name, path in paths.items() if is_recording(path)}
    files = {name: path for name, path in paths.items() if name not in recorded}
    readers = open_inputs(files, plan, unchecked, batch_size, elsewhere=recorded)
    with show_progress("why") as meter:
        meter.say("following the answer to the inputs")
        found = explain_answer(
            plan,
            readers | recorded,
            wanted,
            moment,
            close=close,
            biography=biography,
            marks=marks,
            batch_size=batch_size,
        )
    print(found)


def _recorded(name: str, path: Path) -> Result:
    """What came at a source, by a recording that has all of it."""
    from recension.runners.recording import read_recording

    recording = read_recording(path)
    if recording.sources.get(name) not in recording.edges:
        raise RecensionError(f"--input {name}={path}: the recording has {', '.join(recording.names)}")
    if not recording.is_whole:
        raise RecensionError(f"--input {name}={path}: {'; '.join(recording.describe_gaps())}")
    return recording.stream(name)


def _parse_where(given: Sequence[str], schema: pa.Schema) -> dict[str, Any]:
    """Values of columns, each of the type of its column."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise RecensionError(f"--where {text}: write COLUMN=VALUE")
        if name not in schema.names:
            hint = suggest_name(name, schema.names) or f"; it has {', '.join(schema.names)}"
            raise RecensionError(f"--where {text}: the answer has no column {name!r}{hint}")
        found[name] = _parse_value(value, schema.field(name).type, text)
    return found


def _parse_value(value: str, kind: pa.DataType, text: str) -> Any:
    if value == "null":
        return None
    try:
        return pc.cast(pa.scalar(value), kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise RecensionError(f"--where {text}: {value!r} is not a value of type {kind}") from None


def _parse_time(text: str) -> int:
    return instant(int(text) if text.lstrip("-").isdigit() else text)
