"""Micro-batches that a checkpoint runs again after it was set back (`runners.spark.repair`), as they were.

Spark runs one micro-batch again when it starts: the last that has begun. So the offsets of the others were
set aside, and come back one by one, each when the micro-batch before it is done.

    recension.repair/plan.json      there is something to run again, until it is done
    recension.repair/offsets/7      what micro-batch 7 was made of
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from recension.core.errors import RecensionError
from recension.runners.spark.sinks.files import AnyPath, disk_errors, is_local, local_path, sync_folder

FOLDER: Final = "recension.repair"
PLAN: Final = "plan.json"
DONE: Final = "done.json"


def replay(checkpoint: AnyPath, run_one: Callable[[], None]) -> None:
    """Run again what was set aside, one micro-batch after the other; nothing if nothing was."""
    if not is_local(checkpoint):
        return
    place = local_path(checkpoint)
    aside = place / FOLDER
    if not (aside / PLAN).exists():
        return
    while bring_next(place):
        before = last_number(place / "commits")
        run_one()
        if last_number(place / "commits") == before:
            raise RecensionError(
                f"{place}: micro-batch {before + 1} was not run again: start the query again"
            )
    with disk_errors(place):
        os.replace(aside / PLAN, aside / DONE)
        sync_folder(aside)


def bring_next(place: Path) -> bool:
    """Bring back the offsets of the next micro-batch; False if all are done."""
    plan = json.loads((place / FOLDER / PLAN).read_text(encoding="utf-8"))
    done, begun = last_number(place / "commits"), last_number(place / "offsets")
    if begun > done:
        return True
    offsets = place / FOLDER / "offsets" / str(done + 1)
    if done + 1 > plan["begun"] or not offsets.exists():
        return False
    with disk_errors(place):
        os.replace(offsets, place / "offsets" / offsets.name)
        sync_folder(place / "offsets")
    return True


def last_number(folder: Path) -> int:
    """The last micro-batch of a log of Spark's; -1 if there is none."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
