"""Persons, auctions and bids of an auction house: NEXMark's generator, whole columns at a time.

As in the original, of 50 events one is a person, three are auctions and 46 are bids, and some of each are
hot: half of the bids go to one auction, three quarters come from one bidder, and one seller in a hundred
has three quarters of the auctions; which ones changes as time goes on. Bids may name an auction that opens
a little later. New here: events arrive out of order (``late`` of them by up to ``lateness``), and
``revisions`` of the bids first come with a wrong price, which is taken back later.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Numbers = np.ndarray[Any, Any]
STAMP = pa.timestamp("us", "UTC")
SECOND = 1_000_000
MIDNIGHT = int(dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp()) * SECOND

_EPOCH, _PERSONS, _AUCTIONS = 50, 1, 3
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
_ACTIVE_PERSONS, _IN_FLIGHT, _LEAD, _HOT = 1000, 100, 10, 100
_CHANNELS, _SIDE = 10_000, 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS = np.array([*"abcdefghijklmnopqrstuvwxyz"])


@dataclass(frozen=True)
class Settings:
    """What to make: the same settings give the same rows."""

    events: int
    seed: int = 1
    rate: float = 1000.0
    """Events a second of event time."""
    late: float = 0.2
    lateness: int = 10 * SECOND
    revisions: float = 0.0
    steps: int = 40


def generate(settings: Settings) -> dict[str, pa.Table]:
    """The three tables, each in order of arrival, with the time of it in ``arrived``."""
    rng = np.random.default_rng(settings.seed)
    number = np.arange(settings.events)
    offset = number % _EPOCH
    gap = SECOND / settings.rate
    # Midnight lies in the middle, so that there are two days. No two events have the same time.
    first = MIDNIGHT - int(settings.events // 2 * gap)
    time = first + (number * gap).astype(np.int64) + rng.integers(0, max(1, int(gap)), settings.events)
    is_late = rng.random(settings.events) < settings.late
    arrived = time + np.where(is_late, rng.integers(0, settings.lateness, settings.events), 0)
    is_bid = offset >= _PERSONS + _AUCTIONS
    makers = {"persons": _persons, "auctions": _auctions, "bids": _bids}
    chosen = {"persons": offset < _PERSONS, "auctions": (offset >= _PERSONS) & ~is_bid, "bids": is_bid}
    tables = {}
    for name, make in makers.items():
        at = np.flatnonzero(chosen[name])
        columns = make(rng, number[at], time[at], gap) | _times(time[at], arrived[at])
        tables[name] = pa.table(columns).take(np.argsort(arrived[at], kind="stable"))
    if settings.revisions:
        tables["bids"] = _revise(rng, tables["bids"], settings)
    return tables


def side_table() -> pa.Table:
    """The bounded table that bids are joined with."""
    keys = np.arange(_SIDE)
    return pa.table({"key": keys, "value": pa.array([f"value {key}" for key in keys])})


def write(settings: Settings, folder: Path) -> None:
    """``steps`` files of each table, with as many events each, and the CTI after each step."""
    tables = generate(settings)
    arrivals = {name: _ticks(table["arrived"]) for name, table in tables.items()}
    together = np.sort(np.concatenate([*arrivals.values()]))
    last = [int(part[-1]) for part in np.array_split(together, settings.steps) if len(part)]
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        ends = [0, *np.searchsorted(arrivals[name], last, side="right")]
        for step, (start, stop) in enumerate(pairwise(ends)):
            file = folder / name / f"{step:05}.parquet"
            pq.write_table(table.slice(start, stop - start), file)
            # Spark takes files in the order of these times.
            os.utime(file, (step, step))
    (folder / "side").mkdir()
    pq.write_table(side_table(), folder / "side" / "00000.parquet")
    ctis = [t - settings.lateness for t in last]
    (folder / "steps.json").write_text(json.dumps({"events": settings.events, "ctis": ctis}))


def _times(time: Numbers, arrived: Numbers) -> dict[str, pa.Array]:
    return {"date_time": _stamps(time), "arrived": _stamps(arrived)}


def _persons(rng: np.random.Generator, number: Numbers, time: Numbers, gap: float) -> dict[str, Any]:
    names = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
    return {
        "id": _FIRST_ID + number // _EPOCH,
        "name": _pick(rng, names, number),
        "email": _pick(rng, [f"{text}@{text[::-1]}.com" for text in _texts(rng, 7)], number),
        "credit_card": _pick(rng, [f"{n:04} {n:04}" for n in range(1000, 2000)], number),
        "city": _pick(rng, _CITIES, number),
        "state": _pick(rng, _STATES, number),
        "extra": _pick(rng, _texts(rng, 100), number),
    }


def _auctions(rng: np.random.Generator, number: Numbers, time: Numbers, gap: float) -> dict[str, Any]:
    epoch, offset = number // _EPOCH, number % _EPOCH
    price = _prices(rng, number)
    # About as long as it takes until a hundred more auctions are open.
    longest = max(2, int(2 * gap * _IN_FLIGHT * _EPOCH / _AUCTIONS))
    return {
        "id": _FIRST_ID + epoch * _AUCTIONS + offset - _PERSONS,
        "item_name": _pick(rng, _texts(rng, 20), number),
        "description": _pick(rng, _texts(rng, 100), number),
        "initial_bid": price,
        "reserve": price + _prices(rng, number),
        "expires": _stamps(time + 1 + rng.integers(0, longest, len(number))),
        "seller": _FIRST_ID + _hot_or(rng, 4, epoch // _HOT * _HOT, _active_person(rng, epoch)),
        "category": _FIRST_CATEGORY + rng.integers(0, _CATEGORIES, len(number)),
        "extra": _pick(rng, _texts(rng, 200), number),
    }


def _bids(rng: np.random.Generator, number: Numbers, time: Numbers, gap: float) -> dict[str, Any]:
    epoch = number // _EPOCH
    last = epoch * _AUCTIONS + _AUCTIONS - 1
    oldest = np.maximum(last - _IN_FLIGHT, 0)
    some = oldest + rng.integers(0, last - oldest + 1 + _LEAD)
    channels, urls = _channels(rng)
    channel = _hot_or(
        rng, 2, rng.integers(0, len(_HOT_CHANNELS), len(number)), rng.integers(4, len(channels), len(number))
    )
    return {
        "auction": _FIRST_ID + _hot_or(rng, 2, last // _HOT * _HOT, some),
        "bidder": _FIRST_ID + _hot_or(rng, 4, epoch // _HOT * _HOT + 1, _active_person(rng, epoch)),
        "price": _prices(rng, number),
        "channel": pa.array(channels).take(pa.array(channel)),
        "url": pa.array(urls).take(pa.array(channel)),
        "extra": _pick(rng, _texts(rng, 40), number),
    }


def _channels(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Names and addresses; one address in ten does not say its channel."""
    names = [*_HOT_CHANNELS, *(f"channel-{n}" for n in range(_CHANNELS))]
    folders = [_texts(rng, 5) for _ in range(3)]
    parts = zip(*(rng.choice(texts, len(names)) for texts in folders), strict=True)
    says = rng.random(len(names)) < 0.9
    urls = [
        f"https://www.nexmark.com/{'/'.join(part)}/item.htm?query=1" + (f"&channel_id={n}" if said else "")
        for n, (part, said) in enumerate(zip(parts, says, strict=True))
    ]
    return names, urls


def _revise(rng: np.random.Generator, bids: pa.Table, settings: Settings) -> pa.Table:
    """Some bids arrive with ten times their price; that is taken back, in time, and the right one comes."""
    size = bids.num_rows
    wrong = np.flatnonzero(rng.random(size) < settings.revisions)
    time, arrived = _ticks(bids["date_time"]), _ticks(bids["arrived"])
    later = arrived[wrong] + (rng.random(len(wrong)) * (time[wrong] + settings.lateness - arrived[wrong]))
    factor = np.ones(size, np.int64)
    factor[wrong] = 10
    place = bids.schema.get_field_index("price")
    first = bids.set_column(place, "price", pa.array(np.asarray(bids["price"]) * factor))
    rows = np.concatenate([np.arange(size), wrong, size + wrong])
    table = pa.concat_tables([first, bids]).take(rows)
    kind = np.repeat(["insert", "retract", "insert"], [size, len(wrong), len(wrong)])
    when = np.concatenate([arrived, later.astype(np.int64), later.astype(np.int64)])
    start = table["date_time"].combine_chunks()
    ended = pa.array(kind == "retract")
    controls = {"_kind": pa.array(kind), "_vs": start, "_ve": _stamps(_ticks(table["date_time"]) + 1)}
    new_end = pc.if_else(ended, start, pa.scalar(None, STAMP))
    table = table.set_column(table.schema.get_field_index("arrived"), "arrived", _stamps(when))
    for name, column in (controls | {"_new_ve": new_end}).items():
        table = table.append_column(name, column)
    return table.take(np.argsort(when, kind="stable"))


def _hot_or(rng: np.random.Generator, ratio: int, hot: Numbers, other: Numbers) -> Numbers:
    """The hot one, but once in ``ratio`` times another."""
    return np.where(rng.integers(0, ratio, len(hot)) > 0, hot, other)


def _active_person(rng: np.random.Generator, epoch: Numbers) -> Numbers:
    """One of the latest thousand, or one that is about to come."""
    active = np.minimum(epoch + 1, _ACTIVE_PERSONS)
    return np.asarray(epoch + 1 - active + rng.integers(0, active + _LEAD))


def _prices(rng: np.random.Generator, number: Numbers) -> Numbers:
    """Cents; as many of each number of digits."""
    return np.round(10 ** (rng.random(len(number)) * 6) * 100).astype(np.int64)


def _texts(rng: np.random.Generator, length: int) -> list[str]:
    """A thousand texts."""
    return ["".join(word) for word in rng.choice(_LETTERS, (1000, length))]


def _pick(rng: np.random.Generator, texts: Any, number: Numbers) -> pa.Array:
    return pa.array(list(texts)).take(pa.array(rng.integers(0, len(texts), len(number))))


def _stamps(ticks: Numbers) -> pa.Array:
    return pa.array(ticks, pa.int64()).cast(STAMP)


def _ticks(stamps: pa.ChunkedArray) -> Numbers:
    return np.asarray(stamps.combine_chunks().cast(pa.int64()))
