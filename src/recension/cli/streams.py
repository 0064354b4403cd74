"""Commands that look at streams in files: ``recension history``, ``check`` and ``diff``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from recension.cli.inputs import EndOption, OnViolation, OnViolationOption, StartOption, report_dropped
from recension.cli.outputs import FormatOption, ResultTargets
from recension.cli.progress import with_progress
from recension.cli.root import FAILED, app
from recension.cli.show import refuse_plot, save_plot, sort_by_lifetime
from recension.core.classes import StreamReport, classify
from recension.core.difference import difference
from recension.core.errors import FormatError, SchemaError, StreamError, TimeError
from recension.core.formats.versions import Version
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, describe_time, merge_kinds
from recension.gate.files import StreamReader, open_stream, read_bitemporal


@app.command()
def history(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The stream: a file or a directory.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write it to this file instead of showing it; - is standard output."
        ),
    ] = None,
    form: FormatOption = None,
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="For a table or changelog: as it was at this time, such as 2024-01-31T12:00:00Z.",
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Or as it was after this many micro-batches.")
    ] = None,
    bitemporal: Annotated[
        bool,
        typer.Option("--bitemporal", help="For a changelog: also from when to when each event was believed."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Draw it to this file (.svg, .png, .pdf) instead of showing it."),
    ] = None,
) -> None:
    """The canonical history of a stream: the events left when every retraction is applied.

    On a terminal its first rows are shown; otherwise all rows are printed as CSV.
    """
    results = ResultTargets.from_options(None, output, form)
    results.check([path])
    asked = Version.from_request(version, as_of)
    if plot is not None:
        refuse_plot(plot, [output, "--output"], [bitemporal, "--bitemporal"])
    if bitemporal:
        found = read_bitemporal(path, asked)
        results.check_columns(found.schema)
        results.put_history(sort_by_lifetime(found), found.time_type)
        return
    reader = open_stream(path, start=start, end=end, on_violation=on_violation.value, version=asked)
    results.check_columns(reader.schema)
    result = _reconstitute(path, reader)
    report_dropped({"": reader.counts})
    if plot is not None:
        save_plot(replace(result, time_type=reader.time_type), plot)
    else:
        results.put_history(sort_by_lifetime(result), reader.time_type)


def _reconstitute(path: Path, reader: StreamReader) -> History:
    return reconstitute(with_progress(reader, f"reading {path.name}"), reader.schema)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The stream: a file or a directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
) -> None:
    """Is the stream valid? Which class R0 to R4 it falls in, and what it holds.

    The classes decide how streams are merged: from R0, only inserts with strictly increasing starts, to R4,
    any valid stream. The lower the class, the cheaper the merge.

    The exit code is 1 if the stream is invalid (an element breaks a CTI, a retraction has no event), and 2 if
    the file cannot be read as a stream.
    """
    reader = open_stream(path, start=start, end=end, on_violation=on_violation.value)
    try:
        report = classify(with_progress(reader, f"reading {path.name}"))
    except FormatError:
        raise
    except StreamError as why:
        _show_invalid(why, as_json)
        raise typer.Exit(FAILED) from None
    facts = _facts_of(path, reader, report)
    print(json.dumps(facts, indent=2) if as_json else _describe_facts(facts, reader.kind))


def _show_invalid(why: StreamError, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"valid": False, "file": why.file, "row": why.row, "reason": why.reason}, indent=2))
    else:
        print("recension: invalid:", " ".join(str(why).split()), file=sys.stderr)


def _facts_of(path: Path, reader: StreamReader, report: StreamReport) -> dict[str, Any]:
    return {
        "path": str(path),
        "valid": True,
        "class": report.classes[0],
        "classes": report.classes,
        "inserts": report.inserts,
        "retractions": report.retractions,
        "removals": report.removals,
        "ctis": report.ctis,
        "external_ctis": report.external_ctis,
        "last_cti": None if report.last_cti == BEGINNING else report.last_cti,
        "ordered": report.is_ordered,
        "perfect": report.is_perfect,
        "closed": report.is_closed or reader.is_table,
        "table": reader.is_table,
        "counts": {reason: n for reason, n in sorted(reader.counts.items()) if n},
        "columns": {field.name: str(field.type) for field in reader.schema},
    }


def _describe_facts(facts: dict[str, Any], kind: TimeKind) -> str:
    last = "none" if facts["last_cti"] is None else describe_time(facts["last_cti"], kind)
    lines = {
        "valid": "yes",
        "class": facts["class"]
        + (f" (also {', '.join(facts['classes'][1:])})" if facts["classes"][1:] else ""),
        "inserts": f"{facts['inserts']:,}",
        "retractions": f"{facts['retractions']:,}, of which {facts['removals']:,} removals",
        "ctis": f"{facts['ctis']:,}, the last at {last}" if facts["ctis"] else "0",
        "external": f"{facts['external_ctis']:,} external ctis" if facts["external_ctis"] else None,
        "ordered": _yes(facts["ordered"]),
        "perfect": _yes(facts["perfect"]),
        "closed": _yes(facts["closed"]) + (" (a plain table)" if facts["table"] else ""),
        "columns": ", ".join(f"{name} {kind}" for name, kind in facts["columns"].items()) or "none",
        "dropped": ", ".join(f"{n:,} × {reason}" for reason, n in facts["counts"].items()) or None,
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text is not None)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A stream or history: a file or a directory.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another stream or history, in any format.")],
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
) -> None:
    """Do two streams mean the same: are their histories equal, whatever way they came about?

    Exit code 0 if they are, 1 if not; then the first differences are shown, - for what only A has and +
    for what only B has. Numbers compare by value, so formats and widths may differ.
    """
    sides = [_open_side(path, start, end, on_violation) for path in (a, b)]
    left, right = (_history_of(mine, other) for mine, other in (sides, sides[::-1]))
    try:
        merge_kinds(*(side.reader.kind for side in sides))  # times of two kinds cannot be compared
        found = difference(actual=right, expected=left)
    except (SchemaError, TimeError) as why:
        print(f"different: {why}")
        raise typer.Exit(FAILED) from None
    if not found:
        print(f"equivalent: {len(left):,} events")
        return
    print(f"different: {len(found.missing):,} events only in {a}, {len(found.unexpected):,} only in {b}")
    print("\n".join(str(found).splitlines()[1:]))
    raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _ComparedStream:
    """One of the two streams, and how to read it again in other types."""

    path: Path
    reader: StreamReader
    reopen: Callable[[pa.Schema], StreamReader]


def _open_side(path: Path, start: str | None, end: str | None, on_violation: OnViolation) -> _ComparedStream:
    """A stream; the names of time columns are used if the stream needs them."""

    def read(schema: pa.Schema | None, times: tuple[str | None, str | None]) -> StreamReader:
        return open_stream(path, schema=schema, start=times[0], end=times[1], on_violation=on_violation.value)

    times = (start, end)
    if start or end:
        with suppress(FormatError):
            read(None, (None, None))
            times = (None, None)
    return _ComparedStream(path, read(None, times), lambda schema: read(schema, times))


def _history_of(mine: _ComparedStream, other: _ComparedStream) -> History:
    """The history of one side, with the types of the other side if its own are only inferred."""
    schema = _better_schema(mine.reader, other.reader)
    if schema is not None and schema != mine.reader.schema:
        # Values that do not fit those types differ; they are then shown in their own.
        with suppress(FormatError):
            return _read_side(mine.path, mine.reopen(schema))
    return _read_side(mine.path, mine.reader)


def _read_side(path: Path, reader: StreamReader) -> History:
    result = _reconstitute(path, reader)
    report_dropped({str(path): reader.counts})
    return replace(result, time_type=reader.time_type)


def _better_schema(mine: StreamReader, other: StreamReader) -> pa.Schema | None:
    """The types of the other side, where this side's are only inferred."""
    names, theirs = set(mine.schema.names), set(other.schema.names)
    if mine.is_typed or not (names == theirs or (mine.may_lack_columns and names < theirs)):
        return None
    own = dict(zip(mine.schema.names, mine.schema.types, strict=True))
    return pa.schema([pa.field(f.name, _better_type(mine, other, f, own.get(f.name))) for f in other.schema])


def _better_type(
    mine: StreamReader, other: StreamReader, theirs: pa.Field, own: pa.DataType | None
) -> pa.DataType:
    if other.is_typed or own is None:
        return theirs.type
    # Both are text, but JSON tells a text from a number or a date, which CSV cannot.
    knows_better = other.may_lack_columns and not mine.may_lack_columns and pa.types.is_string(theirs.type)
    return theirs.type if knows_better else own
