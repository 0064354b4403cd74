"""``recension run --engine batch``: a Spark job over stream files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recension.cli import main
from recension.gate.files import open_stream, read_history

QUERY = """
import recension as rc
s = rc.source("s", {"who": "string"})
query = s.agg(n=rc.count())
late = s.finalize(5)
grid = s.tumbling(5).agg(n=rc.count())
broken = s.map(lambda row: {"who": row["who"] + 1}, {"who": "string"}, per_row=True)
"""
STREAM = """_kind,_vs,_ve,_new_ve,who
insert,0,10,,ann
insert,5,20,,bob
retract,0,10,7,ann
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s.csv").write_text(STREAM)
    return tmp_path


@pytest.fixture
def quiet(spark: Any) -> Any:
    """The command silences Spark's log; others want it back."""
    yield
    spark.sparkContext.setLogLevel("ERROR")


def _run(*arguments: str, query: str = "q.py") -> int:
    return main(["run", query, "--engine", "batch", "-i", "s=s.csv", *arguments])


def test_output_and_history(folder: Path) -> None:
    assert _run("--output", "out.parquet", "--history", "h.jsonl") == 0
    history = read_history(folder / "h.jsonl")
    assert [(e.vs, e.ve, e.payload["n"]) for e in history.to_events()] == [(0, 5, 1), (5, 7, 2), (7, 20, 1)]
    elements = [e for batch in open_stream(folder / "out.parquet") for e in batch.to_elements()]
    assert [str(e) for e in elements] == [
        "insert [0, 5) {'n': 1}",
        "insert [5, 7) {'n': 2}",
        "insert [7, 20) {'n': 1}",
        "cti ∞",
    ]


def test_a_policy_for_this_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.csv").write_text(STREAM + "retract,1,2,9,eve\n")
    assert _run("--on-violation", "drop", "-o", "-", "--format", "csv") == 0
    shown = capsys.readouterr()
    lines = [
        "_kind,_vs,_ve,_new_ve,_count,n",
        "insert,0,5,,,1",
        "insert,5,7,,,2",
        "insert,7,20,,,1",
        "cti,,,,,",
    ]
    assert shown.out.splitlines() == lines
    assert "recension: s: dropped or moved: 1 × retracts an event that is not there" in shown.err


def test_shown_with_timestamps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.csv").write_text("_kind,_vs,_ve,who\ninsert,2024-01-01T00:00:00,,ann\n")
    assert _run() == 0
    assert capsys.readouterr().out == "_vs,_ve,n\n2024-01-01T00:00:00.000000,,1\n"


@pytest.mark.parametrize(
    ("query", "stream", "reason"),
    [
        ("q.py", STREAM + "retract,1,2,9,eve\n", "s.csv: row 4: "),
        ("q.py:late", STREAM, "finalize, remember 5: what a finite memory forgets depends on arrival"),
        ("q.py:grid", STREAM + "insert,3,,,zoe\n", "name a last start with until="),
        ("q.py:broken", STREAM, "map each row by <lambda>: TypeError"),
    ],
)
def test_bad_input_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], query: str, stream: str, reason: str
) -> None:
    (folder / "s.csv").write_text(stream)
    assert _run("--history", "h.csv", query=query) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("recension:")]
    assert len(said) == 1
    assert reason in said[0]
    assert not (folder / "h.csv").exists()


def test_profile_is_for_other_engines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--profile") == 2
    assert "Spark's own UI" in capsys.readouterr().err
