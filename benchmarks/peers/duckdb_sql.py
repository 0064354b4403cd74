"""DuckDB: all rows at once, on one thread or as many as it likes (PEER_THREADS)."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.peers.clock import run

_WINDOWS = """
    SELECT key, make_timestamp({hop} * w) AS start, count(*) AS n, sum(value) AS s
    FROM (SELECT key, value, unnest(range(e // {hop} - {more}, e // {hop} + 1)) AS w
          FROM (SELECT key, value, epoch_us(ts) AS e FROM '{folder}/feed.parquet'))
    GROUP BY key, w
"""
_SQL = {
    "W1": _WINDOWS.replace("{hop}", "2000000").replace("{more}", "4"),
    "W2": """
        SELECT l.key, l.value AS left_value, r.value AS right_value,
               greatest(l.ts, r.ts)::TIMESTAMP AS start, least(l.until, r.until)::TIMESTAMP AS stop
        FROM '{folder}/left.parquet' l JOIN '{folder}/right.parquet' r
        ON l.key = r.key AND l.ts < r.until AND r.ts < l.until
    """,
    "W3": _WINDOWS.replace("{hop}", "10000000").replace("{more}", "0"),
}


def answer(workload: str, folder: Path, out: Path) -> pa.Table:
    """By one query."""
    with duckdb.connect(config={"threads": int(os.environ.get("PEER_THREADS", "1"))}) as connection:
        connection.sql("SET TimeZone = 'UTC'")
        return connection.sql(_SQL[workload].replace("{folder}", str(folder))).to_arrow_table()


if __name__ == "__main__":
    run(answer)
