"""A sign of life for whoever waits: on a terminal, how far a command is; elsewhere nothing.

It goes to standard error, a batch at a time, so that it costs nothing beside the work.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from recension.core.batch import EventBatch

# What is done sooner needs no sign of life.
_PATIENCE: Final = 0.5


class Meter:
    """Counts elements, and shows the count or another text."""

    def __init__(self, progress: Progress, what: str, total: float | None) -> None:
        self._progress, self._what = progress, what
        self._began = time.monotonic()
        self._task = progress.add_task(what, total=total, visible=False)
        self.elements = 0

    def advance(self, elements: int) -> None:
        """So many elements more are done."""
        self.elements += elements
        seconds = time.monotonic() - self._began
        rate = self.elements / max(seconds, 1e-9)
        text = f"{self._what}: {self.elements:,} elements, {rate:,.0f} a second"
        late = seconds > _PATIENCE
        self._progress.update(self._task, completed=self.elements, description=text, visible=late)

    def complete(self, fraction: float) -> None:
        """So much of the whole (of a total of 1) is done."""
        self._progress.update(self._task, completed=fraction, visible=True)

    def say(self, text: str) -> None:
        """Show this from now on."""
        self._progress.update(self._task, description=text, visible=True)


@contextmanager
def show_progress(what: str, total: float | None = None) -> Iterator[Meter]:
    """A meter that is shown, on a terminal, for as long as it is in use; with a bar if there is a total."""
    bar: list[ProgressColumn] = [] if total is None else [BarColumn()]
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), *bar, TimeElapsedColumn()]
    if not sys.stderr.isatty():
        yield Meter(Progress(*columns, disable=True), what, total)
        return
    # A copy of standard error: while Spark starts, the number of the original leads to a log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace") as terminal:
        console = Console(file=terminal, force_terminal=True)
        # Results on standard output are not for the console.
        with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
            yield Meter(progress, what, total)


def with_progress(batches: Iterable[EventBatch], what: str) -> Iterator[EventBatch]:
    """The batches as they are; on a terminal, a long reading or writing shows how far it is."""
    with show_progress(what) as meter:
        for batch in batches:
            meter.advance(len(batch))
            yield batch
