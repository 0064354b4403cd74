"""No value is cut on its way into a query or through users' functions; what does not fit is named."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.gate.files import open_stream

PERSON = "struct<name: string, age: int64>"
numbers = rc.source("n", {"x": "int64"})
people = rc.source("p", {"p": PERSON})
TWO = [rc.Insert({"x": 1}, 0, 9), rc.Insert({"x": 2}, 1, 9)]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("int64", 1.9, r"column 'c' is int64, not 1.9: 1.9 is not a whole number"),
        (
            "timestamp[us]",
            pd.Timestamp(1, unit="ns"),
            r"column 'c' is timestamp\[us\], not .*: .* is not whole in us",
        ),
        ("date32", dt.datetime(2020, 1, 1, 5), r"column 'c' is date32.*: .* has a time of day"),
        (PERSON, {"name": "bob", "age": 1.5}, r"column 'c' is struct.*: 1.5 is not a whole number"),
        (PERSON, {"nmae": "bob", "age": 3}, r"column 'c' is .*: no field 'nmae' \(did you mean 'name'\?\)"),
        (PERSON, {"age": 3}, r"column 'c' is .*: no value for field 'name': write None"),
    ],
)
def test_a_value_of_an_element_is_kept_or_refused(kind: str, value: Any, reason: str) -> None:
    session = rc.session(rc.source("s", {"c": kind}))
    with pytest.raises(rc.StreamError, match=f"^s: row 2: {reason}"):
        session.push("s", [rc.Insert({"c": None}, 0, 1), rc.Insert({"c": value}, 1, 2)])
    assert session.rows_seen("s") == 0


def test_whole_floats_are_integers() -> None:
    assert rc.run(numbers, {"n": [rc.Insert({"x": 2.0}, 1, 2)]}).elements()[0] == rc.Insert({"x": 2}, 1, 2)


def test_events_of_a_history_are_exact_too() -> None:
    with pytest.raises(rc.SchemaError, match=r"column 'x' is int64: 1.9 is not a whole number"):
        rc.History.from_events([rc.Event({"x": 1.9}, 1, 2)], numbers.schema)


def _mapped(gives: Any) -> rc.Stream:
    def odd(row: dict[str, Any]) -> Any:
        return {"y": 1} if row.pop("x") == 1 else gives

    return numbers.map(odd, {"y": "int64"}, per_row=True)


class Halves(rc.Aggregate):
    inputs = {"x": "int64"}
    result = "int64"

    def compute(self, payloads: Any) -> float:
        return len(payloads) / 4


class Moments(rc.Aggregate):
    inputs = {"x": "int64"}
    result = "timestamp[us]"

    def compute(self, payloads: Any) -> np.datetime64:
        return np.datetime64(5, "ns")


class Rows(rc.Operator):
    inputs = {"x": "int64"}
    result = {"y": "int64"}

    def compute(self, payloads: Any) -> list[dict[str, float]]:
        return [{"y": 1.7}]


FUNCTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "map": (
        lambda: _mapped({"y": 1.7}),
        r"map each row by odd: column 'y' is int64, not 1.7: 1.7 is not a whole number; "
        r"it was given \{'x': 2\}",
    ),
    "map, nothing": (
        lambda: _mapped({}),
        r"map each row by odd: it gave \{\} without the column 'y': write None .*; it was given \{'x': 2\}",
    ),
    "map, misspelt": (
        lambda: _mapped({"yy": 1}),
        r"map each row by odd: it gave .* without the column 'y' \(did you mean 'yy'\?\)",
    ),
    "map, no dict": (
        lambda: _mapped(7),
        r"map each row by odd: it gave 7, not a dict of columns; it was given \{'x': 2\}",
    ),
    "map, None": (lambda: _mapped(None), r"map each row by odd: it gave None, not a dict of columns"),
    "map, rows of a batch": (
        lambda: numbers.map(lambda batch: [{"y": 1.5}] * len(batch), {"y": "int64"}, per_row=False),
        r"map batches by <lambda>: column 'y' is int64, not 1.5: 1.5 is not a whole number",
    ),
    "udf": (
        lambda: numbers.select(y=rc.udf(lambda x: x / 2, result="int64")("x")),
        r"udf <lambda> is declared to give int64, but 0.5 is not a whole number; it was given \(1\)",
    ),
    "udf, lists": (
        lambda: numbers.select(y=rc.udf(lambda x: [1.5] * len(x), result="int64", over="numpy")("x")),
        r"udf <lambda> is declared to give int64, but 1.5 is not a whole number",
    ),
    "udf, objects": (
        lambda: numbers.select(
            y=rc.udf(lambda x: np.array([1.5] * len(x), object), result="int64", over="numpy")("x")
        ),
        r"udf <lambda> is declared to give int64, but 1.5 is not a whole number",
    ),
    "aggregate": (
        lambda: numbers.agg(y=rc.aggregate(lambda values: 1.7, "x", result="int64")),
        r"module <lambda> in the window .*: it gave 1.7, but is declared to give int64",
    ),
    "module": (
        lambda: numbers.tumbling(3).agg(y=Halves()),
        r"module Halves in the window .*: it gave 0.5, but declares int64",
    ),
    "module, nanoseconds": (
        lambda: numbers.tumbling(3).agg(y=Moments()),
        r"module Moments in the window .*, but declares timestamp\[us\]",
    ),
    "operator": (
        lambda: numbers.tumbling(3).apply(Rows),
        r"module Rows in the window .*: it gave 1.7 as 'y', but declares int64: 1.7 is not a whole number",
    ),
}


@pytest.mark.parametrize(("query", "reason"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_functions_give_is_kept_or_refused(query: Callable[[], Any], reason: str) -> None:
    elements = [rc.Insert({"x": 1}, 0, 1), rc.Insert({"x": 2}, 1, 2)]
    with pytest.raises(rc.RecensionError, match=reason):
        rc.run(query(), {"n": elements}, close=True)


def test_what_functions_give_and_fits_is_taken() -> None:
    halved = rc.udf(lambda x: np.array([None, 4.0], object), result="int64", over="numpy")
    out = rc.run(_mapped({"y": 2.0, "more": 1}), {"n": TWO}).history().to_arrow()
    assert out["y"].to_pylist() == [1, 2]
    out = rc.run(numbers.select(y=halved("x")), {"n": TWO}).history().to_arrow()
    assert out["y"].to_pylist() == [None, 4]


def _table(person: dict[str, Any]) -> pa.Table:
    return pa.table({"_vs": [1], "_ve": [2], "p": pa.array([person])})


def test_a_struct_of_a_table_has_every_field(tmp_path: Path) -> None:
    misspelt = _table({"nmae": "bob", "age": 3})
    reason = r"column p: no field name \(did you mean 'nmae'\?\); there are nmae, age"
    with pytest.raises(rc.FormatError, match=f"^p: {reason}"):
        rc.run(people, {"p": misspelt})
    inside = rc.source("p", {"p": pa.list_(people.schema.field("p").type)})
    listed = misspelt.set_column(2, "p", pa.array([[{"age": 3}]]))
    with pytest.raises(rc.FormatError, match="column p: no field name; there are age"):
        rc.run(inside, {"p": listed})
    pq.write_table(misspelt, tmp_path / "p.parquet")
    with pytest.raises(rc.FormatError, match=reason):
        open_stream(tmp_path / "p.parquet", schema=people.schema)


def test_further_fields_are_ignored_and_their_order_is_free() -> None:
    out = rc.run(people, {"p": _table({"age": 3, "note": "x", "name": "bob"})})
    assert out.elements()[0] == rc.Insert({"p": {"name": "bob", "age": 3}}, 1, 2)


def test_numbers_of_json_are_exact_and_fields_may_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"_vs": 1, "_ve": 2, "x": 2}\n{"_vs": 1, "_ve": 2, "x": 1.5}\n')
    with pytest.raises(rc.FormatError, match=r"s.jsonl: row 2: column x: 1.5 is not int64"):
        rc.run(numbers, {"n": open_stream(file, schema=numbers.schema)})
    file.write_text('{"_vs": 1, "_ve": 2, "p": {"age": 1.5}}\n')
    with pytest.raises(rc.FormatError, match=r"row 1: column p: \{\"age\": 1.5\} is not struct"):
        rc.run(people, {"p": open_stream(file, schema=people.schema)})
    file.write_text('{"_vs": 1, "_ve": 2, "p": {"age": 2.0}}\n')
    out = rc.run(people, {"p": open_stream(file, schema=people.schema)})
    assert out.elements()[0] == rc.Insert({"p": {"name": None, "age": 2}}, 1, 2)


def payload_of(kind: Any, column: pa.Array) -> list[Any]:
    table = pa.table({"_vs": [1] * len(column), "v": column})
    history = rc.run(rc.source("s", {"v": kind}), {"s": table}).history()
    values: list[Any] = history.to_arrow()["v"].to_pylist()
    return values


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        ("timestamp[us]", pa.array([1], pa.timestamp("us", "Europe/Paris")), "one has a time zone"),
        ("timestamp[us, tz=UTC]", pa.array([1], pa.timestamp("us")), "one has a time zone"),
        ("date32", pa.array([1], pa.timestamp("us", "UTC")), "a date has no time zone"),
        (
            "date32",
            pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 5)]),
            "row 2: column v: .* not the same",
        ),
        ("float32", pa.array([0.1, 1e300]), "row 2: column v: 1e\\+300 is not the same"),
        (pa.decimal128(5, 2), pa.array([0.5, 0.125]), "row 2: column v: 0.125 is not the same"),
        ("int64", pa.array([True]), "bool values are not int64 values"),
        ("bool", pa.array([2]), "int64 values are not bool values"),
        ("int64", pa.array([1], pa.timestamp("us")), "values are not int64 values"),
        ("int64", pa.array([1], pa.duration("us")), "values are not int64 values"),
        (pa.list_(pa.int64()), pa.array([[True]]), "bool values are not int64 values"),
        (pa.struct([("a", pa.int64())]), pa.array([{"a": True}]), "bool values are not int64 values"),
    ],
)
def test_columns_of_tables_are_exact_or_refused(kind: Any, column: pa.Array, reason: str) -> None:
    with pytest.raises(rc.FormatError, match=reason):
        payload_of(kind, column)


def test_columns_of_tables_in_wider_types_are_taken() -> None:
    assert payload_of("float64", pa.array([1, None])) == [1.0, None]
    assert payload_of("date32", pa.array([dt.datetime(2024, 1, 1)])) == [dt.date(2024, 1, 1)]
    assert payload_of(pa.decimal128(5, 2), pa.array([0.5])) == [decimal.Decimal("0.50")]
    paris = pa.array([1], pa.timestamp("us", "Europe/Paris"))
    assert payload_of("timestamp[us, tz=UTC]", paris) == [
        dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)
    ]


@pytest.mark.parametrize(
    "times",
    [
        [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 17, 30)],
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1)],
    ],
)
def test_times_of_several_kinds_in_a_pandas_column_are_refused(times: list[Any]) -> None:
    """Arrow makes them all like the first: it cuts the time of day off, or drops or invents a zone."""
    frame = pd.DataFrame({"_vs": pd.Series(times, dtype=object), "v": [1, 2]})
    with pytest.raises(rc.StreamError, match=r"s: row 2: column _vs: .* and those before it are"):
        rc.run(rc.source("s", {"v": "int64"}), {"s": frame})
    late = pd.DataFrame({"_vs": [1, 2], "_ve": [3, 4], "t": pd.Series(times, dtype=object)})
    with pytest.raises(rc.StreamError, match="row 2: column t"):
        rc.History.from_pandas(late)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_text_with_a_zone_is_no_time_without_one(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{suffix}"
    moment = "2024-01-01T05:00:00+02:00"
    path.write_text(f"_vs,t\n1,{moment}\n" if suffix == "csv" else f'{{"_vs": 1, "t": "{moment}"}}\n')
    with pytest.raises(rc.FormatError, match=r"row 1: column t: .* has a time zone"):
        list(open_stream(path, schema=pa.schema([("t", pa.timestamp("us"))])))


CENTS = [cents / 100 for cents in range(1, 2000)]
AMOUNTS = rc.source("a", {"x": pa.decimal128(10, 2)}, start="at")


def doors(values: list[float], folder: Path) -> dict[str, Any]:
    """The same floats as elements, in frames and in files."""
    frame = pd.DataFrame({"at": range(len(values)), "x": values})
    frame.to_parquet(folder / "a.parquet", index=False)
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_json(folder / "a.jsonl", orient="records", lines=True, double_precision=15)
    files = {
        name: open_stream(folder / f"a.{name}", schema=AMOUNTS.plan.schema, start="at")
        for name in ("parquet", "csv", "jsonl")
    }
    elements = [rc.Insert({"x": value}, at, at + 1) for at, value in enumerate(values)]
    return {"elements": elements, "pandas": frame, "arrow": pa.Table.from_pandas(frame), **files}


def test_a_float_is_the_decimal_to_which_it_is_nearest(tmp_path: Path) -> None:
    exact = [decimal.Decimal(cents) / 100 for cents in range(1, 2000)]
    for door, data in doors(CENTS, tmp_path).items():
        found = rc.run(AMOUNTS, {"a": data}).history().to_events()
        assert [event.payload["x"] for event in found] == exact, door


@pytest.mark.parametrize("value", [3.333, 1e-3, 1e9])
def test_a_float_that_is_no_decimal_of_the_scale_is_refused(value: float, tmp_path: Path) -> None:
    for door, data in doors([1.1, value], tmp_path).items():
        with pytest.raises(rc.RecensionError) as caught:
            rc.run(AMOUNTS, {"a": data})
        assert "\n" not in str(caught.value), door
    narrow = pa.array([1.1, value], pa.float32())
    with pytest.raises(rc.RecensionError, match=r"is not the same as decimal128\(10, 2\)"):
        rc.run(AMOUNTS, {"a": pa.table({"at": [1, 2], "x": narrow})})


def test_the_index_that_pandas_writes_is_ignored_as_that_of_a_frame_is(tmp_path: Path) -> None:
    points = rc.source("p", {"x": "int64"}, start="at")
    frame = pd.DataFrame({"at": [1, 2, 3], "x": [5, 6, 7]})
    wide = pd.MultiIndex.from_arrays([[1, 2, 3], [4, 5, 6]], names=["a", None])
    for number, one in enumerate((frame, frame[frame.x > 5], frame.set_index(wide))):
        one.to_parquet(tmp_path / f"{number}.parquet")
        file = open_stream(tmp_path / f"{number}.parquet", schema=points.plan.schema, start="at")
        seen = [rc.run(points, {"p": data}).history() for data in (one, file, pa.Table.from_pandas(one))]
        assert seen[0].to_events() == seen[1].to_events() == seen[2].to_events()
        assert len(seen[0]) == len(one)
