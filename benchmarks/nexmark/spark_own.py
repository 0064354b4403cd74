"""NEXMark in Spark's own Structured Streaming: DataFrames and its operators, nothing of this library.

Every query is written as far as the DataFrame API goes; if Spark refuses to start it, what Spark says is the
reason in the table. A window's answer comes when the watermark has passed it (append mode), other aggregates
are written anew whenever they change (update mode).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BID = (
    "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string, "
    "arrived timestamp"
)
_COLUMNS = {
    "persons": "id long, name string, email string, credit_card string, city string, state string, "
    "date_time timestamp, extra string",
    "auctions": "id long, item_name string, description string, initial_bid long, reserve long, "
    "date_time timestamp, expires timestamp, seller long, category long, extra string",
    "bids": _BID,
}
_EURO = 0.908


@dataclass(frozen=True)
class Tables:
    """The files as streams, so many a micro-batch."""

    spark: Any
    folder: Path
    files: int

    def stream(self, name: str, time: str = "date_time", late: str = "10 seconds") -> Any:
        """With a watermark on its time."""
        frame = self.spark.readStream.schema(_COLUMNS[name]).option("maxFilesPerTrigger", self.files)
        return frame.parquet(str(self.folder / name)).withWatermark(time, late)

    @property
    def persons(self) -> Any:
        """A stream."""
        return self.stream("persons")

    @property
    def auctions(self) -> Any:
        """A stream."""
        return self.stream("auctions")

    @property
    def bids(self) -> Any:
        """A stream."""
        return self.stream("bids")

    @property
    def side(self) -> Any:
        """A table."""
        return self.spark.read.parquet(str(self.folder / "side"))


def q0(t: Tables) -> Any:
    return t.bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(t: Tables) -> Any:
    return t.bids.selectExpr("auction", "bidder", "date_time", "extra", f"price * double({_EURO}) AS price")


def q2(t: Tables) -> Any:
    return t.bids.where("auction % 123 = 0").select("auction", "price")


def q3(t: Tables) -> Any:
    sellers = t.persons.where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    offered = t.auctions.where("category = 10").selectExpr("id AS auction", "seller")
    return offered.join(sellers, offered.seller == sellers.id).select("name", "city", "state", "auction")


_PLAIN_TIME = "date_time + INTERVAL 0 SECONDS AS date_time"
"""No longer the event time: a stream may have one column of those."""


def _closed(t: Tables, *columns: str) -> tuple[Any, list[str]]:
    """Bids on auctions that were open, by auction; a group is final when the watermark passes its closing."""
    from pyspark.sql import functions as F  # noqa: N812

    # An auction closes a few seconds after it opened, and that comes up to ten seconds late.
    auctions = t.stream("auctions", "expires", "20 seconds")
    auctions = auctions.selectExpr("id", "date_time AS opened", "expires", *columns)
    is_open = F.expr("auction = id AND date_time >= opened AND date_time < expires")
    offered = t.bids.join(auctions, is_open)
    keys = ["auction", "expires", *columns]
    return offered.select(F.expr(_PLAIN_TIME), "bidder", "price", "extra", *keys).groupBy(*keys), keys


def q4(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    closed, _ = _closed(t, "category")
    return closed.agg(F.max("price").alias("price")).groupBy("category").agg(F.avg("price").alias("price"))


def q5(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window("date_time", "10 seconds", "2 seconds")
    counts = t.bids.groupBy(window, "auction").agg(F.count("*").alias("bids"))
    both = F.struct("auction", "bids").alias("one")
    most = counts.groupBy("window").agg(F.max("bids").alias("most"), F.collect_list(both).alias("all"))
    rows = most.select("window", "most", F.explode("all").alias("one")).where("one.bids = most")
    return rows.selectExpr("window.start AS _vs", "one.auction", "one.bids")


def q6(t: Tables) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    closed, _ = _closed(t, "seller")
    last = Window.partitionBy("seller").orderBy(F.desc("expires"), "auction")
    sold = closed.agg(F.max("price").alias("price")).withColumn("nth", F.row_number().over(last))
    return sold.where("nth <= 10").groupBy("seller").agg(F.avg("price").alias("price"))


def q7(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window("date_time", "10 seconds")
    highest = t.bids.groupBy(window).agg(F.max("price").alias("price"))
    bids = t.bids.select(window, "auction", "bidder", "price", F.expr(_PLAIN_TIME), "extra")
    return bids.join(highest, ["window", "price"]).select("auction", "bidder", "price", "date_time", "extra")


def q8(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    window = F.window("date_time", "10 seconds")
    new = t.persons.groupBy(window, "id", "name").agg(F.count("*").alias("came"))
    sellers = t.auctions.groupBy(window, F.col("seller").alias("id")).agg(F.count("*").alias("opened"))
    return new.join(sellers, ["window", "id"]).selectExpr("window.start AS _vs", "id", "name")


def q9(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    offered, keys = _closed(t, "item_name", "seller", "category")
    order = F.expr("struct(price, -unix_micros(date_time))")
    best = F.max_by(F.struct("date_time", "bidder", "price", "extra"), order).alias("best")
    return offered.agg(best).select("best.*", *keys)


def q10(t: Tables) -> Any:
    return q0(t).selectExpr(
        "*", "date_format(date_time, 'yyyy-MM-dd') AS day", "date_format(date_time, 'HH:mm') AS minute"
    )


def q11(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    visits = t.bids.groupBy(F.session_window("date_time", "10 seconds"), "bidder")
    return visits.agg(F.count("*").alias("bids")).selectExpr("session_window.start AS _vs", "bidder", "bids")


def q12(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    arrivals = t.stream("bids", "arrived", "0 seconds").groupBy(F.window("arrived", "10 seconds"), "bidder")
    return arrivals.agg(F.count("*").alias("bids")).selectExpr("window.start AS _vs", "bidder", "bids")


def q13(t: Tables) -> Any:
    side = t.side
    bids = t.bids.select("auction", "bidder", "price", "date_time")
    return bids.join(side, bids.auction % 10_000 == side.key).drop("key")


def q14(t: Tables) -> Any:
    euros, hour = f"price * double({_EURO})", "hour(date_time)"
    time_of_day = (
        f"CASE WHEN {hour} BETWEEN 8 AND 18 THEN 'dayTime' WHEN {hour} <= 6 OR {hour} >= 20 "
        "THEN 'nightTime' ELSE 'otherTime' END AS time_of_day"
    )
    letters = "length(extra) - length(replace(extra, 'c', '')) AS c"
    return t.bids.where(f"{euros} > 1000000 AND {euros} < 50000000").selectExpr(
        "auction", "bidder", "date_time", "extra", f"{euros} AS price", time_of_day, letters
    )


def _statistics() -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812

    ranks = ("true", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
    found = []
    for n, rank in zip(("", "1", "2", "3"), ranks, strict=True):
        found.append(F.expr(f"count_if({rank}) AS bids{n}"))
        for column in ("bidder", "auction"):
            one = F.when(F.expr(rank), F.col(column))
            found.append(F.count_distinct(one).alias(f"{column}s{n}"))
    return found


_DAY = "date_format(date_time, 'yyyy-MM-dd') AS day"


def q15(t: Tables) -> Any:
    return t.bids.selectExpr("*", _DAY).groupBy("day").agg(*_statistics())


def q16(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    minute = F.max(F.date_format("date_time", "HH:mm")).alias("minute")
    return t.bids.selectExpr("*", _DAY).groupBy("day", "channel").agg(minute, *_statistics())


def q17(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    figures = (
        "count(*) AS bids", "count_if(price < 10000) AS bids1",
        "count_if(price >= 10000 AND price < 1000000) AS bids2", "count_if(price >= 1000000) AS bids3",
        "min(price) AS least", "max(price) AS most", "avg(price) AS mean", "sum(price) AS total",
    )  # fmt: skip
    return t.bids.selectExpr("*", _DAY).groupBy("day", "auction").agg(*map(F.expr, figures))


def q18(t: Tables) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    row = F.struct("price", "channel", "url", "date_time", "extra")
    last = t.bids.groupBy("bidder", "auction").agg(F.max_by(row, "date_time").alias("last"))
    return last.select("auction", "bidder", "last.*")


def q19(t: Tables) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    highest = Window.partitionBy("auction").orderBy(F.desc("price"), "date_time")
    bids = t.bids.select("auction", "bidder", "price", "date_time")
    return bids.withColumn("rank", F.row_number().over(highest)).where("rank <= 10")


def q20(t: Tables) -> Any:
    offered = t.auctions.where("category = 10").select(
        "id", "item_name", "initial_bid", "reserve", "expires", "seller", "category"
    )
    bids = t.bids.select("auction", "bidder", "price", "channel", "url", "date_time")
    return bids.join(offered, bids.auction == offered.id).drop("id")


def q21(t: Tables) -> Any:
    channel_id = (
        "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' "
        "WHEN 'baidu' THEN '3' ELSE nullif(regexp_extract(url, 'channel_id=([^&]*)', 1), '') END"
    )
    numbered = t.bids.selectExpr("auction", "bidder", "price", "channel", f"{channel_id} AS channel_id")
    return numbered.where("channel_id IS NOT NULL")


def q22(t: Tables) -> Any:
    parts = (f"split_part(url, '/', {n + 3}) AS dir{n}" for n in (1, 2, 3))
    return t.bids.selectExpr("auction", "bidder", "price", "channel", *parts)


FRAMES: dict[str, Callable[[Tables], Any]] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}
UPDATES = {
    "q12": ("_vs", "bidder"),
    "q15": ("day",),
    "q16": ("day", "channel"),
    "q17": ("day", "auction"),
    "q18": ("bidder", "auction"),
}
"""The queries in update mode: a row stands for all earlier ones of the same keys."""
