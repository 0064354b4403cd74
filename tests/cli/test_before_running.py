"""What can be known beforehand is refused before anything runs: no row is read, no engine starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recension.cli import main

QUERY = """
import recension as rc
events = rc.source("events", {"who": "string"})
query = events.agg(n=rc.count())
nested = events.agg(all=rc.collect("who"))
late = events.finalize(5)
both = events.join(rc.source("sites", {"who": "string", "site": "string"}), on="who")
wrong = 3
"""
STREAM = "_kind,_vs,_ve,who\ninsert,0,10,ann\n"
ENGINES = ("local", "spark", "batch")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query, its input, and nobody who may do any work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s.csv").write_text(STREAM)
    (tmp_path / "other.csv").write_text("_kind,_vs,_ve,whom\ninsert,0,10,ann\n")
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "1.csv").write_text(STREAM)
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.parquet" / "_history").mkdir(parents=True)

    def works(*_: Any, **__: Any) -> None:
        raise AssertionError("something runs")

    monkeypatch.setattr("recension.core.formats.reader.StreamFiles.rows", works)
    monkeypatch.setattr("recension.runners.local.Session.push", works)
    monkeypatch.setattr("recension.runners.spark.session.session", works)
    return tmp_path


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return err


GIVEN = ["q.py", "-i", "events=s.csv"]
# Arguments of run, and words of the reason.
ON_ANY_ENGINE: list[tuple[str, list[str], str]] = [
    ("unknown extension", [*GIVEN, "--output", "x.sout"], "x.sout: unknown format '.sout'"),
    ("unknown extension of the history", [*GIVEN, "--history", "x.txt"], "x.txt: unknown format '.txt'"),
    ("no directory", [*GIVEN, "-o", "none/x.csv"], "none/x.csv: no such directory"),
    ("below a file", [*GIVEN, "-o", "s.csv/x.csv"], "s.csv/x.csv: no such directory"),
    ("a directory", [*GIVEN, "-o", "empty"], "empty: is a directory; name a file"),
    ("a table", [*GIVEN, "--history", "table.parquet"], "table.parquet: is a history table; name a file"),
    ("the input", [*GIVEN, "-o", "./s.csv"], "s.csv: is also read: write to another file"),
    (
        "in the input",
        ["q.py", "-i", "events=feed", "--history", "feed/h.csv"],
        "is inside feed, which is read",
    ),
    ("twice the same", [*GIVEN, "-o", "x.csv", "--history", "./x.csv"], "--output and --history are both"),
    ("twice standard output", [*GIVEN, "-o", "-", "--history", "-"], "--output and --history are both -"),
    ("a format for a file", [*GIVEN, "-o", "x.csv", "--format", "csv"], "a file's name says its format"),
    ("no form in CSV", ["q.py:nested", *GIVEN[1:], "-o", "x.csv"], "column all: list<item: string> cannot"),
    ("no form in CSV on standard output", ["q.py:nested", *GIVEN[1:], "-o", "-", "--format", "csv"], "all: "),
    ("no such source", ["q.py", "-i", "event=s.csv"], "no source 'event' (did you mean 'events'?)"),
    (
        "a source too many",
        [*GIVEN, "-i", "x=s.csv"],
        "--input x=s.csv: no source 'x'; the query reads events",
    ),
    ("a source too few", ["q.py:both", *GIVEN[1:]], "no input for source 'sites': add --input sites=PATH"),
    ("a source twice", [*GIVEN, "-i", "events=other.csv"], "--input events=other.csv: events was given"),
    ("no name", ["q.py", "-i", "=s.csv"], "--input =s.csv: write NAME=PATH"),
    ("no file", ["q.py", "-i", "events=gone.csv"], "gone.csv: no such file or directory"),
    ("no files", ["q.py", "-i", "events=empty"], "empty: a directory without data files"),
    ("a column that is not there", ["q.py", "-i", "events=other.csv"], "other.csv: no column who"),
    ("no such stream", ["q.py:quer", *GIVEN[1:]], "q.py: quer is not defined (did you mean 'query'?)"),
    ("no stream", ["q.py:wrong", *GIVEN[1:]], "q.py: wrong is a int, not a stream; the streams in it are"),
    ("no batch size", [*GIVEN, "--batch-size", "0"], "--batch-size"),
    ("no policy", [*GIVEN, "--on-violation", "ignore"], "'ignore' is not one of 'raise', 'drop', 'adjust'"),
]
ON_ONE_ENGINE: list[tuple[str, list[str], str]] = [
    ("shards", ["local", "--shards", "2"], "--shards and --checkpoint are for --engine spark"),
    ("checkpoint", ["batch", "--checkpoint", "ck"], "--shards and --checkpoint are for --engine spark"),
    ("profile", ["batch", "--profile"], "a batch job has Spark's own UI"),
    ("no shards", ["spark", "--shards", "0"], "--shards"),
    ("too little memory", ["local", "--memory", "1MB"], "memory is at least 16MB, not '1MB'"),
    ("too little memory on Spark", ["spark", "--memory", "1MB"], "memory is at least 16MB, not '1MB'"),
    ("no size", ["local", "--memory", "much"], 'a size of memory is written as "512MB" or "2GiB"'),
    ("no place", ["local", "--memory", "1GB", "--spill", "gone"], "spill: there is no directory gone"),
    ("spill alone", ["local", "--spill", "."], 'such as memory="512MB"'),
    ("spill on Spark", ["spark", "--spill", "."], "--spill is for --engine local"),
    ("memory of a batch", ["batch", "--memory", "1GB"], "a batch job holds no state"),
    ("a checkpoint that is a file", ["spark", "--checkpoint", "other.csv"], "other.csv: is a file; name a"),
    ("a checkpoint around the input", ["spark", "--checkpoint", "."], "s.csv is in it"),
    ("a folder of something else", ["spark", "--checkpoint", "feed"], "feed: a folder with other things"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arguments", "reason"), [c[1:] for c in ON_ANY_ENGINE], ids=[c[0] for c in ON_ANY_ENGINE]
)
def test_on_any_engine(
    folder: Path, capfd: pytest.CaptureFixture[str], engine: str, arguments: list[str], reason: str
) -> None:
    assert reason in refused(["run", *arguments, "--engine", engine], capfd)


@pytest.mark.parametrize(
    ("arguments", "reason"), [c[1:] for c in ON_ONE_ENGINE], ids=[c[0] for c in ON_ONE_ENGINE]
)
def test_on_one_engine(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert reason in refused(["run", *GIVEN, "--engine", *arguments], capfd)


def test_a_batch_of_what_depends_on_arrival(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = refused(["run", "q.py:late", *GIVEN[1:], "--engine", "batch"], capfd)
    assert "what a finite memory forgets depends on arrival" in told


@pytest.mark.parametrize("engine", ["spark", "batch"])
def test_an_engine_that_is_not_there(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr("recension.cli.run.missing_for_spark", lambda: "PySpark (pip install it)")
    assert f"--engine {engine} needs PySpark" in refused(["run", *GIVEN, "--engine", engine], capfd)


def test_a_checkpoint_of_another_query(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _make_checkpoint(folder / "ck")
    told = refused(["run", *GIVEN, "--engine", "spark", "--checkpoint", "ck"], capfd)
    assert "the checkpoint was made by another query" in told
    told = refused(["run", *GIVEN, "--engine", "spark", "--checkpoint", "ck", "--shards", "5"], capfd)
    assert "was made with 2 shards, not 5" in told


def _make_checkpoint(place: Path) -> None:
    import recension as rc
    from recension.runners.spark.stream.topology import topology

    other = rc.source("events", {"who": "string"}).where(rc.col("who") == "ann").plan
    (place / "spark" / "commits").mkdir(parents=True)
    (place / "spark" / "commits" / "0").write_text("")
    (place / "spark" / "recension.json").write_text(topology([other], 2, {}).owner)


def test_a_folder_that_may_not_be_written(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    for arguments in (
        ["run", *GIVEN, "-o", "x.csv"],
        ["run", *GIVEN, "--engine", "spark", "--checkpoint", "ck"],
        ["history", "s.csv", "-o", "x.csv"],
        ["generate", "-o", "x.csv"],
        ["generate", "-o", "replicas", "--replicas", "2"],
        ["calibrate", "-o", "new/x.json"],
        ["demo", "--report", "new/x.html"],
    ):
        assert "permission denied" in refused(arguments, capfd)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["history", "s.csv", "-o", "s.csv"], "s.csv: is also read"),
        (["history", "s.csv", "-o", "x.doc"], "unknown format '.doc'"),
        (["history", "s.csv", "-o", "none/x.csv"], "no such directory"),
        (["history", "s.csv", "--format", "csv"], "a file's name says its format"),
        (["generate", "-o", "x.doc"], "unknown format '.doc'"),
        (["generate", "-o", "empty"], "is a directory"),
        (["generate", "-o", "s.csv", "--replicas", "2"], "s.csv: is a file; name a folder"),
        (["generate", "-o", "s.csv/x", "--replicas", "2"], "s.csv is not a directory"),
        (["generate", "-o", "-", "--replicas", "2"], "replicas are several streams, and need a folder"),
        (["generate", "-o", "-", "--format", "parquet"], "Parquet is not for standard output"),
        (["generate", "-o", "x.csv", "--arrival", "s.csv"], "s.csv: is a file; name a folder"),
        (["calibrate", "-o", "empty"], "empty: is a directory; name a file"),
        (["calibrate", "-o", "s.csv/x"], "s.csv: is a file; name a folder"),
        (["demo", "--report", "empty"], "empty: is a directory; name a file"),
    ],
)
def test_other_commands(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    for work in (
        "cli.generate.replica",
        "cli.generate.one_stream",
        "operators.extents.calibration.calibrate",
        "demo.performance.perform",
    ):
        monkeypatch.setattr(f"recension.{work}", _never)
    assert reason in refused(arguments, capfd)


def _never(*_: Any, **__: Any) -> Callable[..., None]:
    raise AssertionError("something runs")
