"""What the commands that read streams have in common: their options, and a sign of life."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from recension.core.batch import EventBatch
from recension.core.formats import StreamReader, open_stream
from recension.core.validity import STALE_CTI

_PATIENCE: Final = 0.5


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


def watched(reader: StreamReader) -> Iterator[EventBatch]:
    """The batches of a stream; on a terminal, a long reading shows how far it is."""
    if not sys.stderr.isatty():
        yield from reader
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} elements"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=False) as progress:
        task = progress.add_task("", total=None, visible=False)
        began = time.monotonic()
        for batch in reader:
            progress.update(task, advance=len(batch), visible=time.monotonic() - began > _PATIENCE)
            yield batch


def tell_what_is_missing(reader: StreamReader) -> None:
    """Nothing vanishes silently: say on standard error what was left out or moved."""
    counts = {reason: n for reason, n in reader.counts.items() if n and reason != STALE_CTI}
    if counts:
        shown = ", ".join(f"{n} × {reason}" for reason, n in sorted(counts.items()))
        print(f"recension: left out or moved: {shown}", file=sys.stderr)
