"""``recension run`` names the input without a CTI that leaves an answer unfinal."""

from __future__ import annotations

from pathlib import Path

import pytest

from recension.cli import main

QUERY = """
import recension as rc
trades, calib = (rc.source(name, {"k": "string"}) for name in ("trades", "calib"))
query = trades.join(calib, on="k").cleanse()
paced = trades.join(calib.advance_time(1), on="k").cleanse()
doubtful = trades.to_points().join(calib.to_points(), on="k")
"""
TRADES = "_kind,_vs,_ve,k\ninsert,1,5,x\ncti,9,,\n"
CALIB = "_kind,_vs,_ve,k\ninsert,0,20,x\n"
SAYS = (
    "recension: the answer is not final: it waits for calib, which has no cti: add ctis to it, close it with "
    "--close, or put advance_time(...) on it in the query\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("q.py", QUERY), ("trades.csv", TRADES), ("calib.csv", CALIB)):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(query: str, *options: str) -> int:
    return main(["run", f"q.py:{query}", "-i", "trades=trades.csv", "-i", "calib=calib.csv", *options])


def test_an_input_without_a_cti_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("query") == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[1:], err) == ([], SAYS)


def test_what_it_says_makes_the_answer_final(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Closed, with CTIs of its own, or with CTIs in the file."""
    for query, options in (("query", ["--close"]), ("paced", [])):
        assert run(query, *options) == 0
        assert capsys.readouterr().err == ""
    (folder / "calib.csv").write_text(CALIB + "cti,9,,\n")
    assert run("query") == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[1:], err) == (["1,5,x"], "")


def test_a_run_says_what_is_hardly_meant(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert run("doubtful", "--close") == 0
    assert ["both sides are instants" in message for message in caplog.messages] == [True]
