"""Values of Python go into columns as they are or not at all; so do the parts of elements."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.core.values import describe_misfit, exact_array, unwrap_scalar

INTEGER = pa.int64()
SECONDS, MICROS, NANOS = (pa.timestamp(unit) for unit in ("s", "us", "ns"))
PERSON = pa.struct([("name", pa.string()), ("age", INTEGER)])
NOON = dt.datetime(2020, 1, 1, 12)
PARIS = NOON.replace(tzinfo=ZoneInfo("Europe/Paris"))
LOST = [
    (1.9, INTEGER, "1.9 is not a whole number"),
    (np.float32(1.5), INTEGER, "is not a whole number"),
    (np.array(1.5), INTEGER, "is not a whole number"),
    (Decimal("1.5"), pa.int8(), "is not a whole number"),
    (True, INTEGER, "integer, got bool"),
    (np.True_, INTEGER, "is not a number"),
    (True, pa.float64(), "is not a number"),
    (1e39, pa.float32(), "is beyond the range of float"),
    (70_000, pa.float16(), "is beyond the range of halffloat"),
    ([1, 1.5], pa.list_(INTEGER), "1.5 is not a whole number"),
    (np.array([1.5]), pa.large_list(INTEGER), "is not a whole number"),
    ({"name": "ann", "age": 1.5}, PERSON, "1.5 is not a whole number"),
    (("ann", 1.5), PERSON, "1.5 is not a whole number"),
    ([{"name": "ann", "age": 1.5}], pa.list_(PERSON), "1.5 is not a whole number"),
    ({"k": 1.5}, pa.map_(pa.string(), INTEGER), "1.5 is not a whole number"),
    ([(1.5, "k")], pa.map_(INTEGER, pa.string()), "1.5 is not a whole number"),
    (1.5, pa.dictionary(pa.int32(), INTEGER), "1.5 is not a whole number"),
    (pd.Timestamp(1, unit="ns"), MICROS, "is not whole in us"),
    (NOON.replace(microsecond=5), SECONDS, "is not whole in s"),
    (1.5, MICROS, "is not a whole number"),
    (PARIS, MICROS, "has a time zone"),
    (NOON, pa.timestamp("us", "Europe/Paris"), "has no time zone"),
    (NOON, pa.date32(), "has a time of day"),
    (pd.Timestamp(1, unit="ns"), pa.date64(), "has a time of day"),
    (PARIS.replace(hour=0), pa.date32(), "has a time zone"),
    (dt.time(1, 2, 3, 5), pa.time32("s"), "is not whole in s"),
    (dt.time(1, tzinfo=dt.UTC), pa.time64("us"), "has a time zone"),
    (dt.timedelta(microseconds=-5), pa.duration("s"), "is not whole in s"),
    (pd.Timedelta(5, unit="ns"), pa.duration("us"), "is not whole in us"),
    ({"nmae": "bob", "age": 3}, PERSON, r"no field 'nmae' \(did you mean 'name'\?\); there are name, age"),
    ({"age": 3}, PERSON, "no value for field 'name': write None if it has none"),
]
KEPT = [
    (2.0, INTEGER, 2),
    (Decimal(2), INTEGER, 2),
    (np.int8(2), INTEGER, 2),
    (0.1, pa.float32(), float(np.float32(0.1))),
    (float("inf"), pa.float64(), float("inf")),
    (float("-inf"), pa.float32(), float("-inf")),
    (np.float64(0.5), pa.float64(), 0.5),
    ([2.0, None], pa.list_(INTEGER), [2, None]),
    ({"name": None, "age": 2.0}, PERSON, {"name": None, "age": 2}),
    (("ann", 3), PERSON, {"name": "ann", "age": 3}),
    ([("name", "ann"), ("age", 3)], PERSON, {"name": "ann", "age": 3}),
    ({"k": 2}, pa.map_(pa.string(), INTEGER), [("k", 2)]),
    (NOON, SECONDS, NOON),
    (PARIS, pa.timestamp("us", "UTC"), PARIS),
    (pd.Timestamp(1, unit="ns"), NANOS, pd.Timestamp(1, unit="ns")),
    (np.datetime64(NOON, "us"), MICROS, NOON),
    (dt.datetime(2020, 1, 1), pa.date32(), dt.date(2020, 1, 1)),
    (dt.time(1, 2, 3), pa.time32("s"), dt.time(1, 2, 3)),
    (dt.timedelta(seconds=-5), pa.duration("s"), dt.timedelta(seconds=-5)),
    (pa.scalar(3, INTEGER), INTEGER, 3),
]


@pytest.mark.parametrize(("value", "kind", "reason"), LOST, ids=lambda value: repr(value)[:40])
def test_what_a_column_cannot_hold_is_refused(value: Any, kind: pa.DataType, reason: str) -> None:
    with pytest.raises((rc.SchemaError, pa.ArrowTypeError), match=reason):
        exact_array([None, value], kind)
    assert describe_misfit(value, kind) is not None


@pytest.mark.parametrize(("value", "kind", "kept"), KEPT, ids=lambda value: repr(value)[:40])
def test_what_it_can_hold_is_kept(value: Any, kind: pa.DataType, kept: Any) -> None:
    assert exact_array([None, value], kind).to_pylist() == [None, kept]


def test_nanoseconds_of_numpy_do_not_become_a_bare_number() -> None:
    assert describe_misfit(unwrap_scalar(np.datetime64(NOON, "ns")), MICROS) is not None
    assert (
        exact_array([unwrap_scalar(np.datetime64(NOON, "us")), unwrap_scalar(np.int64(1))], MICROS)[0].as_py()
        == NOON
    )


@pytest.mark.parametrize("count", [1.5, 2.0, True, np.True_, "3", None, 2**63, np.array(1)])
def test_a_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises(rc.StreamError, match=r"ExternalCti: count: .* is not a whole number of elements"):
        rc.ExternalCti(0, 10, count)


def test_a_count_of_numpy_is_a_number() -> None:
    int32: Any = np.int32
    assert rc.ExternalCti(0, 10, int32(3)) == rc.ExternalCti(0, 10, 3)


@pytest.mark.parametrize("payload", [None, ["k"], "k", 3])
def test_a_payload_is_a_mapping(payload: Any) -> None:
    reason = "payload: .* is not a mapping of columns to values"
    for make in (rc.Insert, rc.Event):
        with pytest.raises(rc.StreamError, match=f"{make.__name__}: {reason}"):
            make(payload, 1, 2)
    with pytest.raises(rc.StreamError, match=f"Retract: {reason}"):
        rc.Retract(payload, 1, 2, 1)
