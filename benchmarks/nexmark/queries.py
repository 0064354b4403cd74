"""NEXMark's queries as a user of this library writes them. Nothing is declared of the sources.

A row is something that happens at its time. Where a query is about what is known, as a table is, its rows
hold from that time on (`_known`), and an auction that is open holds until it expires. So an answer is not
only the last table, but what that table was at every moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import recension as rc
from recension import col, lit, when

TICK = dt.timedelta(microseconds=1)
STAMP = "timestamp[us, UTC]"
EURO = 0.908

persons = rc.source(
    "persons",
    {"id": "int64", "name": "string", "email": "string", "credit_card": "string", "city": "string",
     "state": "string", "date_time": STAMP, "extra": "string"},
    start="date_time",
)  # fmt: skip
_AUCTION = {
    "id": "int64", "item_name": "string", "description": "string", "initial_bid": "int64",
    "reserve": "int64", "date_time": STAMP, "expires": STAMP, "seller": "int64", "category": "int64",
    "extra": "string",
}  # fmt: skip
_BID = {
    "auction": "int64", "bidder": "int64", "price": "int64", "channel": "string", "url": "string",
    "date_time": STAMP, "extra": "string",
}  # fmt: skip
auctions = rc.source("auctions", _AUCTION, start="date_time")
open_auctions = rc.source("auctions", _AUCTION, start="date_time", end="expires")
bids = rc.source("bids", _BID, start="date_time")
arrivals = rc.source("bids", _BID, start="arrived")
side = rc.table("side", {"key": "int64", "value": "string"})


def _known(stream: rc.Stream) -> rc.Stream:
    """From its time on."""
    return stream.with_lifetime(rc.start(), None)


def q0() -> rc.Stream:
    """Every bid as it is."""
    return bids.select("auction", "bidder", "price", "date_time", "extra")


def q1() -> rc.Stream:
    """Prices in another currency."""
    return bids.select("auction", "bidder", "date_time", "extra", price=col("price") * EURO)


def q2() -> rc.Stream:
    """Bids on some auctions."""
    return bids.where(col("auction") % 123 == 0).select("auction", "price")


def q3() -> rc.Stream:
    """Who sells in some category, in three states."""
    sellers = persons.where(col("state").is_in(["OR", "ID", "CA"]))
    offered = auctions.where(col("category") == 10).select(auction="id", id="seller")
    return _known(offered).join(_known(sellers), on="id").select("name", "city", "state", "auction")


def closed_auctions() -> rc.Stream:
    """What an auction was sold for, at the moment when it closes."""
    offers = open_auctions.select("category", "seller", "expires", auction="id")
    return (
        bids.select("auction", "price")
        .join(offers, on="auction")
        .with_lifetime(col("expires"), col("expires") + TICK, bound=0)
        .group_by("auction", "category", "seller")
        .agg(price=rc.max("price"))
    )


def q4() -> rc.Stream:
    """The mean price of the closed auctions of each category, from each closing to the next."""
    return _known(closed_auctions()).group_by("category").agg(price=rc.mean("price"))


def q5() -> rc.Stream:
    """The auctions with the most bids in the last 10 seconds, every 2 seconds."""
    counts = bids.group_by("auction").hopping("10s", "2s").agg(bids=rc.count())
    counts = counts.with_columns(window=rc.start())
    most = counts.group_by("window").agg(most=rc.max("bids"))
    return counts.join(most, on="window", where=col("bids") == col("most")).select("auction", "bids")


def q6() -> rc.Stream:
    """The mean price of each seller's last ten closed auctions."""
    sold = _known(closed_auctions().with_columns(closed=rc.start()))
    last = sold.group_by("seller").agg(rc.top_k(10, by="closed"))
    return last.group_by("seller").agg(price=rc.mean("price"))


def q7() -> rc.Stream:
    """The highest bids of every 10 seconds."""
    highest = bids.tumbling("10s").agg(price=rc.max("price"))
    return bids.join(highest, on="price").select("auction", "bidder", "price", "date_time", "extra")


def q8() -> rc.Stream:
    """Persons who came and opened an auction within the same 10 seconds."""
    new = persons.group_by("id", "name").tumbling("10s").agg(came=rc.count())
    sellers = auctions.group_by(id="seller").tumbling("10s").agg(opened=rc.count())
    return new.join(sellers, on="id").select("id", "name")


def q9() -> rc.Stream:
    """The winning bid of every auction, at the moment when it closes; of equal prices the first."""
    offers = open_auctions.select("item_name", "seller", "category", "expires", auction="id")
    offered = (
        bids.select("date_time", "auction", "bidder", "price", "extra")
        .join(offers, on="auction")
        .with_lifetime(col("expires"), col("expires") + TICK, bound=0)
    )
    return offered.group_by("auction").agg(rc.top_k(1, by="price")).drop("rank")


def q10() -> rc.Stream:
    """Every bid with its day and minute, to be written to a folder for each."""
    at = col("date_time").dt
    return bids.select(
        "auction", "bidder", "price", "date_time", "extra",
        day=at.to_string("%Y-%m-%d"), minute=at.to_string("%H:%M"),
    )  # fmt: skip


def q11() -> rc.Stream:
    """How often each bidder bids without a pause of more than 10 seconds."""
    return bids.group_by("bidder").sessions("10s").agg(bids=rc.count())


def q12() -> rc.Stream:
    """How often each bidder bids in every 10 seconds by the clock of the arrivals."""
    return arrivals.group_by("bidder").tumbling("10s").agg(bids=rc.count())


def q13() -> rc.Stream:
    """Bids with what a table says of their auctions."""
    keyed = bids.with_columns(key=col("auction") % 10_000)
    return keyed.join(side, on="key").select("auction", "bidder", "price", "date_time", "value")


@rc.udf(result="int64", over="arrow")
def count_c(text: pa.Array) -> pa.Array:
    """How many letters c a text has."""
    return pc.count_substring(text, "c").cast(pa.int64())


def q14() -> rc.Stream:
    """Bids of some prices, the time of day in words, and a function of our own."""
    hour, euros = col("date_time").dt.hour(), col("price") * EURO
    time_of_day = (
        when(hour.is_between(8, 18)).then(lit("dayTime"))
        .when((hour <= 6) | (hour >= 20)).then(lit("nightTime"))
        .otherwise(lit("otherTime"))
    )  # fmt: skip
    return bids.where((euros > 1_000_000) & (euros < 50_000_000)).select(
        "auction", "bidder", "date_time", "extra", price=euros, time_of_day=time_of_day, c=count_c("extra")
    )


def statistics() -> dict[str, Any]:
    """Bids, bidders and auctions, of all prices and of three ranks of them."""
    price = col("price")
    ranks = {
        "": None,
        "1": price < 10_000,
        "2": (price >= 10_000) & (price < 1_000_000),
        "3": price >= 1_000_000,
    }
    asked = {}
    for rank, condition in ranks.items():
        asked[f"bids{rank}"] = rc.count(where=condition)
        asked[f"bidders{rank}"] = rc.n_unique("bidder", where=condition)
        asked[f"auctions{rank}"] = rc.n_unique("auction", where=condition)
    return asked


def q15() -> rc.Stream:
    """The bids of each day in figures."""
    return bids.tumbling("1d").agg(**statistics())


def q16() -> rc.Stream:
    """The bids of each channel and day in figures."""
    minute = rc.max(col("date_time").dt.to_string("%H:%M"))
    return bids.group_by("channel").tumbling("1d").agg(minute=minute, **statistics())


def q17() -> rc.Stream:
    """The bids on each auction and day in figures."""
    price = col("price")
    return (
        bids.group_by("auction")
        .tumbling("1d")
        .agg(
            bids=rc.count(),
            bids1=rc.count(where=price < 10_000),
            bids2=rc.count(where=(price >= 10_000) & (price < 1_000_000)),
            bids3=rc.count(where=price >= 1_000_000),
            least=rc.min("price"),
            most=rc.max("price"),
            mean=rc.mean("price"),
            total=rc.sum("price"),
        )
    )


def q18() -> rc.Stream:
    """The last bid of each bidder on each auction, until the next."""
    return bids.edges(group_by=["bidder", "auction"])


def q19() -> rc.Stream:
    """The ten highest bids on each auction, and their ranks, from each change to the next."""
    offered = bids.select("auction", "bidder", "price", "date_time")
    return _known(offered).group_by("auction").agg(rc.top_k(10, by="price"))


def q20() -> rc.Stream:
    """Bids with their auctions, in one category."""
    offered = auctions.where(col("category") == 10).select(
        "item_name", "initial_bid", "reserve", "expires", "seller", "category", auction="id"
    )
    made = bids.select("auction", "bidder", "price", "channel", "url", "date_time")
    return _known(made).join(_known(offered), on="auction")


def q21() -> rc.Stream:
    """The number of a bid's channel: of a table, or said in its address."""
    name, said = col("channel").str.to_lowercase(), col("url").str.split("channel_id=")
    number = (
        when(name == "apple").then(lit("0")).when(name == "google").then(lit("1"))
        .when(name == "facebook").then(lit("2")).when(name == "baidu").then(lit("3"))
        .when(said.list.len() > 1).then(said.list.get(1))
    )  # fmt: skip
    numbered = bids.select("auction", "bidder", "price", "channel", channel_id=number)
    return numbered.where(~col("channel_id").is_null())


def q22() -> rc.Stream:
    """The folders of a bid's address."""
    part = col("url").str.split("/").list
    return bids.select(
        "auction", "bidder", "price", "channel", dir1=part.get(3), dir2=part.get(4), dir3=part.get(5)
    )


QUERIES: dict[str, Callable[[], rc.Stream]] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}
