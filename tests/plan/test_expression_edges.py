"""Expressions at the edges of their types, against plain Python: Arrow does not get all of them right."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import StreamError

D = Decimal
UTC = dt.UTC
NARROW = pa.decimal128(5, 3)
X = rc.col("x")


def computed(kind: Any, value: rc.Expr, values: Sequence[Any]) -> list[Any]:
    """What an expression gives for each value."""
    source = rc.source("s", {"x": kind})
    rows = [rc.Insert({"x": x}, number, number + 1) for number, x in enumerate(values)]
    answers = rc.run(source.select(y=value), {"s": rows}).history().to_arrow()
    return list(answers["y"].to_pylist())


@pytest.mark.parametrize(
    ("value", "fails", "fits"),
    [
        (X.round(), "99.999", {"99.499": "99", "-1.5": "-2"}),
        (X.round(1), "99.95", {"99.949": "99.9", "0.05": "0.1"}),
        (X.round(-1), "95", {"94.999": "90", "-5": "-10"}),
        (X.round(-2), "99.999", {"49.999": "0"}),
        (X.ceil(), "99.001", {"-99.999": "-99", "1.2": "2"}),
        (X.floor(), "-99.001", {"99.999": "99", "-1.2": "-2"}),
    ],
)
def test_a_rounded_decimal_that_does_not_fit_is_refused(
    value: rc.Expr, fails: str, fits: dict[str, str]
) -> None:
    good = list(map(D, fits))
    assert computed(NARROW, value, good) == list(map(D, fits.values()))
    for values in ([D(fails)], [D(fails), *good], [*good, D(fails)]):
        with pytest.raises(StreamError, match=f"row {values.index(D(fails)) + 1}: .*does not fit"):
            computed(NARROW, value, values)


def test_a_remainder_fits_though_the_quotient_does_not() -> None:
    source = rc.source("s", {"a": pa.decimal128(5, 3), "b": pa.decimal128(10, 0)})
    rows = [rc.Insert({"a": D("-99.999"), "b": D(1)}, 1, 2), rc.Insert({"a": D("7.5"), "b": D(0)}, 2, 3)]
    found = rc.run(source.select(r=rc.col("a") % rc.col("b")), {"s": rows}).history().to_arrow()
    assert found["r"].to_pylist() == [D("0.001"), None]


def test_a_decimal_that_more_places_make_too_long_is_refused() -> None:
    """Arrow multiplies by a power of ten within 128 bits: some of what does not fit looks as if it did."""
    longest, finer = pa.decimal128(38, 5), X.cast("decimal128(38, 7)")
    far, good = D("175186712055656262740098455853975.19986"), D("-1234567890123456789012345678901.98765")
    assert computed(longest, finer, [good, None]) == [good, None]
    for values in ([far], [far, good], [good, far]):
        with pytest.raises(StreamError, match=f"row {values.index(far) + 1}: .*does not fit in decimal128"):
            computed(longest, finer, values)
    with pytest.raises(rc.SchemaError, match=r"is not a value of decimal128\(38, 7\)"):
        rc.lit(far, "decimal128(38, 7)")
    finely = rc.source("s", {"x": "decimal128(38, 7)"})
    for x, fits in ((good, True), (far, False)):
        table = pa.table({"x": pa.array([x], longest), "_vs": [1], "_ve": [2]})
        with nullcontext() if fits else pytest.raises(StreamError, match="does not fit in decimal128"):
            (row,) = rc.run(finely, {"s": table}).history().to_arrow().to_pylist()
            assert row["x"] == x


def test_decimals_are_divided_exactly() -> None:
    pairs = [(D(a) / 1000, D(b) / 1000) for a in (-99_999, -1, 0, 2, 99_999) for b in (-7, -3, 1, 3, 99_999)]
    source = rc.source("s", {"a": NARROW, "b": NARROW})
    query = source.select("a", "b", q=rc.col("a") // rc.col("b"), r=rc.col("a") % rc.col("b"))
    rows = rc.run(query, {"s": [rc.Insert({"a": a, "b": b}, 1, 2) for a, b in pairs]}).history().to_arrow()
    for row in rows.to_pylist():
        quotient = math.floor(Fraction(row["a"]) / Fraction(row["b"]))
        assert row["q"] == quotient
        assert row["r"] == Fraction(row["a"]) - quotient * Fraction(row["b"])


@pytest.mark.parametrize("beyond", [1e300, -1e300, 3.5e38])
def test_a_float_beyond_a_narrower_one_is_refused(beyond: float) -> None:
    narrow = X.cast("float32")
    assert computed("float64", narrow, [1.5, math.inf, None]) == [1.5, math.inf, None]
    for values in ([beyond], [beyond, 1.5]):
        with pytest.raises(StreamError, match=r"row 1: .*does not fit in float32"):
            computed("float64", narrow, values)
    with pytest.raises(StreamError, match="does not fit in"):
        computed("int64", X.cast("float16"), [70_000])
    with pytest.raises(StreamError, match="does not fit in"):
        computed("uint16", X.cast("float16"), [65_535])


@pytest.mark.parametrize(("unit", "last"), [("ns", dt.date(2262, 4, 11)), ("us", dt.date.max)])
def test_a_date_is_counted_as_far_as_it_fits(unit: Any, last: dt.date) -> None:
    per_day = 86_400 * {"ns": 10**9, "us": 10**6}[unit]
    count = X.dt.timestamp(unit)
    days = [dt.date.min, last] if unit == "us" else [dt.date(1677, 9, 22), last]
    assert computed("date32", count, days) == [(d - dt.date(1970, 1, 1)).days * per_day for d in days]
    if unit == "ns":
        with pytest.raises(StreamError, match="does not fit in int64"):
            computed("date32", count, [dt.date(9999, 1, 1), dt.date(2020, 1, 1)])


ZONES = {
    "Europe/Paris": (1985, 2024, 2037, 2038, 2050, 9998),
    "America/Havana": (2024, 2077),  # midnight comes twice
    "Australia/Lord_Howe": (2024, 2100),  # clocks change by half an hour
    "Pacific/Apia": (2011, 2040),  # a day is left out
    "America/Sao_Paulo": (2017, 2050),  # no midnight
}


def moments(zone: str) -> Iterator[dt.datetime]:
    """Times around all changes of the clock in some years, and some between."""
    rules = ZoneInfo(zone)
    for year in ZONES[zone]:
        hours = [dt.datetime(year, 1, 1, tzinfo=UTC) + dt.timedelta(hours=6 * n) for n in range(4 * 365)]
        yield from hours[::271]
        for hour in hours:
            later = hour + dt.timedelta(hours=6)
            if hour.astimezone(rules).utcoffset() != later.astimezone(rules).utcoffset():
                yield from (hour + dt.timedelta(minutes=19 * n) for n in range(-6, 40))


def shown_first(shown: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """The first moment at which the clock shows a time, or a later one."""
    low, high = (shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    if high.astimezone(zone).replace(tzinfo=None) == shown:
        return high
    while high - low > dt.timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (low, middle) if middle.astimezone(zone).replace(tzinfo=None) >= shown else (middle, high)
    return high.replace(microsecond=0)


def start_of_part(moment: dt.datetime, minutes: int, zone: ZoneInfo) -> dt.datetime:
    """The last moment up to this at which the clock shows a whole number of so many minutes."""
    shown = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    start = shown - (shown - shown.replace(hour=0, minute=0, second=0, microsecond=0)) % dt.timedelta(
        minutes=minutes
    )
    both = [start.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    at = [one for one in both if one.astimezone(zone).replace(tzinfo=None, fold=0) == start and one <= moment]
    return max(at) if at else shown_first(start, zone)


@pytest.mark.parametrize("zone", ZONES)
def test_the_clock_of_a_zone_is_that_of_its_rules(zone: str) -> None:
    """Also after 2037, and where a time is shown twice or never."""
    at, rules = X.dt.convert_time_zone(zone), ZoneInfo(zone)
    wanted = list(moments(zone))
    query = rc.source("s", {"x": "timestamp[us, UTC]"}).select(
        "x", year=at.dt.year(), hour=at.dt.hour(), minute=at.dt.minute(), date=at.dt.date(),
        cast=at.cast("date32"), ordinal=at.dt.ordinal_day(), weekday=at.dt.weekday(),
        text=at.dt.to_string("%Y-%m-%d %H:%M"), offset=at.cast("string").str.tail(5),
        clock=at.dt.replace_time_zone(None), quarter=at.dt.truncate("15m"), whole=at.dt.truncate("1h"),
        day=at.dt.truncate("1d"), month=at.dt.truncate("1mo"), tomorrow=at.dt.offset_by("1d"),
        later=at.dt.offset_by("7h"),
    )  # fmt: skip
    rows = rc.run(query, {"s": [rc.Insert({"x": moment}, 1, 2) for moment in wanted]}).history().to_arrow()
    assert rows.num_rows == len(wanted)
    for row in rows.to_pylist():
        aware = row["x"].astimezone(rules)
        shown = aware.replace(tzinfo=None, fold=0)
        midnight = dt.datetime.combine(shown.date(), dt.time())
        plain = {
            "year": shown.year, "hour": shown.hour, "minute": shown.minute, "date": shown.date(),
            "cast": shown.date(), "ordinal": shown.timetuple().tm_yday, "weekday": shown.isoweekday(),
            "text": f"{shown:%Y-%m-%d %H:%M}", "offset": f"{aware:%z}", "clock": shown,
        }  # fmt: skip
        assert {name: row[name] for name in plain} == plain
        starts = {
            "quarter": start_of_part(row["x"], 15, rules),
            "whole": start_of_part(row["x"], 60, rules),
            "day": shown_first(midnight, rules),
            "month": shown_first(midnight.replace(day=1), rules),
            "tomorrow": shown_first(shown + dt.timedelta(days=1), rules),
            "later": row["x"] + dt.timedelta(hours=7),
        }
        assert {name: row[name].astimezone(UTC) for name in starts} == starts


@pytest.mark.parametrize("year", [2024, 2040])
def test_a_clock_time_that_is_no_moment_is_refused(year: int) -> None:
    """Shown twice or never: a user who says what zone a time is of means one moment."""
    sundays = [dt.datetime(year, month, 31, 2, 30) for month in (3, 10)]
    wrong = [day - dt.timedelta(days=day.isoweekday() % 7) for day in sundays]
    in_paris = X.dt.replace_time_zone("Europe/Paris")
    good = dt.datetime(year, 7, 1, 12)
    (found,) = computed("timestamp[us]", in_paris, [good])
    assert found.astimezone(UTC) == dt.datetime(year, 7, 1, 10, tzinfo=UTC)
    for time in wrong:
        with pytest.raises(StreamError, match="row 2: "):
            computed("timestamp[us]", in_paris, [good, time])


def test_a_time_without_a_clock_time_is_refused() -> None:
    source = rc.source("s", {"x": "timestamp[s, UTC]"})
    query = source.select(y=X.dt.convert_time_zone("Europe/Paris").dt.hour())
    rows = pa.table({"x": pa.array([253_402_300_800], pa.timestamp("s", "UTC"))})
    with pytest.raises(StreamError, match="beyond the year 9999"):
        rc.session(query).push("s", rows.append_column("_vs", [[1]]).append_column("_kind", [["insert"]]))


@pytest.mark.parametrize("kind", ["int64", "float64", "uint8"])
def test_the_median_of_a_list_is_exact(kind: str) -> None:
    lists = [[], [1], [3, 1], [3, None, 1], [1, 2, 3, 4], [9, 7, 8], [None], None, [2, 2, 250, 255]]
    found = computed(pa.list_(pa.field("item", kind)), X.list.median(), lists)
    assert found == [None, 1.0, 2.0, 2.0, 2.5, 8.0, None, None, 126.0]


def test_the_median_of_numbers_at_their_bounds() -> None:
    assert computed(pa.list_(pa.int64()), X.list.median(), [[2**63 - 1, 1], [-(2**63), 2**63 - 1]]) == [
        2.0**62,
        0.0,
    ]
    floats = computed(
        pa.list_(pa.float64()), X.list.median(), [[1.7e308, 1.5e308], [1.0, math.nan, 3.0], [math.inf]]
    )
    assert floats == [1.6e308, 3.0, math.inf]


def test_zero_is_among_zeros_whatever_its_sign() -> None:
    assert computed("float64", X.is_in([0.0, 1.5]), [-0.0, 0.0, 1.5, 2.0]) == [True, True, True, False]
    assert computed("float64", X.is_in([-0.0]), [-0.0, 0.0]) == [True, True]
    assert computed("uint64", X.is_in([2**64 - 1, 1]), [2**64 - 1, 2**64 - 2]) == [True, False]
