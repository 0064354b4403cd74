"""Histories on the screen: a table for people, CSV for what comes next in the pipe."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from recension.cli.standard_output import StandardOutput
from recension.core.formats.text import is_scalar, ticks_to_text, to_text
from recension.core.formats.writer import print_history
from recension.core.history import History
from recension.core.ticks import to_arrow
from recension.core.time_kind import describe_time
from recension.core.values import values_of

_SHOWN: Final = 40


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
    columns = {n: _with_text(c) for n, c in zip(history.schema.names, history.payload.columns, strict=True)}
    payload = pa.table(columns) if columns else history.payload
    print_history(StandardOutput(), "csv", replace(history, payload=payload), time_type)


def _with_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column itself, or as texts what CSV has no form for: it is for people to read as well."""
    if is_scalar(column.type) and not _has_odd_time(column):
        return column
    cells = (_plain(value) for value in values_of(column))
    return pa.chunked_array([pa.array([None if v is None else str(v) for v in cells], pa.string())])


def _has_odd_time(column: pa.ChunkedArray) -> bool:
    """Is there an instant outside of the years that a text has?"""
    try:
        for chunk in column.chunks if pa.types.is_temporal(column.type) else []:
            to_text(chunk)
    except pa.ArrowInvalid:
        return True
    return False


def _show_table(history: History, time_type: pa.DataType) -> None:
    table = Table("_vs", "_ve", *history.schema.names)
    for i, row in enumerate(_rows(history, time_type, 0, _SHOWN)):
        lifetime = [describe_time(int(times[i]), time_type) for times in (history.vs, history.ve)]
        table.add_row(*lifetime, *(_cell(cell) for cell in row[2:]))
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
        [_plain(value) for value in values_of(column.slice(start, size))]
        for column in history.payload.columns
    ]
    return [list(row) for row in zip(*times, *columns, strict=True)]


def _plain(value: Any) -> Any:
    """Lists and structs as JSON, bytes in hexadecimal; everything else prints well as it is."""
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value.hex() if isinstance(value, bytes) else value
