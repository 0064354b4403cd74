"""The MERGE that keeps a history, and the part of the table that it need look at.

Assumes     net rows with ordinals (`changes`).
Guarantees  rows are removed and added in one commit. A row to remove that is not there, or a row to add that
            is, fails before the commit: `MISFIT`.

An event that a micro-batch can change had not ended before the last CTI, and starts when one of the net rows
does. Both are in the condition as literals: formats keep the least and the greatest value of a file's
columns, and leave out the files that cannot meet it.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

import numpy as np
from pyspark.sql import types as spark

from recension.core.batch import Index
from recension.core.ticks import BEGINNING
from recension.runners.spark.lake.changes import NET
from recension.runners.spark.lake.shape import ORDINAL, Shape
from recension.runners.spark.lake.table import quoted, text

MISFIT: Final = "recension: the ordinals do not fit"
_MOST_RANGES: Final = 8
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def merge_statement(
    table: str, view: str, shape: Shape, payload: Sequence[str], may_be_in: str | None
) -> str:
    """The statement for net rows in a view."""
    misfit = f"CAST(raise_error({text(MISFIT)}) AS BIGINT)"
    values = {shape.start: "s._vs", shape.end: "s._ve"}
    values |= {name: f"s.{quoted(name)}" for name in payload}
    values |= {shape.current: "s._ve IS NULL"} if shape.current else {}
    values[ORDINAL] = f"CASE WHEN s.{NET} < 0 THEN {misfit} ELSE s.{ORDINAL} END"
    met = [f"t.{ORDINAL} = s.{ORDINAL}", is_equal(shape, payload)]
    return (
        f"MERGE INTO {table} t USING {quoted(view)} s ON {' AND '.join([*met, *filter(None, [may_be_in])])} "
        f"WHEN MATCHED AND s.{NET} < 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET t.{ORDINAL} = {misfit} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quoted, values))}) "
        f"VALUES ({', '.join(values.values())})"
    )


def is_equal(shape: Shape, payload: Sequence[str]) -> str:
    """Is the row ``t`` of a table the event ``s`` of the net rows, but for the ordinal?"""
    times = [f"t.{quoted(shape.start)} = s._vs", f"t.{quoted(shape.end)} <=> s._ve"]
    return " AND ".join([*times, *(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in payload)])


def may_be_in(shape: Shape, kind: spark.DataType, starts: Index | None, cti: int) -> str | None:
    """Where in a table ``t`` events may be that a micro-batch changes, after a cti; none: anywhere.

    ``starts`` are the starts of its net rows, if they are known.
    """
    start, end = f"t.{quoted(shape.start)}", f"t.{quoted(shape.end)}"
    found = []
    if starts is not None and len(starts):
        ranges = [(_literal(a, kind), _literal(b, kind)) for a, b in start_ranges(starts)]
        if all(a and b for a, b in ranges):
            found.append(" OR ".join(f"({start} >= {a} AND {start} <= {b})" for a, b in ranges))
    if cti > BEGINNING and (last := _literal(cti, kind)):
        found.append(f"{end} IS NULL OR {end} >= {last}")
    return " AND ".join(f"({one})" for one in found) or None


def start_ranges(starts: Index) -> list[tuple[int, int]]:
    """A few ranges that cover all starts, apart where the gaps are largest."""
    values = np.unique(starts)
    gaps = np.diff(values.astype(np.float64))
    cuts = np.sort(np.argsort(gaps, kind="stable")[::-1][: _MOST_RANGES - 1])
    return [(int(part[0]), int(part[-1])) for part in np.split(values, cuts + 1)]


def _literal(ticks: int, kind: spark.DataType) -> str | None:
    """A time in SQL; none where it has no calendar date, and the condition is left out."""
    if isinstance(kind, spark.LongType):
        return f"CAST({ticks} AS BIGINT)" if ticks < 0 else f"{ticks}L"
    try:
        moment = (_EPOCH + datetime.timedelta(microseconds=ticks)).isoformat(" ", "microseconds")
    except OverflowError:
        return None
    is_naive = isinstance(kind, spark.TimestampNTZType)
    return f"TIMESTAMP_NTZ '{moment}'" if is_naive else f"TIMESTAMP '{moment}Z'"
