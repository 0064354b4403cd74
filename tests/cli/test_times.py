"""The command shows times as the files have them, and refuses those of two kinds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.cli import main
from recension.cli.show import show_history
from recension.gate.files import read_history

QUERY = """
import recension as rc
query = rc.source("a", {"x": "int64"}).union(rc.source("b", {"x": "int64"}))
until = rc.source("a", {"x": "int64"}).tumbling("1 day", until="2024-08-01").agg(n=rc.count())
"""
NOON = dt.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))
LATER = NOON + dt.timedelta(days=1)


def table(path: Path, *times: Any, kind: pa.DataType) -> Path:
    pq.write_table(pa.table({"_vs": pa.array(times, kind), "x": [1] * len(times)}), path)
    return path


def paris(path: Path, *times: Any) -> Path:
    return table(path, *times, kind=pa.timestamp("us", "Europe/Paris"))


def naive(path: Path) -> Path:
    return table(path, dt.datetime(2024, 7, 1, 12), kind=pa.timestamp("us"))


@pytest.mark.parametrize("engine", ["local", "spark", "batch"])
def test_inputs_of_two_kinds_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    (tmp_path / "q.py").write_text(QUERY)
    a, b = paris(tmp_path / "a.parquet", NOON), naive(tmp_path / "b.parquet")
    command = ["run", str(tmp_path / "q.py"), "--engine", engine]
    assert main([*command, "--input", f"a={a}", "--input", f"b={b}"]) == 2
    assert capsys.readouterr().err == (
        "recension: b: the times are timestamps without a zone, but those of a are timestamps in "
        "Europe/Paris; give all of them a zone, such as '2024-01-01T00:00:00+00:00', or none\n"
    )
    command[1] += ":until"
    assert main([*command, "--input", f"a={a}"]) == 2
    assert (
        "a: the times are timestamps in Europe/Paris, but those of windows, until are"
        in capsys.readouterr().err
    )


def test_what_a_run_writes_keeps_the_zone(tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(QUERY)
    a, b = (paris(tmp_path / f"{name}.parquet", NOON) for name in "ab")
    out, history = tmp_path / "out.parquet", tmp_path / "history.arrow"
    given = ["--input", f"a={a}", "--input", f"b={b}", "--output", str(out), "--history", str(history)]
    assert main(["run", str(tmp_path / "q.py"), *given]) == 0
    assert pq.read_schema(out).field("_vs").type == pa.timestamp("us", "Europe/Paris")
    assert len(read_history(history)) == 2


def test_a_directory_whose_files_disagree_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paris(tmp_path / "1.parquet", NOON)
    naive(tmp_path / "2.parquet")
    for command in ("history", "check"):
        assert main([command, str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "2.parquet: the times are timestamps without a zone, but those of" in said
        assert said.count("\n") == 1


def test_check_and_diff_show_timestamps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = pa.timestamp("us", "Europe/Paris")
    stream = {"_kind": ["insert", "cti"], "_vs": pa.array([NOON, LATER], kind), "x": [1, None]}
    pq.write_table(pa.table(stream), tmp_path / "s.parquet")
    assert main(["check", str(tmp_path / "s.parquet")]) == 0
    assert "the last at 2024-07-02 12:00:00+02:00" in capsys.readouterr().out
    other = paris(tmp_path / "t.parquet", LATER)
    assert main(["diff", str(tmp_path / "s.parquet"), str(other)]) == 1
    assert "  - [2024-07-01 12:00:00+02:00, ∞) {'x': 1}" in capsys.readouterr().out
    assert main(["diff", str(other), str(naive(tmp_path / "n.parquet"))]) == 1
    assert capsys.readouterr().out.startswith("different: timestamps without a zone do not mix with")


def test_a_terminal_shows_the_zone_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = read_history(paris(tmp_path / "a.parquet", NOON))
    show_history(history, pa.timestamp("us", "Europe/Paris"))
    assert "2024-07-01 12:00:00+02:00" in capsys.readouterr().out
