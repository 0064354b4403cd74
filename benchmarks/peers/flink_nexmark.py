"""NEXMark in Flink SQL: a process that answers the queries of `benchmarks.nexmark.peers` over its files.

Each query is a job of its own in one JVM, which gets faster as it compiles what all jobs share. A request
first runs the query over `check`, with every change of the answer as a line of Debezium's JSON: that is what
is compared. Then come jobs over `small`, which have next to nothing to do, and over `files`, in turn, each
measured from its submission to its end; the best of either kind is reported. These send their changes
nowhere, as nobody else writes them either; q10 alone, which is about files, writes them.

Windows are final when the watermark passes them. All other answers change with their rows, as much as
mini-batches let them. Tables are single files: Flink gives no order to those of a folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.clock import timed
from benchmarks.peers.flink_sql import environment
from benchmarks.peers.worker import serve

PARALLELISM, TURNS = 1, 3

_BID = (
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP_LTZ(6), "
    "extra STRING, arrived TIMESTAMP_LTZ(6)"
)
_TIME = ", t AS CAST({} AS TIMESTAMP_LTZ(3)), WATERMARK FOR t AS t - INTERVAL '{}' SECOND"
_LATE = _TIME.format("date_time", 10)
# Of each table: its file, its columns, and its time for queries with windows.
TABLES = {
    "persons": (
        "persons",
        "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, "
        "date_time TIMESTAMP_LTZ(6), extra STRING",
        _LATE,
    ),
    "auctions": (
        "auctions",
        "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
        "date_time TIMESTAMP_LTZ(6), expires TIMESTAMP_LTZ(6), seller BIGINT, category BIGINT, extra STRING",
        _LATE,
    ),
    "bids": ("bids", _BID, _LATE),
    "arrivals": ("bids", _BID, _TIME.format("arrived", 0)),
    "side": ("side", "`key` BIGINT, `value` STRING", ""),
}
_CREATE = """
    CREATE TABLE {name} ({columns}{time}) WITH (
        'connector' = 'filesystem', 'path' = '{folder}/{file}.parquet', 'format' = 'parquet',
        'parquet.utc-timezone' = 'true'
    )
"""
_NOWHERE = "WITH ('connector' = 'blackhole')"
_FILES = """
    PARTITIONED BY (`day`, `minute`)
    WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet')
"""
_CHANGES = "WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'debezium-json')"

_OFFERED = (
    "bids b JOIN auctions a ON b.auction = a.id AND b.date_time >= a.date_time AND b.date_time < a.expires"
)
_HIGHEST = f"""
    SELECT a.id AS auction, a.category, a.seller, a.expires, MAX(b.price) AS price
    FROM {_OFFERED} GROUP BY a.id, a.category, a.seller, a.expires
"""
_TUMBLING = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(t), INTERVAL '10' SECOND))"
_STATISTICS = ", ".join(
    f"COUNT(*) {rank} AS bids{n}, COUNT(DISTINCT bidder) {rank} AS bidders{n}, "
    f"COUNT(DISTINCT auction) {rank} AS auctions{n}"
    for n, rank in (
        ("", ""),
        ("1", "FILTER (WHERE price < 10000)"),
        ("2", "FILTER (WHERE price >= 10000 AND price < 1000000)"),
        ("3", "FILTER (WHERE price >= 1000000)"),
    )
)
_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"

SQL = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bids",
    "q1": "SELECT auction, bidder, date_time, extra, price * 0.908E0 AS price FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"SELECT category, AVG(CAST(price AS DOUBLE)) AS price FROM ({_HIGHEST}) GROUP BY category",
    "q5": """
        WITH counts AS (
            SELECT auction, window_start, window_end, COUNT(*) AS bids
            FROM TABLE(HOP(TABLE bids, DESCRIPTOR(t), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
            GROUP BY auction, window_start, window_end
        )
        SELECT c.window_start AS `_vs`, c.auction, c.bids
        FROM counts c JOIN (
            SELECT window_start, window_end, MAX(bids) AS bids FROM counts GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.bids
    """,
    # Its windows of rows take no changing input, so the last ten are a Top-N.
    "q6": f"""
        SELECT seller, AVG(CAST(price AS DOUBLE)) AS price
        FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, auction) AS nth
            FROM ({_HIGHEST})
        ) WHERE nth <= 10 GROUP BY seller
    """,
    "q7": f"""
        SELECT b.auction, b.bidder, b.price, b.date_time, b.extra
        FROM (SELECT * FROM {_TUMBLING.format("bids")}) b JOIN (
            SELECT window_start, window_end, MAX(price) AS price
            FROM {_TUMBLING.format("bids")} GROUP BY window_start, window_end
        ) m ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.price
    """,
    "q8": f"""
        SELECT p.window_start AS `_vs`, p.id, p.name
        FROM (
            SELECT id, name, window_start, window_end FROM {_TUMBLING.format("persons")}
            GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start, window_end FROM {_TUMBLING.format("auctions")}
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    "q9": f"""
        SELECT auction, date_time, bidder, price, extra, item_name, seller, category, expires
        FROM (
            SELECT b.auction, b.date_time, b.bidder, b.price, b.extra, a.item_name, a.seller, a.category,
                   a.expires,
                   ROW_NUMBER() OVER (PARTITION BY b.auction ORDER BY b.price DESC, b.date_time) AS nth
            FROM {_OFFERED}
        ) WHERE nth <= 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, date_time, extra, {_DAY} AS `day`,
               DATE_FORMAT(date_time, 'HH:mm') AS `minute` FROM bids
    """,
    "q11": """
        SELECT window_start AS since, bidder, COUNT(*) AS bids
        FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(t), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end
    """,
    "q12": f"""
        SELECT window_start AS `_vs`, bidder, COUNT(*) AS bids FROM {_TUMBLING.format("arrivals")}
        GROUP BY bidder, window_start, window_end
    """,
    # It cannot look rows up in files, so this is a join of two streams, one of which ends.
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.date_time, s.`value`
        FROM bids b JOIN side s ON MOD(b.auction, 10000) = s.`key`
    """,
    "q14": """
        SELECT auction, bidder, date_time, extra, price * 0.908E0 AS price,
               CASE WHEN EXTRACT(HOUR FROM date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN EXTRACT(HOUR FROM date_time) <= 6 OR EXTRACT(HOUR FROM date_time) >= 20
                    THEN 'nightTime' ELSE 'otherTime' END AS time_of_day,
               CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c
        FROM bids WHERE price * 0.908E0 > 1000000 AND price * 0.908E0 < 50000000
    """,
    "q15": f"SELECT {_DAY} AS `day`, {_STATISTICS} FROM bids GROUP BY {_DAY}",
    "q16": f"""
        SELECT {_DAY} AS `day`, channel, MAX(DATE_FORMAT(date_time, 'HH:mm')) AS `minute`, {_STATISTICS}
        FROM bids GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT {_DAY} AS `day`, auction, COUNT(*) AS bids, COUNT(*) FILTER (WHERE price < 10000) AS bids1,
               COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS bids2,
               COUNT(*) FILTER (WHERE price >= 1000000) AS bids3, MIN(price) AS `least`, MAX(price) AS `most`,
               AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total
        FROM bids GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, date_time, extra
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY t DESC) AS nth FROM bids)
        WHERE nth <= 1
    """,
    "q19": """
        SELECT * FROM (
            SELECT auction, bidder, price, date_time,
                   ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS `rank`
            FROM bids
        ) WHERE `rank` <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.initial_bid,
               a.reserve, a.expires, a.seller, a.category
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel,
               CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3' ELSE REGEXP_EXTRACT(url, 'channel_id=([^&]*)', 1) END AS channel_id
        FROM bids
        WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%channel_id=%'
    """,
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
               SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bids
    """,
}  # fmt: skip
"""Each answer has columns of DuckDB's; `benchmarks.nexmark.comparison` says which rows."""

OPTIONS = {
    "parallelism.default": str(PARALLELISM),
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    # That is for groups too hot for a core; on one core q15 and q16 take two to five times as long with it.
    "table.optimizer.distinct-agg.split.enabled": "false",
}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """What the query of a request takes, by the wall clock and in processor time of all processes."""
    query, out = request["query"], Path(request["out"])
    _run(query, request["check"], _CHANGES, out)
    sink = _FILES if query == "q10" else _NOWHERE
    runs = [
        (
            _run(query, request["small"], sink, out.with_name(f"{out.name}-small")),
            _run(query, request["files"], sink, out.with_name(f"{out.name}-files")),
        )
        for _ in range(TURNS)
    ]
    fixed, whole = (
        {name: min(run[name] for run in side) for name in side[0]} for side in zip(*runs, strict=True)
    )
    return whole | {"fixed": fixed}


def _run(query: str, folder: str, sink: str, out: Path) -> dict[str, float]:
    """By one job, from a new catalog; the clock runs from when the job has been planned and submitted."""
    shutil.rmtree(out, ignore_errors=True)
    tables = environment(OPTIONS)
    for statement in statements(query, folder, sink.format(out=out)):
        result = tables.execute_sql(statement)
    return timed(result.wait)[1]


def statements(query: str, folder: str, sink: str) -> list[str]:
    """The tables that a query reads, and itself. Where nothing is asked of time, there are no watermarks."""
    sql = SQL[query]
    is_timed = "DESCRIPTOR" in sql or "ORDER BY t " in sql
    created = [
        _CREATE.format(name=name, columns=columns, time=time if is_timed else "", folder=folder, file=file)
        for name, (file, columns, time) in TABLES.items()
        if f" {name}" in sql
    ]
    return [*created, f"CREATE TABLE answer {sink} AS {sql}"]


if __name__ == "__main__":
    serve(lambda: measure)
