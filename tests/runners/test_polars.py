"""polars frames as inputs, and histories and results as polars frames and back."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core import frames
from recension.testing import assert_equivalent

s = rc.source("s", {"i": "int64", "f": "float64", "t": "string"})
COLUMNS: dict[str, list[Any]] = {
    "i": [2**53 + 1, None, -1],
    "f": [0.5, float("nan"), None],
    "t": ["ä", "", None],
}
ZONE = "Europe/Berlin"
TIMES = [pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", ZONE)]


def history_with(time_type: pa.DataType) -> rc.History:
    """Three events, the second without an end."""
    starts, ends = ([1, 2, 3], [9, None, 7])
    times = {"_vs": pa.array(starts, pa.int64()), "_ve": pa.array(ends, pa.int64())}
    table = pa.table({name: column.cast(time_type) for name, column in times.items()} | COLUMNS)
    return rc.History.from_arrow(table)


@pytest.fixture
def pl() -> Any:
    return pytest.importorskip("polars")


@pytest.mark.parametrize("time_type", TIMES, ids=str)
def test_a_history_goes_out_and_back(pl: Any, time_type: pa.DataType) -> None:
    history = history_with(time_type)
    frame = history.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert frame["_ve"].is_null().to_list() == [False, True, False]
    assert frame["i"].to_list() == COLUMNS["i"]
    again = rc.History.from_polars(frame)
    assert_equivalent(again, history)
    assert again.time_type == time_type
    assert again.schema == history.schema


@pytest.mark.parametrize("time_type", TIMES, ids=str)
def test_a_result_goes_out_and_back(pl: Any, time_type: pa.DataType) -> None:
    result = rc.run(s, {"s": history_with(time_type)})
    frame = result.to_polars()
    assert frame["_kind"].to_list() == ["insert", "insert", "insert", "cti"]
    again = rc.Result.from_polars(frame)
    assert list(map(str, again.elements())) == list(map(str, result.elements()))
    assert again.time_type == time_type
    assert again.schema == result.schema


@pytest.mark.parametrize("time_type", TIMES, ids=str)
def test_a_frame_is_an_input(pl: Any, time_type: pa.DataType) -> None:
    history = history_with(time_type)
    out = rc.run(s, {"s": history.to_polars()})
    assert_equivalent(out, history)
    assert out.time_type == time_type
    session = rc.session(s)
    session.push("s", history.to_polars())
    assert_equivalent(session.read(), history)


def test_times_of_a_frame_are_read_in_their_unit_and_zone(pl: Any) -> None:
    start = dt.datetime(2026, 3, 2, 8, 0, 0, 1000)
    frame = pl.DataFrame({"at": [start], "i": [1], "f": [1.0], "t": ["a"]}).with_columns(
        pl.col("at").dt.cast_time_unit("ms").dt.replace_time_zone(ZONE)
    )
    source = rc.source("s", {"i": "int64", "f": "float64", "t": "string"}, start="at")
    (event,) = rc.run(source, {"s": frame}).history().to_events()
    assert event.vs == rc.Insert({}, "2026-03-02T07:00:00.001Z").vs


@pytest.mark.parametrize("how", ["run", "push"])
def test_a_misspelt_column_is_refused(pl: Any, how: str) -> None:
    frame = history_with(pa.int64()).to_polars().rename({"t": "tt"})
    session = rc.session(s)
    with pytest.raises(rc.RecensionError, match=r"s: no column t \(did you mean 'tt'\?\)"):
        rc.run(s, {"s": frame}) if how == "run" else session.push("s", frame)
    session.push("s", frame.rename({"tt": "t"}))
    assert len(session.read().history()) == 3


def test_texts_bytes_and_lists_keep_their_types(pl: Any) -> None:
    nested = pa.struct([("l", pa.list_(pa.string())), ("b", pa.binary())])
    table = pa.table({"_vs": [1], "_ve": [2], "n": pa.array([{"l": ["a", None], "b": b"b"}], nested)})
    history = rc.History.from_arrow(table)
    again = rc.History.from_polars(history.to_polars())
    assert again.schema == history.schema
    assert_equivalent(again, history)


def test_an_empty_frame_is_a_closed_table(pl: Any) -> None:
    out = rc.run(s, {"s": history_with(pa.int64()).to_polars().clear()})
    assert out.elements() == [rc.Cti(rc.FOREVER)]


def test_frames_of_open_and_closed_streams(pl: Any) -> None:
    """A frame with ``_kind`` is a stream: what it retracts is gone."""
    frame = pl.DataFrame(
        {"_kind": ["insert", "retract"], "_vs": [1, 1], "_ve": [None, None], "_new_ve": [None, 4]}
    )
    out = rc.run(s.select("i"), {"s": frame.with_columns(i=pl.lit(1), f=pl.lit(0.0), t=pl.lit("a"))})
    assert out.history().to_events() == [rc.Event({"i": 1}, 1, 4)]


def test_without_polars_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(frames, "import_module", absent)
    with pytest.raises(rc.RecensionError, match="polars is not installed: pip install polars"):
        history_with(pa.int64()).to_polars()


BACK_FROM_POLARS = {
    pa.date64(): pa.timestamp("ms"),
    pa.time32("s"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
    pa.duration("s"): pa.duration("ms"),
    pa.timestamp("s", ZONE): pa.timestamp("ms", ZONE),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary(4): pa.binary(),
    pa.large_list(pa.int64()): pa.list_(pa.int64()),
    pa.decimal32(5, 2): pa.decimal128(5, 2),
    pa.dictionary(pa.int32(), pa.int64()): pa.int64(),
}


@pytest.mark.parametrize("kind", BACK_FROM_POLARS, ids=str)
def test_types_that_polars_does_not_have_come_back_as_the_guide_says(pl: Any, kind: pa.DataType) -> None:
    table = pa.table({"_vs": [1], "_ve": [2], "x": pa.nulls(1, kind)})
    back = rc.History.from_polars(rc.History.from_arrow(table).to_polars())
    assert back.to_arrow()["x"].type == BACK_FROM_POLARS[kind]
