"""The run as it goes on: a line for what happens, a table of who is where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from recension.core.ticks import BEGINNING, FOREVER
from recension.demo.leases import CLOSES, HOURS, OPENS, clock
from recension.demo.script import now
from recension.demo.trace import MERGED, Trace, final_up_to

_BAR: Final = 30


class Display:
    """Follows a trace."""

    def __init__(self, console: Console) -> None:
        self._console, self._trace = console, Trace()
        self._shown, self._waiting = 0, ""

    def follow(self, trace: Trace) -> None:
        """This is the run to show."""
        self._trace, self._waiting = trace, ""

    def wait_for(self, what: str) -> None:
        """Nothing is to be seen until this is done."""
        self._waiting = what

    def see(self) -> None:
        """Say what has happened since."""
        for mark in self._trace.marks[self._shown :]:
            hour = now(len(self._trace.hours) - 1)
            self._console.print(f"[dim]{hour}[/]  [bold]{mark.stream:8}[/] {mark.words}", highlight=False)
        self._shown = len(self._trace.marks)

    @contextmanager
    def live(self) -> Iterator[None]:
        """While this lasts the table is under the last line; where nobody looks there are lines only."""
        with Live(get_renderable=self._table, console=self._console, transient=True, refresh_per_second=4):
            yield

    def _table(self) -> Table:
        hours = len(self._trace.hours)
        title = self._waiting or (f"{now(hours - 1)}, hour {hours} of {HOURS}" if hours else "")
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        table.add_column(Spinner("dots", title))
        for name in ("final up to", "", "new answers", "revisions"):
            table.add_column(name, justify="left" if not name else "right")
        for stream in [*self._trace.streams, MERGED] if self._trace.said else []:
            said = self._trace.of(stream)
            promise = final_up_to(said)
            counts = sum(one.inserts for one in said), sum(one.revisions for one in said)
            table.add_row(stream, _time(promise), _bar(promise), *(f"{count:,}" for count in counts))
        return table


def _time(promise: int) -> str:
    if promise == BEGINNING:
        return "–"
    return "the end" if promise == FOREVER else clock(promise)


def _bar(promise: int) -> str:
    """How much of the day is final."""
    part = (min(max(promise, OPENS), CLOSES) - OPENS) / (CLOSES - OPENS)
    return "━" * round(part * _BAR) + "[dim]" + "╌" * (_BAR - round(part * _BAR)) + "[/]"
