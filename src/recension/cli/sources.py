"""What the commands that read streams have in common: their options, and what was left out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from recension.cli.progress import watched
from recension.core.batch import EventBatch
from recension.core.formats import StreamReader, open_stream
from recension.core.validity import STALE_CTI


class OnViolation(StrEnum):
    """What to do with elements that no valid stream may hold."""

    RAISE = "raise"
    DROP = "drop"
    ADJUST = "adjust"


StartOption: TypeAlias = Annotated[
    str | None, typer.Option("--start", metavar="COLUMN", help="A plain table's own column of starts.")
]
EndOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--end", metavar="COLUMN", help="Its column of ends. Without it, a row lasts one tick."),
]
OnViolationOption: TypeAlias = Annotated[
    OnViolation,
    typer.Option(help="Elements that may not be there: stop, leave them out, or move them to the last cti."),
]


def opened(path: Path, start: str | None, end: str | None, on_violation: OnViolation) -> StreamReader:
    """The stream at a path, read as the options say."""
    return open_stream(path, start=start, end=end, on_violation=on_violation.value)


def elements_of(reader: StreamReader, path: Path) -> Iterator[EventBatch]:
    """The batches of a stream; on a terminal, a long reading shows how far it is."""
    return watched(reader, f"reading {path.name}")


def tell_counts(counted: Mapping[str, Mapping[str, int]]) -> None:
    """Nothing vanishes silently: say on standard error what was left out or moved, by source and reason."""
    for source, counts in counted.items():
        told = [f"{n} × {reason}" for reason, n in sorted(counts.items()) if n and reason != STALE_CTI]
        if told:
            place = f"{source}: " if source else ""
            print(f"recension: {place}left out or moved: {', '.join(told)}", file=sys.stderr)
