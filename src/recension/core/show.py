"""A history as a table a person can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.history import History
from recension.core.ticks import FOREVER, Ticks, timestamp


def show_history(history: History, rows: int = 20, time_type: pa.DataType | None = None) -> str:
    """The first rows by lifetime, in columns.

    >>> from recension.core.events import Event
    >>> print(show_history(History.from_events([Event({"user": "ann"}, 1), Event({"user": "bob"}, 0, 5)])))
    _vs  _ve  user
    0    5    bob
    1    ∞    ann
    """
    order = np.lexsort((history.ve, history.vs))[:rows]
    payload = history.payload.take(pa.array(order)) if history.payload.num_columns else history.payload
    cells = [_times(history.vs[order], time_type), _times(history.ve[order], time_type)]
    cells += [[_text(value) for value in column.to_pylist()] for column in payload.columns]
    names = ["_vs", "_ve", *history.schema.names]
    lines = _aligned([[name, *column] for name, column in zip(names, cells, strict=True)])
    more = len(history) - len(order)
    return "\n".join(lines + ([f"… and {more} more"] if more > 0 else []))


def _times(times: Ticks, time_type: pa.DataType | None) -> list[str]:
    is_timestamp = time_type is not None and pa.types.is_timestamp(time_type)
    return [_time(t, is_timestamp) for t in times.tolist()]


def _time(t: int, is_timestamp: bool) -> str:
    if t == FOREVER:
        return "∞"
    return str(timestamp(t)) if is_timestamp else str(t)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _aligned(columns: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
