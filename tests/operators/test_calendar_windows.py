"""Windows of a calendar: judged by pandas and DuckDB, at the ends of the calendar, and when rules change."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.core.calendar import DAY
from recension.core.errors import RecensionError, TimeError
from recension.core.ticks import instant
from recension.core.time_kind import kind_of
from recension.denote.calendar import first_instant
from recension.operators.windowed import calendar
from recension.operators.windowed.calendar import Boundaries, CalendarGrid, CalendarHops
from recension.plan.source import require_one_kind

S = rc.source("s", {"x": "int64"})
UTC = dt.UTC
UNKNOWN: Any = 3
ODD = [
    "Africa/Cairo",  # changes at midnight, twice around Ramadan
    "Africa/Casablanca",  # winter time in summer
    "America/Asuncion",
    "America/Caracas",  # half an hour
    "America/Havana",  # midnight twice
    "America/Santiago",
    "America/Sao_Paulo",  # no midnight
    "America/St_Johns",  # changes a minute after midnight
    "Antarctica/Troll",  # two hours
    "Asia/Amman",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Europe/Dublin",  # negative daylight saving
    "Europe/Istanbul",
    "Europe/Moscow",
    "Europe/Paris",
    "America/New_York",
    "Pacific/Apia",  # a day left out
    "Pacific/Kiritimati",  # another
    "Pacific/Kwajalein",  # another
    "UTC",
]


def judged_by_pandas(zone: str, freq: str, unit: Any, since: str, count: int, most: int = 10**9) -> None:
    """Hops begin where pandas has these clock times. Where it has none, the clock skips them there.

    Of more than ``most`` so many are looked at, and all around changes of the clock.
    """
    first, at = Boundaries(CalendarHops(unit, 1, zone)).cover(0, count)
    at = at[-first : count - first]
    uneven = np.flatnonzero(np.diff(at) % DAY)
    some = np.random.default_rng(5).permutation(count)[:most]
    rows = np.unique(np.clip(np.concatenate([some, uneven, uneven + 1, uneven + 2]), 0, count - 1))
    clocks, tz = pd.date_range(since, periods=count, freq=freq)[rows], ZoneInfo(zone)
    first_shown = np.ones(len(rows), np.bool_)
    wanted = clocks.tz_localize(tz, ambiguous=first_shown, nonexistent="NaT")
    found = pd.DatetimeIndex(at[rows].astype("datetime64[us]"), tz="UTC").tz_convert(tz)
    skipped = wanted.isna()
    assert (found == wanted)[~skipped].all(), (zone, clocks[~skipped][(found != wanted)[~skipped]])
    before = found[skipped] - pd.Timedelta("1us")
    assert (found[skipped].tz_localize(None) > clocks[skipped]).all(), (zone, clocks[skipped])
    assert (before.tz_localize(None) < clocks[skipped]).all(), (zone, clocks[skipped])


@pytest.mark.parametrize("zone", ODD)
def test_days_and_months_are_where_pandas_has_them(zone: str) -> None:
    judged_by_pandas(zone, "D", "day", "1970-01-01", 365 * 50, most=200)
    judged_by_pandas(zone, "MS", "month", "1970-01-01", 12 * 50, most=200)
    judged_by_pandas(zone, "7D", "week", "1969-12-29", 52 * 50, most=100)


@pytest.mark.soak
def test_every_zone_is_where_pandas_has_it() -> None:
    for zone in sorted(available_timezones()):
        judged_by_pandas(zone, "D", "day", "1970-01-01", 365 * 50)
        judged_by_pandas(zone, "MS", "month", "1970-01-01", 12 * 50)


def test_a_boundary_is_the_first_instant_at_which_the_clock_shows_it() -> None:
    dice, zones = np.random.default_rng(7), sorted(available_timezones())
    for zone in dice.choice(zones, 25).tolist():
        offset = int(dice.integers(0, DAY))
        hops = CalendarHops("day", 1, zone, offset)
        # In a year of history, when many zones changed, and in one that only rules reach.
        for since in dice.integers(-45_000, 40_000, 2).tolist():
            first, at = Boundaries(hops).cover(since, since)
            clock = dt.datetime(1970, 1, 1) + dt.timedelta(days=since, microseconds=offset)
            assert at[since - first] == first_instant(clock, zone), (zone, clock)


@pytest.mark.parametrize("unit", ["day", "week", "month", "quarter", "year"])
def test_counts_are_those_of_duckdb(unit: str) -> None:
    dice = np.random.default_rng(3)
    at = np.sort(dice.integers(0, 50 * 365 * DAY, 20_000))
    zones = ["Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"]
    for zone in zones:
        times = pa.array(at).view(pa.timestamp("us", "UTC"))
        given = pa.table({"_vs": times, "_ve": pa.array(at + 1).view(times.type), "x": at})
        found = rc.run(S.tumbling(f"1 {unit}", tz=zone).agg(n=rc.count(), least=rc.min("x")), {"s": given})
        ours = found.history().to_arrow()
        begin = f"date_trunc('{unit}', _vs at time zone '{zone}')"
        theirs = f"select {begin} as day, count(*) as n, min(x) as least from given group by all"
        with duckdb.connect() as db:
            db.execute("set timezone = 'UTC'")
            (days,) = db.execute(f"select count(*) from ({theirs})").fetchall()[0]
            (same,) = db.execute(
                f"select count(*) from ({theirs}) join (select {begin} as day, n, least from ours) "
                "using (day, n, least)"
            ).fetchall()[0]
        assert same == days == len(ours), zone


def test_numbers_do_not_depend_on_how_the_table_grew() -> None:
    hops = CalendarHops("day", 1, "Pacific/Apia")
    asked = np.random.default_rng(1).integers(-60 * 365 * DAY, 60 * 365 * DAY, 60)

    def numbers(order: Any) -> dict[int, int]:
        grid = CalendarGrid(hops, 2)
        grid._boundaries = Boundaries(hops)
        return {int(t): int(grid.place(np.array([t]), np.array([t + 1]))[0][0]) for t in order}

    assert numbers(asked) == numbers(np.sort(asked)) == numbers(np.sort(asked)[::-1])
    grid = CalendarGrid(hops, 2)
    grid._boundaries = Boundaries(hops)
    for t, number in numbers(asked).items():
        start, end = (int(edge(np.array([number]))[0]) for edge in (grid.start, grid.end))
        assert start <= t < end


def test_a_far_time_is_reached_some_hops_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of all days is small; what it is made of was 465 MB for one row of the year 9990."""
    sizes, page = list[int](), Boundaries._page

    def measured(self: Boundaries, first: int, stop: int) -> Any:
        sizes.append(stop - first)
        return page(self, first, stop)

    monkeypatch.setattr(Boundaries, "_page", measured)
    hops = CalendarHops("day", 1, "Europe/Paris")
    whole = Boundaries(hops).cover(0, 40_000)[1]
    assert max(sizes) == calendar._PAGE < 40_000
    monkeypatch.setattr(calendar, "_PAGE", 999)
    assert np.array_equal(whole, Boundaries(hops).cover(0, 40_000)[1])


def test_offsets() -> None:
    def starts(windows: Any, moment: dt.datetime) -> list[str]:
        out = rc.run(
            windows.agg(n=rc.count()),
            {"s": [rc.Insert({"x": 1}, moment, moment + dt.timedelta(1))]},
            close=True,
        )
        return [str(event.vs) for event in out.history().to_events()]

    noon = dt.datetime(2024, 5, 15, 12, tzinfo=ZoneInfo("Europe/Paris"))
    assert starts(S.tumbling("1d", tz="Europe/Paris", offset="6h"), noon) == [
        "2024-05-15 06:00:00+02:00",
        "2024-05-16 06:00:00+02:00",
    ]
    assert starts(S.tumbling("1y", tz="Europe/Paris", offset="3mo"), noon) == ["2024-04-01 00:00:00+02:00"]
    assert starts(S.tumbling("1w", tz="Europe/Paris", offset="-1d"), noon) == ["2024-05-12 00:00:00+02:00"]
    assert starts(S.tumbling("P1M", tz="Europe/Paris", offset="P14D"), noon) == ["2024-05-15 00:00:00+02:00"]
    assert starts(S.tumbling("2w", tz=ZoneInfo("Europe/Paris")), noon) == ["2024-05-06 00:00:00+02:00"]


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda: S.tumbling("1mo"), "months differ in length; .* name its zone, tz='UTC'"),
        (lambda: S.tumbling("24h", tz="UTC"), "size: '24h' with tz; write whole days"),
        (lambda: S.tumbling("1mo 1d", tz="UTC"), "of one kind"),
        (lambda: S.tumbling("1.5mo", tz="UTC"), "a fraction of a unit"),
        (lambda: S.tumbling(86_400_000_000, tz="UTC"), "size: 86400000000 are ticks"),
        (lambda: S.tumbling("1mo", tz="Europe/Pari"), "did you mean 'Europe/Paris'"),
        (lambda: S.tumbling("1mo", tz="+02:00"), "no time zone '\\+02:00'"),
        (lambda: S.tumbling("1mo", tz=UNKNOWN), "3 is not the name of a time zone"),
        (lambda: S.hopping("1mo", "1d", tz="UTC"), "'1mo' is no multiple of a hop of '1d'"),
        (lambda: S.hopping("5mo", "1q", tz="UTC"), "5 months is no multiple of a hop of 1 quarter"),
        (lambda: S.hopping("10d", "1w", tz="UTC"), "'10d' is no multiple of a hop of '1w'"),
        (lambda: S.tumbling("1mo", tz="UTC", offset="28d"), "a day that every month has"),
        (lambda: S.tumbling("1w", tz="UTC", offset="1mo"), "weeks are moved by days and hours"),
        (lambda: S.tumbling("1mo", tz="UTC", until="2024-01-01"), "until= is a timestamp with a zone"),
        (lambda: S.tumbling("1mo", tz="UTC", until=5), "until= is a timestamp with a zone"),
        (lambda: S.tumbling("1001y", tz="UTC"), "more than 1,000 years"),
    ],
)
def test_what_is_no_calendar_window_is_refused(write: Any, why: str) -> None:
    with pytest.raises(TimeError, match=why):
        write()


@pytest.mark.parametrize("moment", [5, dt.datetime(2024, 1, 1)])
def test_ticks_and_naive_times_are_refused(moment: Any) -> None:
    query = S.tumbling("1mo", tz="Europe/Paris").agg(n=rc.count())
    with pytest.raises(TimeError, match="those of windows with tz= are timestamps in Europe/Paris"):
        rc.run(query, {"s": [rc.Insert({"x": 1}, moment)]})
    with pytest.raises(TimeError, match="those of windows with tz= are timestamps in Europe/Paris"):
        require_one_kind(query.plan, {"s": kind_of(instant(moment))})  # what runs on Spark ask


def test_events_beyond_the_calendar_are_refused_and_ctis_pass() -> None:
    query = S.tumbling("1mo", tz="UTC").agg(n=rc.count())
    far = pa.array([2**60]).view(pa.timestamp("us", "UTC"))
    near = pa.array([0]).view(pa.timestamp("us", "UTC"))
    with pytest.raises(RecensionError, match="beyond the calendar of windows, which has the years 1 to 9999"):
        rc.run(query, {"s": pa.table({"_vs": near, "_ve": far, "x": [1]})})
    live = rc.session(query)
    start = dt.datetime(2024, 1, 1, tzinfo=UTC)
    live.push("s", [rc.Insert({"x": 1}, start, start + dt.timedelta(1))])
    live.advance("s", dt.datetime.max.replace(tzinfo=UTC))
    assert [e.payload for e in live.read().history().to_events()] == [{"n": 1}]


def test_an_end_in_the_year_9999_is_cut_by_until() -> None:
    query = S.tumbling("1d", tz="UTC", until="2024-01-04T00:00Z").agg(n=rc.count())
    event = rc.Insert({"x": 1}, dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime.max.replace(tzinfo=UTC))
    assert len(rc.run(query, {"s": [event]}, close=True).history()) == 3


def test_a_state_whose_boundaries_were_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    query = S.tumbling("1d", tz="Europe/Paris").agg(n=rc.count())
    day = rc.Insert({"x": 1}, dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 2, tzinfo=UTC))
    live = rc.session(query)
    live.push("s", [day])
    kept = live.snapshot()
    rc.session(query).restore(kept)
    later = DAY // 24
    monkeypatch.setattr(calendar, "boundaries_of", lambda hops: Boundaries(replace(hops, offset=later)))
    with pytest.raises(RecensionError, match="whose boundaries are different now: the rules of the zone"):
        rc.session(query).restore(kept)


def test_explain_names_the_windows() -> None:
    query = S.hopping("1y", "1q", tz="Asia/Tokyo", offset="1mo 6h").agg(n=rc.count())
    assert "windows every 1 quarter of 1 year in Asia/Tokyo from 1 month and 6h" in query.explain()


def test_windows_before_1970_have_their_numbers_in_a_fresh_table() -> None:
    hops = CalendarHops("day", 1, "UTC")
    grid = CalendarGrid(hops, 3)
    grid._boundaries = Boundaries(hops)
    assert grid.start(np.array([-500, -499])).tolist() == [-500 * DAY, -499 * DAY]
    assert grid.end(np.array([-500])).tolist() == [-497 * DAY]


def test_an_event_after_until_is_only_in_windows_that_it_meets() -> None:
    """January starts before the 15th, so it counts whole; what comes later is in no window."""
    query = S.tumbling("1mo", tz="UTC", until="2024-01-15T00:00Z").agg(n=rc.count(), speculate="eager")
    live = rc.session(query)
    for day in (dt.datetime(2024, 1, 3), dt.datetime(2024, 1, 20), dt.datetime(2025, 3, 3)):
        start = day.replace(tzinfo=UTC)
        live.push("s", [rc.Insert({"x": 1}, start, start + dt.timedelta(1))])
        live.advance("s", start)
    live.close()
    assert [event.payload["n"] for event in live.history().to_events()] == [2]


def test_months_of_unequal_length_weigh_their_events_alike() -> None:
    """An event that fills several months leaves nothing behind when it has ended."""
    query = S.tumbling("1mo", tz="UTC").agg(mean=rc.time_weighted_mean("x"))
    first, march, june, eighth = (dt.datetime(2024, m, 1, tzinfo=UTC) for m in (1, 3, 6, 8))
    events = [rc.Insert({"x": 1}, first, june), rc.Insert({"x": 10}, first, eighth)]
    half_of_march = rc.Insert({"x": 0}, march, march + dt.timedelta(15.5))
    found = rc.run(query, {"s": [*events, half_of_march]}, close=True).history()
    assert [event.payload["mean"] for event in found.to_events()] == pytest.approx(
        [5.5, 5.5, 11 / 2.5, 5.5, 5.5, 10, 10], rel=1e-12
    )
