"""Times of elements are checked, know how they were written, and do not mix."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.core.batch import from_elements
from recension.core.errors import TimeError
from recension.core.events import Event
from recension.core.history import History
from recension.core.ticks import BEGINNING, FOREVER, instant
from recension.core.time_kind import (
    AWARE,
    NAIVE,
    TICKS,
    Instant,
    OneKind,
    describe_time,
    kind_in_zone,
    merge_kinds,
)

PARIS = ZoneInfo("Europe/Paris")
IN_PARIS = pa.timestamp("us", "Europe/Paris")
WRITTEN: list[tuple[Any, Any]] = [
    (5, TICKS),
    (np.int32(5), TICKS),
    (dt.datetime(2024, 7, 1), NAIVE),
    (dt.date(2024, 7, 1), NAIVE),
    ("2024-07-01", NAIVE),
    (np.datetime64("2024-07-01", "ns"), NAIVE),
    ("2024-07-01T00:00:00+02:00", AWARE),
    (dt.datetime(2024, 7, 1, tzinfo=dt.UTC), AWARE),
    (dt.datetime(2024, 7, 1, tzinfo=PARIS), IN_PARIS),
    (dt.datetime(2024, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), pa.timestamp("us", "+02:00")),
    (FOREVER, None),
    (BEGINNING, None),
]
FIELDS: list[tuple[str, Callable[[Any], Any]]] = [
    ("Insert: vs", lambda t: rc.Insert({}, t)),
    ("Insert: ve", lambda t: rc.Insert({}, BEGINNING, t)),
    ("Event: vs", lambda t: Event({}, t)),
    ("Event: ve", lambda t: Event({}, BEGINNING, t)),
    ("Retract: vs", lambda t: rc.Retract({}, t, FOREVER, FOREVER)),
    ("Retract: ve", lambda t: rc.Retract({}, BEGINNING, t, FOREVER)),
    ("Retract: new_ve", lambda t: rc.Retract({}, BEGINNING, FOREVER, t)),
    ("Cti: t", rc.Cti),
    ("ExternalCti: vs", lambda t: rc.ExternalCti(t, FOREVER, 1)),
    ("ExternalCti: ve", lambda t: rc.ExternalCti(BEGINNING, t, 1)),
]


@pytest.mark.parametrize(("field", "make"), FIELDS)
@pytest.mark.parametrize(("written", "kind"), WRITTEN)
def test_every_element_takes_every_time(
    field: str, make: Callable[[Any], Any], written: Any, kind: pa.DataType | None
) -> None:
    element = make(written)
    kept = getattr(element, field.split()[-1])
    assert isinstance(kept, int)
    assert kept == instant(written)
    assert getattr(kept, "kind", None) == (None if kind == TICKS else kind)
    assert element == make(int(instant(written)))
    assert hash(kept) == hash(int(kept))


@pytest.mark.parametrize(("field", "make"), FIELDS)
@pytest.mark.parametrize(
    "wrong", [1.9, True, "1", "soon", None, float("nan"), np.datetime64("NaT"), np.bool_(1)]
)
def test_what_is_no_time_is_refused_with_element_and_field(
    field: str, make: Callable[[Any], Any], wrong: Any
) -> None:
    with pytest.raises(TimeError, match=f"^{field}: ") as why:
        make(wrong)
    assert "\n" not in str(why.value)


def test_nanoseconds_are_not_microseconds() -> None:
    element = rc.Insert({}, np.datetime64("2024-01-01", "ns"), np.datetime64("2024-01-02", "ms"))
    assert (element.vs, element.ve) == (1_704_067_200_000_000, 1_704_153_600_000_000)
    with pytest.raises(TimeError, match=r"Insert: vs: .*whole number of microseconds"):
        rc.Insert({}, np.datetime64(1, "ns"))


def test_pandas_has_times_too() -> None:
    pd = pytest.importorskip("pandas")
    assert rc.Cti(pd.Timestamp("2024-01-01", tz="Europe/Paris")).t == instant("2023-12-31T23:00Z")
    for wrong in (pd.NaT, pd.Timestamp(1), pd.NA):
        with pytest.raises(TimeError, match="Cti: t: "):
            rc.Cti(wrong)


@pytest.mark.parametrize(
    ("vs", "ve", "said"),
    [
        ("2024-01-01", "2024-01-02T00:00Z", "timestamps in UTC do not mix with timestamps without a zone"),
        ("2024-01-01T00:00Z", dt.date(2024, 1, 2), "without a zone do not mix with timestamps in UTC"),
        (5, "2024-01-02", "integers are ticks"),
    ],
)
def test_the_times_of_an_element_are_of_one_kind(vs: Any, ve: Any, said: str) -> None:
    for make in (
        lambda: rc.Insert({}, vs, ve),
        lambda: Event({}, vs, ve),
        lambda: rc.Retract({}, vs, FOREVER, ve),
        lambda: rc.ExternalCti(vs, ve, 1),
    ):
        with pytest.raises(TimeError, match=said):
            make()


def test_a_history_is_of_one_kind() -> None:
    with pytest.raises(TimeError, match="do not mix"):
        History.from_events([Event({}, 5), Event({}, "2024-01-01")])
    mixed = {"_vs": pa.array([1], pa.timestamp("us")), "_ve": pa.array([2], pa.timestamp("us", "UTC"))}
    with pytest.raises(TimeError):
        History.from_arrow(pa.table(mixed))


def test_elements_print_as_they_were_written_and_read_back() -> None:
    element = rc.Retract({"x": 1}, dt.datetime(2024, 7, 1, tzinfo=PARIS), FOREVER, "2024-07-01T22:00Z")
    assert str(element) == ("retract [2024-07-01 00:00:00+02:00, ∞) -> 2024-07-01 22:00:00+00:00 {'x': 1}")
    names = {"Retract": rc.Retract}
    assert eval(repr(element), names) == element
    assert pickle.loads(pickle.dumps(element)) == element
    assert str(pickle.loads(pickle.dumps(element))) == str(element)
    assert replace(element, payload={}).vs == element.vs
    assert str(rc.Insert({}, dt.datetime(2024, 7, 1))) == "insert [2024-07-01 00:00:00, ∞) {}"
    assert str(rc.Cti(BEGINNING)) == "cti -∞"


def test_an_instant_is_an_int_that_keeps_its_kind_when_moved() -> None:
    start = rc.Cti(dt.datetime(2024, 7, 1, tzinfo=PARIS)).t
    assert isinstance(start, Instant)
    for moved in (start + 1_000_000, 1_000_000 + start, start - -1_000_000):
        assert str(moved) == "2024-07-01 00:00:01+02:00"
    assert start - rc.Cti("2024-06-30T00:00Z").t == 22 * 3_600_000_000
    batch = from_elements([rc.Cti(start)], pa.schema([]))
    assert batch.vs.tolist() == [int(start)]
    assert batch.to_elements(IN_PARIS) == [rc.Cti(start)]


def test_a_time_is_shown_in_its_own_zone() -> None:
    summer = instant("2024-07-01T00:00Z")
    assert describe_time(summer, NAIVE) == "2024-07-01 00:00:00"
    assert describe_time(summer, AWARE) == "2024-07-01 00:00:00+00:00"
    assert describe_time(summer, IN_PARIS) == "2024-07-01 02:00:00+02:00"
    assert describe_time(summer, pa.timestamp("us", "Nowhere/Known")) == "2024-07-01 00:00:00+00:00"
    for kind in (None, TICKS, NAIVE, AWARE, IN_PARIS):
        assert (describe_time(FOREVER, kind), describe_time(BEGINNING, kind)) == ("∞", "-∞")
        assert describe_time(FOREVER - 1, kind) == str(FOREVER - 1)


def test_kinds_merge_or_are_refused() -> None:
    assert merge_kinds(None, NAIVE) == merge_kinds(NAIVE, None) == NAIVE
    assert merge_kinds(IN_PARIS, IN_PARIS) == IN_PARIS
    assert merge_kinds(IN_PARIS, pa.timestamp("us", "Asia/Tokyo")) == AWARE
    for one, other in ((TICKS, NAIVE), (TICKS, AWARE), (NAIVE, AWARE), (NAIVE, IN_PARIS)):
        for left, right in ((one, other), (other, one)):
            with pytest.raises(TimeError, match="do not mix"):
                merge_kinds(left, right)


def test_a_zone_that_arrow_cannot_name_goes_out_in_utc() -> None:
    class Odd(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(hours=2)

        def tzname(self, when: dt.datetime | None) -> str:
            return "odd"

        def dst(self, when: dt.datetime | None) -> None:
            return None

    assert kind_in_zone(Odd()) == AWARE
    assert kind_in_zone(dt.timezone(dt.timedelta(seconds=3661))) == AWARE
    assert rc.Cti(dt.datetime(2024, 7, 1, tzinfo=Odd())).t == instant("2024-06-30T22:00Z")


def test_who_was_first_is_named_and_named_times_say_no_zone() -> None:
    times = OneKind()
    times.note_named(AWARE, "advance")
    times.note(IN_PARIS, "leases")
    assert times.kind == IN_PARIS
    with pytest.raises(TimeError, match="sites: the times are ticks, but those of advance are timestamps in"):
        times.note(TICKS, "sites")
    again = OneKind()
    again.restore(times.snapshot())
    assert again.kind == IN_PARIS
    with pytest.raises(TimeError, match="those of advance"):
        again.require(NAIVE, "sites")
