"""``recension calibrate``: measures what window extents cost on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from recension.cli.outputs import check_made_file
from recension.cli.progress import show_progress
from recension.cli.root import app
from recension.core.formats.files import format_errors


@app.command()
def calibrate(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write. By default $RECENSION_CONSTANTS, or recension/constants.json in the user's "
            "folder for configuration: there it is found when schemes are chosen.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less, with less precision.")] = False,
) -> None:
    """Measure costs on this machine, for the choice between eager and lazy coalescing, and store them."""
    from recension.operators.extents import calibration
    from recension.operators.schemes.constants import constants_file, save_constants

    effort = calibration.Effort(1024, 256, 1) if quick else calibration.Effort()
    file = output or constants_file()
    check_made_file(file)
    with show_progress("measuring extents", total=1.0) as meter:
        found = calibration.calibrate(effort, meter.complete)
    for name, nanoseconds in asdict(found.constants).items():
        print(f"{name:12} {nanoseconds:10.1f} ns")
    print(f"timings are {found.error:.0%} away from what these explain, on average")
    with format_errors(str(file)):
        save_constants(found.constants, file)
    print(f"saved as {file}")
