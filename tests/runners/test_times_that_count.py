"""Integers that count since 1970, and texts without a zone where the source says UTC: alike at every door."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.cli import main
from recension.gate.files import open_stream

UTC = dt.UTC
SECONDS = [1704067200, 1704067205]  # 2024 begins
ENDS = [1704067210, None]


def doors(frame: pd.DataFrame, times: Any, folder: Path) -> dict[str, Any]:
    """The same rows in a frame, a table and files."""
    frame.to_parquet(folder / "a.parquet")
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_json(folder / "a.jsonl", orient="records", lines=True)
    schema = pa.schema({"x": pa.int64()})
    files = {
        name: open_stream(folder / f"a.{name}", schema=schema, start="at", end="until", times=times)
        for name in ("parquet", "csv", "jsonl")
    }
    return {"pandas": frame, "arrow": pa.Table.from_pandas(frame), **files}


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
def test_integers_count_what_the_source_says(unit: str, per_second: int, tmp_path: Path) -> None:
    source = rc.source("s", {"x": "int64"}, start="at", end="until", times=unit)
    frame = pd.DataFrame(
        {
            "at": [one * per_second for one in SECONDS],
            "until": pd.array([one and one * per_second for one in ENDS], "Int64"),
            "x": [1, 2],
        }
    )
    moments = [dt.datetime.fromtimestamp(one, UTC) for one in (*SECONDS, 1704067210)]
    meant = [rc.Insert({"x": 1}, moments[0], moments[2]), rc.Insert({"x": 2}, moments[1])]
    expected = rc.run(source, {"s": meant}).history()
    for door, data in doors(frame, unit, tmp_path).items():
        found = rc.run(source, {"s": data}).history()
        assert found.to_events() == expected.to_events(), door
        assert found.time_type == pa.timestamp("us", "UTC"), door


def test_ticks_are_ticks_and_another_word_is_refused() -> None:
    table = pa.table({"at": [3], "x": [1]})
    (event,) = (
        rc.run(rc.source("s", {"x": "int64"}, start="at", times="ticks"), {"s": table}).history().to_events()
    )
    assert (event.vs, event.ve) == (3, 4)
    with pytest.raises(rc.RecensionError, match="'min' is not a type"):
        rc.source("s", {"x": "int64"}, times="min")


@pytest.mark.parametrize("factor", [1000, 10**9])
def test_counts_beyond_all_dates_are_of_another_unit(factor: int, tmp_path: Path) -> None:
    source = rc.source("s", {"x": "int64"}, start="at", end="until", times="s")
    frame = pd.DataFrame({"at": [SECONDS[0] * factor], "until": [SECONDS[1] * factor], "x": [1]})
    for data in doors(frame, "s", tmp_path).values():
        with pytest.raises(
            rc.RecensionError, match=f"row 1: column at: {SECONDS[0] * factor} s since 1970 are beyond"
        ):
            rc.run(source, {"s": data})


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000)])
def test_what_looks_like_an_epoch_is_refused_where_units_are_measured(
    unit: str, per_second: int, tmp_path: Path
) -> None:
    """31 hours would be in one window of a minute; nobody would see it."""
    frame = pd.DataFrame({"at": [one * per_second for one in SECONDS], "until": None, "x": [1, 2]})
    frame["until"] = frame["at"] + per_second
    first = SECONDS[0] * per_second
    said = rf"s: column at: {first} is 1970-.* microseconds and 2024-01-01 00:00:00 if .*'{unit}'"
    ticks = rc.source("s", {"x": "int64"}, start="at", end="until")
    minutes: list[Any] = [
        ticks.tumbling("1m").agg(n=rc.count()),
        ticks.sessions(dt.timedelta(seconds=5)).agg(n=rc.count()),
        ticks.where(rc.col("x") > 0).set_duration("10s"),
        ticks.advance_time("30s"),
        ticks.tumbling("500ms").agg(n=rc.count()),
        ticks.with_lifetime(rc.start(), rc.start() + rc.duration("1ms")),
        ticks.group_by("x").apply(lambda own: own.shift("-5us")),
        ticks.due(by="clock"),
        ticks.due(by=ticks, ahead="1d"),
    ]
    for query in minutes:
        for data in doors(frame, None, tmp_path).values():
            with pytest.raises(rc.RecensionError, match=said) as caught:
                rc.run(query, {"s": data})
            assert "\n" not in str(caught.value)
    days = ticks.tumbling(30 * 86_400_000).agg(n=rc.count())  # thirty, in milliseconds
    for query in (ticks, ticks.tumbling(60_000).agg(n=rc.count()), days, ticks.agg(n=rc.count())):
        for data in doors(frame, None, tmp_path).values():
            assert len(rc.run(query, {"s": data}).history())
    meant = rc.source("s", {"x": "int64"}, start="at", end="until", times="ticks").tumbling("1m")
    assert len(rc.run(meant.agg(n=rc.count()), {"s": frame}).history())
    others = frame.assign(at=[5, SECONDS[0] * per_second])
    assert len(rc.run(minutes[0], {"s": others.assign(until=others["at"] + 1)}).history())


def test_control_columns_and_keyed_rows_count_too() -> None:
    source = rc.source("s", {"x": "int64"}, times="ms")
    rows = pa.table({"_kind": ["insert", "cti"], "_vs": [1000, 2000], "_ve": [3000, None], "x": [1, None]})
    (event,) = rc.run(source, {"s": rows}).history().to_events()
    assert (int(event.vs), int(event.ve)) == (1_000_000, 3_000_000)
    keyed = rc.changes("c", {"k": "int64"}, "k", start="at", times="s")
    (event,) = rc.run(keyed, {"c": pa.table({"at": [2], "k": [1]})}).history().to_events()
    assert int(event.vs) == 2_000_000


def test_the_command_reads_them_as_the_query_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.py").write_text(
        "import recension as rc\n"
        "query = rc.source('s', {'x': 'int64'}, start='at', end='until', times='ms').select('x')\n"
    )
    (tmp_path / "a.jsonl").write_text('{"at": 1704067200000, "until": 1704067205000, "x": 1}\n')
    assert main(["run", str(tmp_path / "q.py"), "--input", f"s={tmp_path / 'a.jsonl'}"]) == 0
    assert "2024-01-01T00:00:00.000000Z,2024-01-01T00:00:05.000000Z,1" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_text_without_a_zone_is_in_utc_if_the_times_are_said_to_be(form: str, tmp_path: Path) -> None:
    times = ["2024-01-01T00:00:00", "2024-01-01T05:00:00Z"]
    frame = pd.DataFrame({"at": times, "until": ["2024-01-02", None], "x": [1, 2]})
    kinds = [pa.timestamp("us", zone) for zone in ("UTC", None, "Europe/Paris")]
    for declared in kinds:
        source = rc.source("s", {"x": "int64"}, start="at", end="until", times=declared)
        frame.to_csv(tmp_path / "a.csv", index=False)
        frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
        file, columns = tmp_path / f"a.{form}", source.plan.schema
        data = open_stream(file, schema=columns, start="at", end="until", times=declared)
        if declared.tz != "UTC":
            with pytest.raises(rc.RecensionError, match="without a zone"):
                rc.run(source, {"s": data})
            continue
        found = rc.run(source, {"s": data}).history().to_events()
        day = 1704067200_000_000
        assert [int(event.vs) for event in found] == [day, day + 5 * 3_600_000_000]
    typed = rc.source("s", {"x": "int64"}, start="at", times="timestamp[us, UTC]")
    with pytest.raises(rc.RecensionError, match="without a zone"):
        rc.run(typed, {"s": pa.table({"at": pa.array([0], pa.timestamp("us")), "x": [1]})})
