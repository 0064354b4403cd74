"""``arrival=`` of a source: the column that says when a row came, by every way in, and in recordings."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.core.batch import Index
from recension.gate.gate import Gate
from recension.plan.source import Source

INSTANTS = pa.timestamp("us", "UTC")
NEW_YEAR, DAY = 1_704_067_200_000_000, 86_400_000_000
UNKNOWN = rc.BEGINNING
LOADED = rc.source("s", {"k": "string"}, start="t", arrival="loaded_at")
ROWS = pa.table(
    {
        "k": ["a", "b", "c"],
        "t": [5, 6, 7],
        "loaded_at": pa.array([NEW_YEAR + DAY, None, NEW_YEAR], INSTANTS),
    }
)
CAME = [NEW_YEAR + DAY, UNKNOWN, NEW_YEAR]


def gate_of(stream: rc.Stream) -> Gate:
    (source,) = rc.session(stream).plan.sources.values()
    assert isinstance(source, Source)
    return Gate(source)


def arrivals(stream: rc.Stream, data: Any) -> list[int] | None:
    """When each row came, as the gate knows it."""
    gate = gate_of(stream)
    admission = gate.judge(data)
    found: Index | None = gate.arrivals(admission, len(gate.admit(admission)))
    return None if found is None else found.tolist()


def test_it_is_no_part_of_the_payload() -> None:
    assert LOADED.schema.names == ["k"]
    assert rc.run(LOADED, {"s": ROWS}).history().to_arrow().column_names == ["_vs", "_ve", "k"]
    with pytest.raises(rc.SchemaError, match="no part of the payload: leave it out of the schema"):
        rc.source("s", {"k": "string", "loaded_at": INSTANTS}, arrival="loaded_at")


def test_rows_of_tables_know_it() -> None:
    assert arrivals(LOADED, ROWS) == CAME
    assert arrivals(LOADED, ROWS.to_pandas()) == CAME
    counted = ROWS.set_column(2, "loaded_at", pa.array([3, None, 1], pa.int32()))
    assert arrivals(LOADED, counted) == [3, UNKNOWN, 1]
    parts = rc.source("s", {"k": "string"}, start="t", arrival="loaded_at", partition="p")
    assert arrivals(parts, {0: ROWS.slice(1), 1: ROWS.slice(0, 1)}) == [UNKNOWN, NEW_YEAR, NEW_YEAR + DAY]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_rows_of_files_know_it(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{form}"
    if form == "csv":
        pa.csv.write_csv(ROWS, path)
    elif form == "parquet":
        pq.write_table(ROWS, path)
    else:
        lines = ['{"k": "a", "t": 5, "loaded_at": "2024-01-02T00:00:00Z"}', '{"k": "b", "t": 6}']
        path.write_text(
            "\n".join([*lines, '{"k": "c", "t": 7, "loaded_at": "2024-01-01T01:00:00+01:00"}', ""])
        )
    assert arrivals(LOADED, path) == CAME
    found, meant = (rc.run(LOADED, {"s": data}).history().to_arrow() for data in (path, ROWS))
    assert found.equals(meant)


def test_several_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    stream = rc.source("s", {"k": "string"}, arrival="loaded_at")
    for name, batch, loaded in (("a", 2, 30), ("b", 1, 10)):
        columns = {
            "_kind": ["insert"],
            "_vs": [batch],
            "_ve": [9],
            "k": [name],
            "_batch": [batch],
            "_seq": [0],
        }
        pq.write_table(pa.table({**columns, "loaded_at": [loaded]}), tmp_path / f"{name}.parquet")
    assert arrivals(stream, tmp_path) == [10, 30]


def test_elements_histories_and_results_have_none() -> None:
    element = rc.Insert({"k": "a"}, 5, 9)
    result = rc.run(rc.source("r", {"k": "string"}), {"r": [element]})
    for given in ([element], rc.History.from_events([rc.Event({"k": "a"}, 5, 9)]), result):
        assert arrivals(LOADED, given) is None


def test_a_table_must_have_it() -> None:
    with pytest.raises(rc.RecensionError, match="s: no column loaded_at, which was named as the arrival"):
        rc.run(LOADED, {"s": ROWS.drop(["loaded_at"])})


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            pa.array([True, False, None]),
            "column loaded_at is bool; a time of arrival is a timestamp",
        ),
        (
            pa.array(["x", "y", "z"]),
            "column loaded_at is string; a time of arrival is a timestamp",
        ),
        (
            pa.array([1.5, 2.5, 3.5]),
            "column loaded_at is double; a time of arrival is a timestamp",
        ),
        (pa.array([0, 2**64 - 1, 1], pa.uint64()), "s: row 2: column loaded_at"),
    ],
    ids=["bool", "string", "float", "too large"],
)
def test_other_types_are_refused(column: pa.Array, says: str) -> None:
    with pytest.raises(rc.RecensionError, match=says):
        rc.run(LOADED, {"s": ROWS.set_column(2, "loaded_at", column)})


def test_its_name_is_a_text() -> None:
    with pytest.raises(rc.RecensionError, match="arrival= is the name of a column, not 3"):
        rc.source("s", {"k": "string"}, arrival=3)  # type: ignore[arg-type]


def test_dropped_rows_leave_the_others_theirs() -> None:
    stream = rc.source("s", {"k": "string"}, start="t", arrival="loaded_at", on_violation="drop")
    gate = gate_of(stream)
    gate.admit(gate.advance(6))
    admission = gate.judge(ROWS)
    batch = gate.admit(admission)
    found = gate.arrivals(admission, len(batch))
    assert found is not None
    assert (batch.vs.tolist(), found.tolist()) == ([6, 7], CAME[1:])


def test_a_snapshot_fits_a_source_that_has_it_since() -> None:
    old = rc.session(rc.source("s", {"k": "string"}, start="t").agg(n=rc.count()))
    old.push("s", ROWS)
    old.read()
    rc.session(LOADED.agg(n=rc.count())).restore(old.snapshot())


@pytest.mark.parametrize("size", [1, 2, 100])
def test_recordings_keep_it(size: int, tmp_path: Path) -> None:
    live = rc.session(LOADED.agg(n=rc.count()), batch_size=size)
    with rc.record(live, tmp_path / "r"):
        live.push("s", ROWS)
        live.push("s", [rc.Insert({"k": "d"}, 8, 9), rc.Cti(8)])
        live.push("s", ROWS.slice(2).set_column(1, "t", pa.array([9])))
    found = rc.read_recording(tmp_path / "r")
    known = found.arrivals("s")
    assert known is not None
    rows = found.rows("s")
    assert rows is not None
    assert known.to_pylist() == [NEW_YEAR + DAY, None, NEW_YEAR, None, None, NEW_YEAR]
    assert rows["k"].to_pylist() == ["a", "b", "c", "d", None, "c"]
    assert found.arrivals("query") is None
    assert found.stream("s").history().to_arrow().column_names == ["_vs", "_ve", "k"]


def test_a_recording_of_another_source_has_none(tmp_path: Path) -> None:
    live = rc.session(rc.source("s", {"k": "string"}))
    with rc.record(live, tmp_path / "r"):
        live.push("s", [rc.Insert({"k": "d"}, 8, 9)])
    assert rc.read_recording(tmp_path / "r").arrivals("s") is None


def test_times_in_another_zone_are_the_same_moment() -> None:
    paris = ROWS["loaded_at"].cast(pa.timestamp("ms", "Europe/Paris"))
    assert arrivals(LOADED, ROWS.set_column(2, "loaded_at", paris)) == CAME
    assert ROWS["loaded_at"][2].as_py() == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
