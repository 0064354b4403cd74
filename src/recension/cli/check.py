"""``recension check``: is it a valid stream, and of which class."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from recension.cli.root import FAILED, app
from recension.cli.sources import (
    EndOption,
    OnViolation,
    OnViolationOption,
    StartOption,
    elements_of,
    opened,
)
from recension.core.classes import StreamReport, classify
from recension.core.errors import FormatError, StreamError
from recension.core.formats import StreamReader
from recension.core.ticks import BEGINNING
from recension.core.time_kind import TimeKind, describe_time


@app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The stream: a file or a directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
) -> None:
    """Is the stream valid? Which class R0 to R4 it falls in, and what it holds.

    The classes are those by which streams are merged: from R0, only inserts with ever later starts, to R4,
    anything that is valid; the fewer liberties a stream takes, the cheaper its merge.

    A stream whose elements contradict each other (a cti that is broken, a retraction of nothing) makes
    the exit code 1; a file that cannot be read as a stream makes it 2.
    """
    reader = opened(path, start, end, on_violation)
    try:
        report = classify(elements_of(reader, path))
    except FormatError:
        raise
    except StreamError as why:
        _show_invalid(why, as_json)
        raise typer.Exit(FAILED) from None
    facts = _facts(path, reader, report)
    print(json.dumps(facts, indent=2) if as_json else _in_words(facts, reader.kind))


def _show_invalid(why: StreamError, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"valid": False, "file": why.file, "row": why.row, "reason": why.reason}, indent=2))
    else:
        print("recension: invalid:", " ".join(str(why).split()), file=sys.stderr)


def _facts(path: Path, reader: StreamReader, report: StreamReport) -> dict[str, Any]:
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


def _in_words(facts: dict[str, Any], kind: TimeKind) -> str:
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
        "set aside": ", ".join(f"{n:,} × {reason}" for reason, n in facts["counts"].items()) or None,
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text is not None)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"
