"""``recension run --engine spark``: a streaming pipeline over stream files."""

from __future__ import annotations

import runpy
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recension.cli import main
from recension.gate.files import open_stream, read_history
from recension.runners.spark.job import Job

QUERY = """
import recension as rc
s = rc.source("s", {"who": "string", "site": "string"})
t = rc.source("t", {"site": "string", "country": "string"}, start="since", end="until")
query = s.join(t, on="site").group_by("country").agg(total=rc.count())
"""
SHORT_QUERY = """
import recension as rc
s = rc.source("s", {"who": "string", "site": "string"})
query = s.group_by("site").agg(total=rc.count(), speculate="eager")
"""
PARTS = {
    "1.csv": "_kind,_vs,_ve,_new_ve,who,site\ninsert,0,10,,ann,a\ninsert,5,20,,bob,b\n",
    "2.jsonl": '{"_kind": "retract", "_vs": 0, "_ve": 10, "_new_ve": 7, "who": "ann", "site": "a"}\n'
    '{"_kind": "cti", "_vs": 4}\n',
}
LATER = "_kind,_vs,_ve,_new_ve,who,site\ninsert,6,9,,eve,a\n"
LATE = "_kind,_vs,_ve,_new_ve,who,site\ninsert,1,3,,zoe,a\n"
DROP = ("--on-violation", "drop")
SITES = "since,until,site,country\n0,100,a,fr\n0,100,b,fr\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s").mkdir()
    for name, text in PARTS.items():
        (tmp_path / "s" / name).write_text(text)
    (tmp_path / "t.csv").write_text(SITES)
    return tmp_path


ALONE = ("-i", "s=s")
BOTH = (*ALONE, "-i", "t=t.csv")


def _run(engine: str, *options: str, inputs: Sequence[str] = BOTH) -> int:
    return main(["run", "q.py", "--engine", engine, *inputs, *options])


def _history(path: Path) -> list[tuple[int, int, int]]:
    return [(e.vs, e.ve, e.payload["total"]) for e in read_history(path).to_events()]


def test_a_run_goes_on_from_its_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spark_options = (
        "--checkpoint",
        "ck",
        "--shards",
        "2",
        "--output",
        "out.parquet",
        "--history",
        "h.parquet",
        *DROP,
    )
    (folder / "s" / "2.late.csv").write_text(LATE)
    assert _run("spark", *spark_options) == 0
    assert "recension: s: dropped or moved: 1 × breaks an earlier cti" in capsys.readouterr().err
    assert _run("local", *DROP, "--history", "local.parquet") == 0
    assert _history(folder / "h.parquet") == _history(folder / "local.parquet") != []
    (folder / "s" / "3.csv").write_text(LATER)
    assert _run("spark", *spark_options, "--close", "--profile") == 0
    assert "aggregate total" in capsys.readouterr().err
    assert _run("local", *DROP, "--close", "--history", "local.parquet") == 0
    assert _history(folder / "h.parquet") == _history(folder / "local.parquet")
    elements = [e for batch in open_stream(folder / "out.parquet") for e in batch.to_elements()]
    assert str(elements[-1]) == "cti ∞"
    assert main(["run", "q.py", "--engine", "spark", "-i", "s=s", "-i", "t=t.csv", "--checkpoint", "ck",
                 "--shards", "3"]) == 2  # fmt: skip
    assert "was made with 2 shards, not 3" in capsys.readouterr().err


def test_a_bad_row_stops_the_run_and_its_file_can_be_taken_away(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "q.py").write_text(SHORT_QUERY)
    (folder / "s" / "9.csv").write_text(
        "_kind,_vs,_ve,_new_ve,who,site\ninsert,50,60,,ann,a\ninsert,2,3,,bob,b\n"
    )
    assert _run("spark", "--checkpoint", "ck", "--shards", "1", inputs=ALONE) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "9.csv: row 2: " in told
    shutil.move(folder / "s" / "9.csv", folder / "bad.csv")
    options = ("--checkpoint", "ck", "--shards", "1", "--close", "--history", "h.parquet")
    assert _run("spark", *options, inputs=ALONE) == 0
    assert _run("local", "--close", "--history", "local.parquet", inputs=ALONE) == 0
    assert _history(folder / "h.parquet") == _history(folder / "local.parquet")


def test_a_user_who_wants_to_stop(folder: Path, spark: Any) -> None:
    """After the micro-batch that runs; the next run takes the rest."""
    query = runpy.run_path("q.py")["s"].plan
    job = Job(spark, query, {"s": folder / "s"}, folder / "ck", 1)
    seen: list[Any] = []
    assert not job.run(seen.append, lambda: True)
    assert job.run(seen.append, lambda: False)
    found = reconstituted(job)
    assert sorted(found) == [(0, 7, "ann"), (5, 20, "bob")]
    _nothing_new_and_closed(Job(spark, query, {"s": folder / "s"}, folder / "ck", 1))


def _nothing_new_and_closed(job: Job) -> None:
    """Spark reports that nothing came under the number of the micro-batch that is still to come."""
    seen: list[Any] = []
    assert job.run(seen.append, lambda: False)
    assert not seen
    job.close("s")
    assert job.run(seen.append, lambda: False)
    assert len(seen) == job.metrics().turns == 1


@pytest.mark.parametrize(
    ("engine", "asks"), [("spark", "session"), ("batch", "batch.run")], ids=["spark", "batch"]
)
def test_an_interrupt_waits_until_spark_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, asks: str
) -> None:
    """A Java process whose start is broken off would be left running."""
    started: list[Path] = []

    def start(log: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        started.append(log)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"recension.runners.spark.{asks}.quiet_session", start)
    (tmp_path / "q.py").write_text('import recension as rc\nquery = rc.source("s", {"k": "int64"})\n')
    (tmp_path / "s.csv").write_text("_vs,_ve,k\n1,2,3\n")
    assert main(["run", "q.py", "--engine", engine, "-i", "s=s.csv"]) == 130
    assert len(started) == 1


def test_a_run_that_was_stopped_has_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("recension.cli.run_spark._make_job", lambda *_: None)
    monkeypatch.setattr("recension.cli.run_spark._run", lambda *_, **__: False)
    (tmp_path / "q.py").write_text('import recension as rc\nquery = rc.source("s", {"k": "int64"})\n')
    (tmp_path / "s.csv").write_text("_vs,_ve,k\n1,2,3\n")
    command = ["run", "q.py", "--engine", "spark", "-i", "s=s.csv", "-o", "out.csv"]
    assert main([*command, "--checkpoint", "ck"]) == 130
    assert "run it again with --checkpoint ck to go on" in capsys.readouterr().err
    assert main(command) == 130
    assert "no output is written: nothing is kept" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def reconstituted(job: Job) -> list[tuple[int, int, str]]:
    events = read_history(job.history).to_events()
    return [(event.vs, event.ve, event.payload["who"]) for event in events]
