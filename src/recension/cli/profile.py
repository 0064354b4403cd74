"""What each operator of a run did, told on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from recension.core.ticks import BEGINNING, FOREVER
from recension.runners.metrics import Metrics


def show_profile(metrics: list[Metrics]) -> None:
    """A line for each operator."""
    console = Console(stderr=True)
    console.width = console.width if console.is_terminal else 160
    console.print(_profile(metrics))


def _profile(metrics: list[Metrics]) -> Table:
    table = Table("operator")
    for column in ("in", "retracted", "out", "retracted", "cti", "state rows", "state", "dropped", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for m in metrics:
        cti = "∞" if m.cti == FOREVER else "" if m.cti == BEGINNING else str(m.cti)
        counts = [f"{x:,}" for x in (m.events_in, m.retractions_in, m.events_out, m.retractions_out)]
        state = [f"{m.state_rows:,}", f"{m.state_bytes / 2**20:.1f} MiB"]
        table.add_row(m.name, *counts, cti, *state, f"{m.dropped:,}", f"{m.seconds:.3f} s")
    return table
