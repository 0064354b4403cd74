"""``recension history``: what a stream means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recension.cli.root import app
from recension.cli.show import in_order, show_history
from recension.cli.sources import (
    EndOption,
    OnViolation,
    OnViolationOption,
    StartOption,
    opened,
    tell_what_is_missing,
    watched,
)
from recension.core.formats import write_history
from recension.core.reconstitution import reconstitute


@app.command()
def history(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The stream: a file or a directory.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it here instead of showing it.")
    ] = None,
    start: StartOption = None,
    end: EndOption = None,
    on_violation: OnViolationOption = OnViolation.RAISE,
) -> None:
    """The canonical history of a stream: the events left when every retraction is applied.

    On a terminal its first rows are shown; elsewhere it is printed whole, as CSV.
    """
    reader = opened(path, start, end, on_violation)
    result = in_order(reconstitute(watched(reader), reader.schema))
    tell_what_is_missing(reader)
    if output is None:
        show_history(result, reader.time_type)
    else:
        write_history(output, result, reader.time_type)
