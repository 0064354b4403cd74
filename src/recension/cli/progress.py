"""Progress: on a terminal, how far a command is; otherwise nothing.

It goes to standard error, once per batch, so that it costs almost nothing.
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
        """Count this many more elements as done."""
        self.elements += elements
        seconds = time.monotonic() - self._began
        rate = self.elements / max(seconds, 1e-9)
        text = f"{self._what}: {self.elements:,} elements, {rate:,.0f} a second"
        late = seconds > _PATIENCE
        self._progress.update(self._task, completed=self.elements, description=text, visible=late)

    def complete(self, fraction: float) -> None:
        """Set the fraction that is done (of a total of 1)."""
        self._progress.update(self._task, completed=fraction, visible=True)

    def say(self, text: str) -> None:
        """Show this text from now on."""
        self._progress.update(self._task, description=text, visible=True)


@contextmanager
def show_progress(what: str, total: float | None = None) -> Iterator[Meter]:
    """Show a meter on a terminal while it is in use; with a bar if there is a total."""
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
    """The batches unchanged; on a terminal, a long read or write shows how far it is."""
    with show_progress(what) as meter:
        for batch in batches:
            meter.advance(len(batch))
            yield batch
