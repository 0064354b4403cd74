"""``recension repair``: what is still good of a stuck or damaged checkpoint, and how to go on."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from recension.cli.progress import show_progress
from recension.cli.root import FAILED, app
from recension.cli.run_spark import missing_for_spark
from recension.core.errors import RecensionError


@app.command()
def repair(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="The checkpoint of a query that does not run, on a disk."),
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Set it back to its last good state; nothing is removed.")
    ] = False,
) -> None:
    """What is still good of a stuck or damaged checkpoint, and how to go on without losing answers.

    The state is read as Spark reads it, from the last micro-batch backwards. Without --apply nothing is
    changed. The query must not be running. Exit codes: 0 the checkpoint is good, or was repaired; 1 it is
    damaged.
    """
    if (missing := missing_for_spark()) is not None:
        raise RecensionError(f"repair needs {missing}")
    from recension.runners.spark import repair as checkpoints
    from recension.runners.spark.session import delay_interrupts, quiet_session

    place = checkpoints.checkpoint_in(checkpoint)
    with TemporaryDirectory(prefix="recension-") as folder, show_progress("repair") as meter:
        meter.say("starting Spark")
        with delay_interrupts():
            spark = quiet_session(Path(folder) / "spark.log")
        found = checkpoints.examine(spark, place, meter.say)
        if apply and not found.is_sound:
            checkpoints.repair(found)
    for line in found.describe():
        print(line)
    if found.is_sound:
        return
    if not apply:
        raise typer.Exit(FAILED)
    print(f"done: it is set back to micro-batch {found.good}; start the query as before")
