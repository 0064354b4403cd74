"""The tick of a moment is the same by every way in, and what is refused is refused by all of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import RecensionError
from recension.gate.files import open_stream

SOURCE = rc.source("s", {"x": "int64"})
ZONES: list[Any] = [
    None,
    dt.UTC,
    ZoneInfo("Europe/Paris"),
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("America/St_Johns"),
]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps"]
moments = st.sampled_from(ZONES).flatmap(
    lambda zone: st.datetimes(dt.datetime(1680, 1, 1), dt.datetime(2260, 1, 1), timezones=st.just(zone))
)


def tick(moment: dt.datetime) -> int:
    """By Python's own arithmetic."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (aware.astimezone(dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)


def pushed(data: Any) -> tuple[list[int], pa.DataType]:
    out = rc.run(SOURCE, {"s": data}, close=True)
    return out.history().vs.tolist(), out.time_type


def advanced(time: Any) -> int:
    session = rc.session(SOURCE)
    session.advance("s", time)
    return session.read().elements()[0].t  # type: ignore[union-attr]


def spelled(moment: dt.datetime) -> str:
    """ISO 8601; offsets of old had seconds, which files refuse."""
    offset = moment.utcoffset() or dt.timedelta()
    return (moment.astimezone(dt.UTC) if offset.seconds % 60 else moment).isoformat()


def columns(moment: dt.datetime) -> Iterator[pa.Array]:
    """Arrow columns of the units that hold the moment exactly."""
    for unit, ticks in (("us", 1), ("ms", 1_000), ("s", 1_000_000), ("ns", 1)):
        if tick(moment) % ticks == 0:
            zone = None if moment.tzinfo is None else str(moment.tzinfo)
            yield pa.array([moment], pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone))


@settings(max_examples=30)
@given(moments)
def test_the_tick_is_the_same_by_every_way_in(
    tmp_path_factory: pytest.TempPathFactory, moment: dt.datetime
) -> None:
    expected = tick(moment)
    folder: Path = tmp_path_factory.mktemp("times")
    for written in (moment, pd.Timestamp(moment), moment.isoformat(), str(moment)):
        assert rc.Insert({"x": 1}, written).vs == expected
        assert advanced(written) == expected
    assert pushed([rc.Insert({"x": 1}, moment)])[0] == [expected]
    for column in columns(moment):
        found, kind = pushed(pa.table({"_vs": column, "x": [1]}))
        assert found == [expected]
        assert kind.tz == column.type.tz
    assert pushed(pd.DataFrame({"_vs": [moment], "x": [1]}))[0] == [expected]
    text = spelled(moment)
    (folder / "t.csv").write_text(f"_vs,x\n{text},1\n")
    (folder / "t.jsonl").write_text(json.dumps({"_vs": text, "x": 1}) + "\n")
    for name in ("t.csv", "t.jsonl"):
        reader = open_stream(folder / name)
        assert [batch.vs.tolist() for batch in reader] == [[expected]]
        assert bool(reader.time_type.tz) == (moment.tzinfo is not None)


@settings(max_examples=30)
@given(moments)
def test_what_is_shown_and_given_back_is_the_same(moment: dt.datetime) -> None:
    out = rc.run(SOURCE, {"s": [rc.Insert({"x": 1}, moment), rc.Cti(rc.FOREVER)]})
    assert instant_shown(out) == tick(moment)
    for given_back in (out.to_arrow(), out.elements()):
        again = rc.run(SOURCE, {"s": given_back})
        assert again.time_type == out.time_type
        assert again.elements() == out.elements()


def instant_shown(out: Any) -> int:
    return rc.Insert({}, str(out.elements()[0].vs)).vs


@given(st.sampled_from(UNITS), st.integers(-(10**4), 10**4))
def test_numpy_times_of_any_unit(unit: Any, amount: int) -> None:
    moment = np.datetime64(amount, unit)
    parts = {"ns": 10**3, "ps": 10**6}.get(unit, 1)
    if amount % parts:
        with pytest.raises(rc.TimeError, match="whole number"):
            rc.Cti(moment)
        with pytest.raises(rc.TimeError, match="whole number"):
            advanced(moment)
        return
    expected = moment.astype("datetime64[us]").astype(np.int64).item()
    assert rc.Cti(moment).t == advanced(moment) == expected


KINDS = [5, dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]


@given(st.permutations(KINDS), st.integers(0, 1))
def test_two_kinds_are_refused_by_every_way_in(kinds: list[Any], way: int) -> None:
    first, second, _ = kinds
    session = rc.session(SOURCE)
    session.push("s", [rc.Insert({"x": 1}, first)])
    other: list[Any] = [[rc.Insert({"x": 1}, second)], pa.table({"_vs": [second], "x": [1]})]
    for refused in (
        lambda: session.push("s", other[way]),
        lambda: session.advance("s", second),
        lambda: session.hear(second),
        lambda: rc.Insert({"x": 1}, first, second),
    ):
        with pytest.raises(RecensionError, match=r"mix|but those of"):
            refused()
    session.advance("s", rc.FOREVER)
    assert len(session.read().history()) == 1
