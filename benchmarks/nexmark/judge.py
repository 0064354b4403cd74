"""The same questions in DuckDB's SQL, over all rows at once; and how many rows two answers differ in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_OFFERED = (
    "bids b JOIN auctions a ON b.auction = a.id AND b.date_time >= a.date_time AND b.date_time < expires"
)
_CLOSED = f"""
    closed AS (
        SELECT b.auction, category, seller, expires, max(price) AS price
        FROM {_OFFERED} GROUP BY ALL
    )"""
_STATISTICS = ", ".join(
    f"count(*) {rank} AS bids{n}, count(DISTINCT bidder) {rank} AS bidders{n}, "
    f"count(DISTINCT auction) {rank} AS auctions{n}"
    for n, rank in (
        ("", ""),
        ("1", "FILTER (price < 10000)"),
        ("2", "FILTER (price >= 10000 AND price < 1000000)"),
        ("3", "FILTER (price >= 1000000)"),
    )
)
_DAY = "date_trunc('day', date_time)::TIMESTAMP AS _vs, _vs + INTERVAL 1 DAY AS _ve"
_TICK = "INTERVAL 1 MICROSECOND"
_MOMENT = f"date_time AS _vs, date_time + {_TICK} AS _ve"
_CHANNELS = "CASE lower(channel) " + " ".join(
    f"WHEN '{name}' THEN '{n}'" for n, name in enumerate(("apple", "google", "facebook", "baidu"))
)

SQL = {
    "q0": f"SELECT {_MOMENT}, auction, bidder, price, date_time, extra FROM bids",
    "q1": f"SELECT {_MOMENT}, auction, bidder, date_time, extra, price * 0.908::DOUBLE AS price FROM bids",
    "q2": f"SELECT {_MOMENT}, auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT greatest(a.date_time, p.date_time) AS _vs, NULL::TIMESTAMP AS _ve, name, city, state,
               a.id AS auction
        FROM auctions a JOIN persons p ON seller = p.id WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        WITH {_CLOSED},
        moments AS (SELECT category, expires AS _vs, sum(price) AS s, count(*) AS n FROM closed GROUP BY ALL)
        SELECT _vs, lead(_vs) OVER w AS _ve, category, (sum(s) OVER w)::DOUBLE / sum(n) OVER w AS price
        FROM moments WINDOW w AS (PARTITION BY category ORDER BY _vs)
    """,
    "q5": """
        WITH windows AS (
            SELECT auction, make_timestamp(2000000 * unnest(range(e // 2000000 - 4, e // 2000000 + 1))) AS _vs
            FROM (SELECT auction, epoch_us(date_time) AS e FROM bids)
        ), counts AS (SELECT auction, _vs, count(*) AS bids FROM windows GROUP BY ALL)
        SELECT _vs, _vs + INTERVAL 10 SECOND AS _ve, auction, bids FROM counts
        QUALIFY bids = max(bids) OVER (PARTITION BY _vs)
    """,
    "q6": f"""
        WITH {_CLOSED},
        means AS (
            SELECT seller, expires, (sum(price) OVER w)::DOUBLE / count(*) OVER w AS price,
                   row_number() OVER (PARTITION BY seller, expires ORDER BY auction) AS nth
            FROM closed WINDOW w AS (PARTITION BY seller ORDER BY expires, auction DESC ROWS 9 PRECEDING)
        )
        SELECT expires AS _vs, lead(expires) OVER (PARTITION BY seller ORDER BY expires) AS _ve, seller, price
        FROM means WHERE nth = 1
    """,
    "q7": f"""
        SELECT {_MOMENT}, auction, bidder, price, date_time, extra FROM bids
        QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECOND, date_time))
    """,
    "q8": """
        WITH p AS (SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECOND, date_time) AS _vs FROM persons),
        a AS (SELECT DISTINCT seller AS id, time_bucket(INTERVAL 10 SECOND, date_time) AS _vs FROM auctions)
        SELECT _vs, _vs + INTERVAL 10 SECOND AS _ve, id, name FROM p JOIN a USING (id, _vs)
    """,
    "q9": f"""
        SELECT expires AS _vs, expires + {_TICK} AS _ve, auction, b.date_time, bidder, price, b.extra,
               item_name, seller, category, expires
        FROM {_OFFERED}
        QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, b.date_time) = 1
    """,
    "q10": f"""
        SELECT {_MOMENT}, auction, bidder, price, date_time, extra,
               strftime(date_time, '%Y-%m-%d') AS day, strftime(date_time, '%H:%M') AS minute FROM bids
    """,
    "q11": f"""
        WITH starts AS (
            SELECT bidder, date_time,
                   coalesce(date_time - lag(date_time) OVER w > INTERVAL 10 SECOND, true) AS is_first
            FROM bids WINDOW w AS (PARTITION BY bidder ORDER BY date_time)
        ), visits AS (
            SELECT bidder, date_time,
                   sum(is_first::INT) OVER (PARTITION BY bidder ORDER BY date_time) AS visit FROM starts
        )
        SELECT min(date_time) AS _vs, max(date_time) + {_TICK} AS _ve, bidder, count(*) AS bids
        FROM visits GROUP BY bidder, visit
    """,
    "q12": """
        SELECT time_bucket(INTERVAL 10 SECOND, arrived) AS _vs, _vs + INTERVAL 10 SECOND AS _ve, bidder,
               count(*) AS bids FROM bids GROUP BY ALL
    """,
    "q13": f"""
        SELECT {_MOMENT}, auction, bidder, price, date_time, value
        FROM bids JOIN side ON auction % 10000 = key
    """,
    "q14": f"""
        SELECT {_MOMENT}, auction, bidder, date_time, extra, price * 0.908::DOUBLE AS price,
               CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                    ELSE 'otherTime' END AS time_of_day,
               length(extra) - length(replace(extra, 'c', '')) AS c
        FROM bids WHERE price * 0.908::DOUBLE > 1000000 AND price * 0.908::DOUBLE < 50000000
    """,
    "q15": f"SELECT {_DAY}, {_STATISTICS} FROM bids GROUP BY ALL",
    "q16": f"""
        SELECT {_DAY}, channel, max(strftime(date_time, '%H:%M')) AS minute, {_STATISTICS}
        FROM bids GROUP BY ALL
    """,
    "q17": f"""
        SELECT {_DAY}, auction, count(*) AS bids, count(*) FILTER (price < 10000) AS bids1,
               count(*) FILTER (price >= 10000 AND price < 1000000) AS bids2,
               count(*) FILTER (price >= 1000000) AS bids3, min(price) AS least, max(price) AS most,
               sum(price)::DOUBLE / count(*) AS mean, sum(price)::BIGINT AS total FROM bids GROUP BY ALL
    """,
    "q18": """
        SELECT date_time AS _vs, lead(date_time) OVER w AS _ve,
               auction, bidder, price, channel, url, date_time, extra
        FROM bids WINDOW w AS (PARTITION BY bidder, auction ORDER BY date_time)
    """,
    "q19": """
        WITH moments AS (
            SELECT auction, date_time AS _vs, lead(date_time) OVER w AS _ve
            FROM bids WINDOW w AS (PARTITION BY auction ORDER BY date_time)
        )
        SELECT _vs, _ve, auction, bidder, price, date_time,
               row_number() OVER (PARTITION BY auction, _vs ORDER BY price DESC, date_time) AS rank
        FROM moments JOIN bids USING (auction) WHERE date_time <= _vs QUALIFY rank <= 10
    """,
    "q20": """
        SELECT greatest(a.date_time, b.date_time) AS _vs, NULL::TIMESTAMP AS _ve, auction, bidder, price,
               channel, url, b.date_time, item_name, initial_bid, reserve, expires, seller, category
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE category = 10
    """,
    "q21": f"""
        SELECT {_MOMENT}, auction, bidder, price, channel,
               {_CHANNELS} ELSE nullif(regexp_extract(url, 'channel_id=([^&]*)', 1), '') END AS channel_id
        FROM bids WHERE channel_id IS NOT NULL
    """,
    "q22": f"""
        SELECT {_MOMENT}, auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
               split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bids
    """,
}  # fmt: skip


def connect(folder: Path, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A connection in which persons, auctions, bids and side are what the files say in the end."""
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    # Times are without a zone here: all are in UTC.
    connection.sql("SET TimeZone = 'UTC'")
    for name in ("persons", "auctions", "bids", "side"):
        connection.sql(_view(connection, name, f"read_parquet('{folder}/{name}/*.parquet')"))
    return connection


def answer(folder: Path, query: str, threads: int = 1) -> pa.Table:
    """DuckDB's answer."""
    with connect(folder, threads) as connection:
        return connection.sql(SQL[query]).to_arrow_table()


def differences(ours: pa.Table, theirs: pa.Table) -> tuple[int, int]:
    """How many rows are missing in the first, and how many it has that the other has not."""
    import duckdb

    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        connection.register("ours", without_zones(ours))
        connection.register("theirs", without_zones(theirs.select(ours.column_names)))
        missing = _count(connection, "FROM theirs EXCEPT ALL FROM ours")
        return missing, _count(connection, "FROM ours EXCEPT ALL FROM theirs")


def _view(connection: Any, name: str, files: str) -> str:
    """Rows that were taken back are not there."""
    columns = connection.sql(f"SELECT * FROM {files} LIMIT 0").columns
    kept = ", ".join(
        f"{c}::TIMESTAMP AS {c}" if c in ("date_time", "expires", "arrived") else c
        for c in columns
        if not c.startswith("_")
    )
    if "_kind" not in columns:
        return f"CREATE VIEW {name} AS SELECT {kept} FROM {files}"
    kept = kept.replace("arrived::TIMESTAMP AS arrived", "NULL AS arrived")
    kinds = [f"SELECT {kept} FROM {files} WHERE _kind = '{kind}'" for kind in ("insert", "retract")]
    return f"CREATE VIEW {name} AS {kinds[0]} EXCEPT ALL {kinds[1]}"


def _count(connection: Any, sql: str) -> int:
    return int(connection.sql(f"SELECT count(*) AS n FROM ({sql})").to_arrow_table()["n"][0].as_py())


def without_zones(table: pa.Table) -> pa.Table:
    """All times are in UTC, and compared without saying so."""
    naive = pa.timestamp("us")
    fields = [
        field.with_type(naive) if pa.types.is_timestamp(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))
