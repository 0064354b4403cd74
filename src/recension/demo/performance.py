"""The demo from beginning to end, on Spark or in this process, shown while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from recension.core.ticks import BEGINNING, FOREVER
from recension.demo.leases import CLOSES, HOURS, OPENS, clock
from recension.demo.local_stage import LocalStage
from recension.demo.page import page
from recension.demo.run_page import run_page
from recension.demo.script import ReplicaStage, World, now, play
from recension.demo.trace import MERGED, Trace, last_cti
from recension.demo.verdict import Verdict, judge, print_verdict

_BAR: Final = 30


def perform(world: World, console: Console, report: Path, *, on_spark: bool) -> Verdict:
    """Play, judge, print the verdict, and write the report and beside it the run in the inspector."""
    display = Display(console)
    with display.live(), _open_stage(display, on_spark=on_spark) as stage:
        display.follow(stage.trace)
        play(world, stage, display.show_new)
        display.wait_for("asking the same question of the leases as they were in the end")
        verdict = judge(world, stage)
    print_verdict(verdict, console)
    report.parent.mkdir(parents=True, exist_ok=True)
    beside = inspector_beside(report)
    report.write_text(page(stage.trace, verdict, stage.engine, beside.name), encoding="utf-8")
    beside.write_text(run_page(stage.trace), encoding="utf-8")
    return verdict


def inspector_beside(report: Path) -> Path:
    """Where the page goes on which the run can be stepped through."""
    return report.with_name(f"{report.stem}-inspector.html")


@contextmanager
def _open_stage(display: Display, *, on_spark: bool) -> Iterator[ReplicaStage]:
    if not on_spark:
        yield LocalStage()
        return
    from recension.demo.spark_stage import SparkStage, start_spark

    # Spark looks after the state of queries that have stopped for a while yet.
    with TemporaryDirectory(prefix="recension-demo-", ignore_cleanup_errors=True) as name:
        display.wait_for("starting Spark")
        stage = SparkStage(start_spark(Path(name)), Path(name), display.show_new)
        try:
            yield stage
        finally:
            stage.close()


class Display:
    """Follows a trace."""

    def __init__(self, console: Console) -> None:
        self._console, self._trace = console, Trace()
        self._lines, self._waiting = 0, ""

    def follow(self, trace: Trace) -> None:
        """This is the run to show."""
        self._trace, self._waiting = trace, ""

    def wait_for(self, what: str) -> None:
        """Nothing is to be seen until this is done."""
        self._waiting = what

    def show_new(self) -> None:
        """A line for everything that has happened since the last call."""
        for mark in self._trace.milestones[self._lines :]:
            hour = now(len(self._trace.hours) - 1)
            self._console.print(f"[dim]{hour}[/]  [bold]{mark.stream:8}[/] {mark.text}", highlight=False)
        self._lines = len(self._trace.milestones)

    @contextmanager
    def live(self) -> Iterator[None]:
        """While this lasts the table is under the last line; without a terminal there are lines only."""
        with Live(get_renderable=self._table, console=self._console, transient=True, refresh_per_second=4):
            yield

    def _table(self) -> Table:
        hours = len(self._trace.hours)
        title = self._waiting or (f"{now(hours - 1)}, hour {hours} of {HOURS}" if hours else "")
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        table.add_column(Spinner("dots", title))
        for name in ("final up to", "", "new answers", "revisions"):
            table.add_column(name, justify="left" if not name else "right")
        for stream in [*self._trace.streams, MERGED] if self._trace.outputs else []:
            outputs = self._trace.outputs_of(stream)
            cti = last_cti(outputs)
            counts = sum(one.inserts for one in outputs), sum(one.revisions for one in outputs)
            table.add_row(stream, _time(cti), _bar(cti), *(f"{count:,}" for count in counts))
        return table


def _time(cti: int) -> str:
    if cti == BEGINNING:
        return "–"
    return "the end" if cti == FOREVER else clock(cti)


def _bar(cti: int) -> str:
    """How much of the day is final."""
    part = (min(max(cti, OPENS), CLOSES) - OPENS) / (CLOSES - OPENS)
    return "━" * round(part * _BAR) + "[dim]" + "╌" * (_BAR - round(part * _BAR)) + "[/]"
