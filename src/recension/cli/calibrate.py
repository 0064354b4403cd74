"""``recension calibrate``: measures what window extents take on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from recension.cli.root import app
from recension.operators.extents import calibration
from recension.operators.schemes.constants import save_constants


@app.command()
def calibrate(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="File to write. By default $RECENSION_CONSTANTS, or recension/constants.json in the user's "
            "folder for configuration: there it is found when schemes are chosen.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less, and less well.")] = False,
) -> None:
    """Measure the costs by which coalescing queries are made eager or lazy, and keep them in a file."""
    effort = calibration.Effort(1024, 256, 1) if quick else calibration.Effort()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring extents", total=1.0)
        found = calibration.calibrate(effort, lambda done: progress.update(task, completed=done))
    for name, nanoseconds in asdict(found.constants).items():
        print(f"{name:12} {nanoseconds:10.1f} ns")
    print(f"timings are {found.error:.0%} away from what these explain, on average")
    print(f"saved as {save_constants(found.constants, output)}")
