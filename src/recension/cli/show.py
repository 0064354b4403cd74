"""Histories on the screen: a table for people, CSV for what comes next in the pipe."""

from __future__ import annotations

import csv
import json
import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from recension.core.formats.text import ticks_to_text
from recension.core.history import History
from recension.core.ticks import to_arrow

_SHOWN: Final = 40
_AT_ONCE: Final = 1 << 14


def in_order(history: History) -> History:
    """The same history by start, then end."""
    order = np.lexsort((history.ve, history.vs))
    payload = history.payload.take(pa.array(order)) if history.payload.num_columns else history.payload
    return History(history.vs[order], history.ve[order], payload)


def show_history(history: History, time_type: pa.DataType) -> None:
    """Print a history: its first rows on a terminal, else all of it."""
    if sys.stdout.isatty():
        _show_table(history, time_type)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["_vs", "_ve", *history.schema.names])
    for start in range(0, len(history), _AT_ONCE):
        writer.writerows(_rows(history, time_type, start, _AT_ONCE))


def _show_table(history: History, time_type: pa.DataType) -> None:
    table = Table("_vs", "_ve", *history.schema.names)
    for row in _rows(history, time_type, 0, _SHOWN):
        table.add_row(*("∞" if i == 1 and cell is None else _cell(cell) for i, cell in enumerate(row)))
    console = Console()
    console.print(table)
    if len(history) > _SHOWN:
        console.print(
            f"… and {len(history) - _SHOWN:,} more events; --output writes them all", highlight=False
        )


def _cell(value: Any) -> str:
    return "null" if value is None else str(value)


def _rows(history: History, time_type: pa.DataType, start: int, size: int) -> list[list[Any]]:
    stop = start + size
    times = [
        ticks_to_text(to_arrow(ticks[start:stop], time_type, null_forever=True)).to_pylist()
        for ticks in (history.vs, history.ve)
    ]
    columns = [
        [_plain(value) for value in column.slice(start, size).to_pylist()]
        for column in history.payload.columns
    ]
    return [list(row) for row in zip(*times, *columns, strict=True)]


def _plain(value: Any) -> Any:
    """Lists and structs as JSON, bytes in hexadecimal; everything else prints well as it is."""
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value.hex() if isinstance(value, bytes) else value
