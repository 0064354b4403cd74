"""``recension history``: what a stream means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recension.cli.outputs import FormatOption, Results
from recension.cli.root import app
from recension.cli.show import in_order
from recension.cli.sources import (
    EndOption,
    OnViolation,
    OnViolationOption,
    StartOption,
    elements_of,
    opened,
    tell_counts,
)
from recension.core.reconstitution import reconstitute


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
) -> None:
    """The canonical history of a stream: the events left when every retraction is applied.

    On a terminal its first rows are shown; elsewhere it is printed whole, as CSV.
    """
    results = Results.of(None, output, form)
    results.check([path])
    reader = opened(path, start, end, on_violation)
    results.check_columns(reader.schema)
    result = in_order(reconstitute(elements_of(reader, path), reader.schema))
    tell_counts({"": reader.counts})
    results.put_history(result, reader.time_type)
