"""Ticks: durations in words, timestamps without loss, and arithmetic that saturates."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.core import ticks
from recension.core.errors import TimeError
from recension.core.ticks import BEGINNING, FOREVER, duration, instant

SECOND = 1_000_000
NEAR_THE_ENDS = [BEGINNING, BEGINNING + 1, BEGINNING + 7, -1, 0, 1, FOREVER - 7, FOREVER - 1, FOREVER]
times = st.one_of(st.sampled_from(NEAR_THE_ENDS), st.integers(BEGINNING, FOREVER))


def array(*values: int) -> ticks.Ticks:
    return np.array(values, np.int64)


# Durations


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (7, 7),
        (-7, -7),
        (FOREVER, FOREVER),
        ("10s", 10 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("1h 30m", 5400 * SECOND),
        ("1h30min", 5400 * SECOND),
        (" 3 us ", 3),
        ("2ms", 2000),
        ("1d", 86400 * SECOND),
        ("1w", 7 * 86400 * SECOND),
        ("-1h 30m", -5400 * SECOND),
        ("10 minutes", 600 * SECOND),
        ("1 hour", 3600 * SECOND),
        ("2 days", 2 * 86400 * SECOND),
        ("500 milliseconds", SECOND // 2),
        ("1.5 hours 1 second", 5401 * SECOND),
        ("3weeks", 21 * 86400 * SECOND),
        ("1 microsecond", 1),
        (np.int16(7), 7),
        (np.timedelta64(2, "h"), 7200 * SECOND),
        (np.timedelta64(3, "W"), 21 * 86400 * SECOND),
        (np.timedelta64(2000, "ns"), 2),
        (np.timedelta64(5 * 10**12, "as"), 5),
        ("0.000001s", 1),
        (dt.timedelta(days=1, microseconds=1), 86400 * SECOND + 1),
        (dt.timedelta(microseconds=-1), -1),
    ],
)
def test_durations(written: Any, expected: int) -> None:
    assert duration(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "10",
        "s",
        "10 parsecs",
        "10S",
        "1h-30m",
        "--1s",
        "1s,",
        "1e3s",
        "0.5us",
        "1.0000001s",
        "1 month",
        "2 years",
        True,
        np.bool_(True),
        1.5,
        np.float64(1),
        None,
        instant("2024-01-01"),
        np.timedelta64(1, "M"),
        np.timedelta64(1, "Y"),
        np.timedelta64(1),
        np.timedelta64("NaT"),
        np.timedelta64(1, "ns"),
    ],
)
def test_what_is_not_a_duration_is_refused(written: Any) -> None:
    with pytest.raises(TimeError):
        duration(written)


@pytest.mark.parametrize(
    ("written", "ticks"),
    [
        ("PT30M", 30 * 60 * 10**6),
        ("P1D", 86_400 * 10**6),
        ("P2W", 14 * 86_400 * 10**6),
        ("P1DT12H", 36 * 3600 * 10**6),
        ("PT0.5S", 500_000),
        ("PT1,5H", 5400 * 10**6),
        ("-PT1H", -3600 * 10**6),
    ],
)
def test_iso_durations(written: str, ticks: int) -> None:
    assert duration(written) == ticks


@pytest.mark.parametrize(
    "written", ["P", "PT", "P1", "P1H", "PT1D", "P1D1W", "PT1S1H", "P1DT", "p1d", "P1D2H", "P-1D"]
)
def test_what_is_no_iso_duration_is_refused(written: str) -> None:
    with pytest.raises(TimeError, match="is not a duration"):
        duration(written)


def test_months_and_years_are_refused_by_name() -> None:
    for written in (
        "3 months",
        "1 year",
        "1y",
        "2mo",
        "P1M",
        "P1Y",
        np.timedelta64(3, "M"),
        np.timedelta64(1, "Y"),
    ):
        with pytest.raises(TimeError, match=r"(months|years) differ in length"):
            duration(written)


@pytest.mark.parametrize("written", [2**63, -(2**63) - 1, "20000000w", dt.timedelta.max])
def test_durations_beyond_64_bits_are_refused(written: Any) -> None:
    with pytest.raises(TimeError, match="64-bit"):
        duration(written)


# Timestamps


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (5, 5),
        (FOREVER, FOREVER),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", SECOND),
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T01:00:01+01:00", SECOND),
        ("1970-01-01T00:00:00.000001", 1),
        ("1970-01-01T00:00:00.000001000", 1),
        ("1969-12-31T23:59:59.999999", -1),
        (dt.date(1970, 1, 2), 86400 * SECOND),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1), 1),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        (np.uint8(5), 5),
        (np.datetime64("1970-01-02"), 86400 * SECOND),
        (np.datetime64("1970-02", "M"), 31 * 86400 * SECOND),
        (np.datetime64("1969", "Y"), -365 * 86400 * SECOND),
        (np.datetime64(1, "W"), 7 * 86400 * SECOND),
        (np.datetime64(1, ("s", 25)), 25 * SECOND),
        (np.datetime64(1000, "ns"), 1),
        (np.datetime64(-(10**12), "as"), -1),
        ("0001-01-01T00:00:00+01:00", -62135600400 * SECOND),
    ],
)
def test_instants(written: Any, expected: int) -> None:
    assert instant(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        *("", "yesterday", "1970-13-01", "1", "20240101", True, np.bool_(False), 1.5, np.float64(1), None),
        *(float("nan"), dt.time(1), dt.timedelta(1), np.timedelta64(1, "s"), np.datetime64("NaT"), b"1", [1]),
        *(np.arange(2000), np.datetime64(1, "ns"), np.datetime64(2**62, "Y"), np.datetime64(2**62, "s")),
    ],
)
def test_what_is_not_a_time_is_refused(written: Any) -> None:
    with pytest.raises(TimeError) as why:
        instant(written)
    assert "\n" not in str(why.value)
    assert len(str(why.value)) < 300


def test_a_text_finer_than_a_microsecond_is_refused_not_cut() -> None:
    with pytest.raises(TimeError, match="whole number of microseconds"):
        instant("1970-01-01T00:00:00.0000009")


@pytest.mark.parametrize("ticks_", [2**63, -(2**63) - 1])
def test_ticks_beyond_64_bits_are_refused(ticks_: int) -> None:
    with pytest.raises(TimeError, match="64-bit"):
        instant(ticks_)


def test_the_finer_times_of_pandas_are_refused_not_cut() -> None:
    pd = pytest.importorskip("pandas")
    assert instant(pd.Timestamp("1970-01-01T00:00:01")) == SECOND
    assert duration(pd.Timedelta("1s")) == SECOND
    with pytest.raises(TimeError):
        instant(pd.Timestamp("1970-01-01T00:00:00.000000900"))
    with pytest.raises(TimeError):
        duration(pd.Timedelta("900ns"))
    with pytest.raises(TimeError):
        instant(pd.NaT)
    for far in (np.datetime64(2**40, "s"), np.datetime64("0001-01-01", "s")):
        assert instant(pd.Timestamp(far)) == instant(far)


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_a_timestamp_survives_the_way_there_and_back(moment: dt.datetime) -> None:
    assert dt.datetime.fromisoformat(str(instant(moment))) == moment
    assert instant(moment.isoformat()) == instant(moment)


# Arithmetic


def exactly(value: int) -> int:
    return max(BEGINNING, min(value, FOREVER))


@given(times, times)
def test_addition_saturates(time: int, delta: int) -> None:
    absorbed = FOREVER if delta == FOREVER else time if time in (BEGINNING, FOREVER) else None
    expected = exactly(time + delta) if absorbed is None else absorbed
    assert ticks.add(array(time), delta).tolist() == [expected]
    assert ticks.add(array(time, time), array(delta, 0)).tolist() == [expected, time]


@given(times, st.one_of(st.integers(1, 20), st.integers(1, FOREVER)), times)
def test_floor_saturates(time: int, step: int, offset: int) -> None:
    floored = exactly(time - (time - offset) % step)
    expected = time if time in (BEGINNING, FOREVER) else floored
    assert ticks.floor(array(time), step, offset).tolist() == [expected]


def test_arithmetic_on_nothing() -> None:
    assert ticks.add(array(), 5).tolist() == []
    assert ticks.floor(array(), 5).tolist() == []


def test_floor_goes_down_before_zero_too() -> None:
    assert ticks.floor(array(-1, 0, 4, 5), 5).tolist() == [-5, 0, 0, 5]
    assert ticks.floor(array(-1, 2, 3), 5, offset=3).tolist() == [-2, -2, 3]


# Columns


def column(values: list[int | None], kind: pa.DataType) -> pa.Array:
    """Values as stored, whatever unit the type gives them."""
    return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (pa.array([1, None], pa.int16()), [1, None]),
        (pa.array([1], pa.uint64()), [1]),
        (column([1, None], pa.timestamp("s")), [SECOND, None]),
        (column([1], pa.timestamp("ms", "Europe/Berlin")), [1000]),
        (column([-1], pa.timestamp("us")), [-1]),
        (column([2000, -1000], pa.timestamp("ns")), [2, -1]),
        (column([1], pa.date32()), [86400 * SECOND]),
        (column([86_400_000], pa.date64()), [86400 * SECOND]),
        (pa.nulls(2), [None, None]),
        (column([FOREVER, BEGINNING], pa.timestamp("us")), [FOREVER, BEGINNING]),
    ],
)
def test_columns_become_ticks(given_: pa.Array, expected: list[int | None]) -> None:
    found = ticks.from_arrow(given_, "_vs")
    assert found.type == pa.int64()
    assert found.to_pylist() == expected
    assert ticks.is_time(given_.type)


@pytest.mark.parametrize(
    "given_",
    [
        column([1500], pa.timestamp("ns")),
        column([2**62], pa.timestamp("s")),
        column([2**62], pa.timestamp("ms")),
        column([2**31 - 1], pa.date32()),
        column([2**62 // 86_400_000 * 86_400_000], pa.date64()),
        pa.array([2**63], pa.uint64()),
        pa.array([1.5]),
        pa.array(["1970-01-01"]),
    ],
)
def test_columns_that_cannot_be_ticks_are_refused_by_name(given_: pa.Array) -> None:
    with pytest.raises(TimeError, match="_vs"):
        ticks.from_arrow(given_, "_vs")


@given(st.lists(times))
def test_ticks_survive_the_way_through_a_column(values: list[int]) -> None:
    for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        whole = ticks.to_arrow(array(*values), kind, null_forever=False)
        assert whole.type == kind
        assert ticks.from_arrow(whole, "_vs").to_pylist() == values
        nulls = ticks.from_arrow(ticks.to_arrow(array(*values), kind, null_forever=True), "_ve")
        assert nulls.to_pylist() == [None if value == FOREVER else value for value in values]


def test_what_is_not_a_time_type() -> None:
    assert not ticks.is_time(pa.float64())
    assert not ticks.is_time(pa.string())
