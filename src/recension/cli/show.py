"""What the commands print: histories, and what each operator of a run did."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from recension.core.errors import RecensionError
from recension.core.formats.text import is_scalar, to_text
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import describe_time
from recension.core.values import values_of

if TYPE_CHECKING:
    from recension.runners.metrics import Metrics

_MOST_ROWS: Final = 40
_PLOTS: Final = (".svg", ".png", ".pdf")


def sort_by_lifetime(history: History) -> History:
    """The same history by start, then end."""
    order = np.lexsort((history.ve, history.vs))
    payload = history.payload.take(pa.array(order)) if history.payload.num_columns else history.payload
    return History(history.vs[order], history.ve[order], payload)


def show_history(history: History, time_type: pa.DataType) -> None:
    """Print the first rows of a history as a table."""
    table = Table("_vs", "_ve", *history.schema.names)
    times = (
        [describe_time(t, time_type) for t in ticks[:_MOST_ROWS].tolist()]
        for ticks in (history.vs, history.ve)
    )
    columns = (
        ["null" if v is None else _text(v) for v in values_of(column.slice(0, _MOST_ROWS))]
        for column in history.payload.columns
    )
    for row in zip(*times, *columns, strict=True):
        table.add_row(*row)
    console = Console()
    console.print(table)
    if len(history) > _MOST_ROWS:
        rest = f"… and {len(history) - _MOST_ROWS:,} more events; --output writes them all"
        console.print(rest, highlight=False)


def refuse_plot(path: Path, *others: Sequence[object]) -> None:
    """Refuse a plot that cannot be drawn, before anything is read."""
    for given, option in others:
        if given:
            raise RecensionError(f"--plot and {option} cannot be used together")
    if path.suffix.lower() not in _PLOTS:
        raise RecensionError(f"{path}: a plot is {', '.join(_PLOTS)}")
    if find_spec("matplotlib") is None:
        raise RecensionError("--plot needs matplotlib: pip install 'recension[plot]'")


def save_plot(history: History, path: Path) -> None:
    """Draw a history to a file."""
    import matplotlib as mpl

    mpl.use("agg")  # no window, whatever the machine has
    figure = history.plot().figure
    figure.savefig(path)


def _text(value: Any) -> str:
    """Lists and structs as JSON, bytes in hexadecimal; everything else unchanged."""
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value.hex() if isinstance(value, bytes) else str(value)


def csv_history(history: History) -> History:
    """The history with text for all values that CSV cannot represent, because people read it too."""
    columns = {n: _csv_column(c) for n, c in zip(history.schema.names, history.payload.columns, strict=True)}
    return replace(history, payload=pa.table(columns)) if columns else history


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_scalar(column.type) and not _has_odd_time(column):
        return column
    texts = [None if value is None else _text(value) for value in values_of(column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _has_odd_time(column: pa.ChunkedArray) -> bool:
    """Is there an instant outside the years 1 to 9999, which have an ISO form?"""
    try:
        for chunk in column.chunks if pa.types.is_temporal(column.type) else []:
            to_text(chunk)
    except pa.ArrowInvalid:
        return True
    return False


def show_profile(metrics: list[Metrics]) -> None:
    """A line for each operator, on standard error."""
    console = Console(stderr=True)
    console.width = console.width if console.is_terminal else 160
    table = Table("operator")
    for column in ("in", "retracted", "out", "retracted", "cti", "state rows", "state", "dropped", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for m in metrics:
        cti = "∞" if m.cti == FOREVER else "" if m.cti == BEGINNING else str(m.cti)
        counts = [f"{x:,}" for x in (m.events_in, m.retractions_in, m.events_out, m.retractions_out)]
        state = [f"{m.state_rows:,}", f"{m.state_bytes / 2**20:.1f} MiB"]
        table.add_row(m.name, *counts, cti, *state, f"{m.dropped:,}", f"{m.seconds:.3f} s")
    console.print(table)


def show_memory(resident: int, spilled: int) -> None:
    """Where the state is, on standard error."""
    print(f"state: {resident / 1e6:,.1f} MB in memory, {spilled / 1e6:,.1f} MB in files", file=sys.stderr)
