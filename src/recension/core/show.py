"""A history, or the elements of a stream, as a table a person can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, KIND_NAMES, RETRACT, EventBatch, Mask
from recension.core.history import History
from recension.core.ticks import Ticks
from recension.core.time_kind import TimeKind, shown
from recension.core.values import values_of


def show_history(history: History, rows: int = 20, time_type: TimeKind = None) -> str:
    """The first rows by lifetime, in columns; times are of the kind `time_type`, in its zone.

    >>> from recension.core.events import Event
    >>> print(show_history(History.from_events([Event({"user": "ann"}, 1), Event({"user": "bob"}, 0, 5)])))
    _vs  _ve  user
    0    5    bob
    1    ∞    ann
    """
    time_type = history.time_type if time_type is None else time_type
    order = np.lexsort((history.ve, history.vs))[:rows]
    payload = history.payload.take(pa.array(order)) if history.payload.num_columns else history.payload
    cells = [_times(history.vs[order], time_type), _times(history.ve[order], time_type)]
    cells += [[_text(value) for value in values_of(column)] for column in payload.columns]
    names = ["_vs", "_ve", *history.schema.names]
    lines = _aligned([[name, *column] for name, column in zip(names, cells, strict=True)])
    more = len(history) - len(order)
    return "\n".join(lines + ([f"… and {more} more"] if more > 0 else []))


def show_changes(batch: EventBatch, rows: int = 20, time_type: TimeKind = None) -> str:
    """The first elements of a stream in their order, in columns; what an element has no use for is empty.

    >>> from recension.core.batch import from_elements
    >>> from recension.core.events import Cti, Insert, Retract
    >>> ann = {"user": "ann"}
    >>> schema = pa.schema([("user", pa.string())])
    >>> print(show_changes(from_elements([Insert(ann, 1), Retract(ann, 1, 2**63 - 1, 5), Cti(9)], schema)))
    _kind    _vs  _ve  _new_ve  user
    insert   1    ∞             ann
    retract  1    ∞    5        ann
    cti      9
    """
    first = batch.slice(0, min(rows, len(batch)))
    ends, retracts = first.kind != CTI, first.kind == RETRACT
    times = [(first.vs, first.kind >= 0), (first.ve, ends), (first.new_ve, retracts)]
    cells = [[KIND_NAMES[kind] for kind in first.kind.tolist()]]
    cells += [_where(_times(column, time_type), used) for column, used in times]
    cells += [[_text(value) for value in values_of(column)] for column in first.payload.columns]
    names = ["_kind", "_vs", "_ve", "_new_ve", *batch.schema.names]
    lines = _aligned([[name, *column] for name, column in zip(names, cells, strict=True)])
    more = len(batch) - len(first)
    return "\n".join(lines + ([f"… and {more} more"] if more > 0 else []))


def _where(cells: list[str], used: Mask) -> list[str]:
    return [cell if is_used else "" for cell, is_used in zip(cells, used.tolist(), strict=True)]


def _times(times: Ticks, time_type: TimeKind) -> list[str]:
    return [shown(t, time_type) for t in times.tolist()]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _aligned(columns: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
