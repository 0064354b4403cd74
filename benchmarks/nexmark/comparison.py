"""What of DuckDB's answer other systems can have, and their answers as tables.

An answer here says from when to when each row holds. Others have tables: what is left of the answer when all
rows have come, in the columns that they give.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.nexmark import judge

_LAST = "FROM theirs WHERE _ve IS NULL"
_DAY = "SELECT *, strftime(_vs, '%Y-%m-%d') AS day FROM theirs"
_VIEWS = {
    **dict.fromkeys(("q4", "q6", "q18", "q19"), _LAST),
    **dict.fromkeys(("q15", "q16", "q17"), _DAY),
    # Flink's time has milliseconds.
    "q11": "SELECT *, date_trunc('milliseconds', _vs) AS since FROM theirs",
}
_BUCKET = "time_bucket(INTERVAL 10 SECOND, date_time)"
_ENDS = {
    "q5": "_ve",
    "q7": f"{_BUCKET} + INTERVAL 10 SECOND",
    "q8": "_ve",
    "q9": "expires",
    "q11": "_ve + INTERVAL 10 SECOND",
}
"""When a row is final; Spark in append mode gives those that the watermark has passed, and no others."""


def expected(query: str, theirs: pa.Table, watermark: dt.datetime | None = None) -> pa.Table:
    """The rows of DuckDB's answer that a table has; with a watermark, those that are final by then."""
    sql = _VIEWS.get(query, "FROM theirs")
    if watermark is not None and query in _ENDS:
        sql = f"FROM ({sql}) WHERE {_ENDS[query]} <= '{watermark:%Y-%m-%d %H:%M:%S.%f}'"
    return _sql(sql, theirs=judge.without_zones(theirs))


def read_changes(folder: Path, wanted: pa.Schema) -> pa.Table:
    """What changes in Debezium's JSON come to: every row that was made and not taken away."""
    rows = Counter[tuple[tuple[str, Any], ...]]()
    for change in _changes(folder):
        is_removal = change["op"] == "d"
        row = change["before" if is_removal else "after"]
        rows[tuple(row.items())] += -1 if is_removal else 1
    if any(times < 0 for times in rows.values()):
        raise ValueError(f"{folder}: a row was taken away more often than it was made")
    left = [dict(row) for row in rows.elements()]
    names = list(left[0]) if left else wanted.names
    return pa.table({name: _column([row[name] for row in left], wanted, name) for name in names})


def last_rows(rows: pa.Table, keys: Iterable[str]) -> pa.Table:
    """Of rows that stand for the earlier ones of the same keys: those of the latest micro-batch, `_batch`."""
    rank = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY _batch DESC)"
    return _sql(f"SELECT * EXCLUDE (_batch) FROM answer QUALIFY {rank} = 1", answer=rows)


def _changes(folder: Path) -> Iterable[dict[str, Any]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name[0] not in "._":
            with file.open() as lines:
                yield from map(json.loads, lines)


def _column(values: list[Any], wanted: pa.Schema, name: str) -> pa.Array:
    """Times are text in JSON, with a Z where they have a zone."""
    if not pa.types.is_timestamp(wanted.field(name).type):
        return pa.array(values, wanted.field(name).type)
    return pa.array([value.removesuffix("Z") for value in values], pa.string()).cast(pa.timestamp("us"))


def _sql(sql: str, **tables: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()
