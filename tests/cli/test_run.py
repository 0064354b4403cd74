"""``recension run`` and ``explain``: query files over stream files."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import recension
from recension.cli import main
from recension.gate.files import open_stream, read_history

QUERY = """
import recension as rc
s = rc.source("s", {"who": "string"})
query = s.agg(n=rc.count())
other = s.group_by("who").agg(n=rc.count(), speculate="eager")
wrong = 3
"""
STREAM = """_kind,_vs,_ve,_new_ve,who
insert,0,10,,ann
insert,5,20,,bob
retract,0,10,7,ann
cti,30,,,
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s.csv").write_text(STREAM)
    return tmp_path


def test_output_and_history(folder: Path) -> None:
    arguments = ["run", "q.py", "--input", "s=s.csv", "--output", "out.parquet", "--history", "h.jsonl"]
    assert main([*arguments, "--batch-size", "1"]) == 0
    history = read_history(folder / "h.jsonl")
    assert [(e.vs, e.ve, e.payload["n"]) for e in history.to_events()] == [(0, 5, 1), (5, 7, 2), (7, 20, 1)]
    elements = [e for batch in open_stream(folder / "out.parquet") for e in batch.to_elements()]
    assert str(elements[-1]) == "cti 30"


def test_another_query_of_the_file_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "q.py:other", "-i", "s=s.csv"]) == 0
    assert capsys.readouterr().out == "_vs,_ve,who,n\n0,7,ann,1\n5,20,bob,1\n"


def test_a_query_file_imports_modules_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "queries").mkdir()
    (folder / "queries" / "leases_of_the_test.py").write_text(QUERY)
    (folder / "queries" / "q.py").write_text("from leases_of_the_test import other")
    assert main(["run", "queries/q.py:other", "-i", "s=s.csv"]) == 0
    assert capsys.readouterr().out == "_vs,_ve,who,n\n0,7,ann,1\n5,20,bob,1\n"


def test_profile_is_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "q.py", "-i", "s=s.csv", "--profile"]) == 0
    shown = capsys.readouterr().err
    assert "aggregate n = count()" in shown
    assert "state rows" in shown


def test_close(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.csv").write_text(STREAM.replace("cti,30,,,\n", ""))
    assert main(["run", "q.py", "-i", "s=s.csv"]) == 0
    assert capsys.readouterr().out == "_vs,_ve,n\n0,5,1\n"
    assert main(["run", "q.py", "-i", "s=s.csv", "--close"]) == 0
    assert capsys.readouterr().out.count("\n") == 4


LATE = "_kind,_vs,_ve,_new_ve,who\ncti,5,,,\ninsert,1,9,,ann\ninsert,6,8,,bob\nretract,6,8,7,zoe\ncti,30,,,\n"


def test_a_policy_for_this_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It overrides what the sources say, and tells by source and reason what came of it."""
    (folder / "s.csv").write_text(LATE)
    assert main(["run", "q.py:s", "-i", "s=s.csv"]) == 2
    assert "s.csv: row 2: breaks an earlier cti" in capsys.readouterr().err
    assert main(["run", "q.py:s", "-i", "s=s.csv", "--on-violation", "drop"]) == 0
    reasons = "1 × breaks an earlier cti, 1 × retracts an event that is not there"
    told = f"recension: s: dropped or moved: {reasons}\n"
    assert capsys.readouterr() == ("_vs,_ve,who\n6,8,bob\n", told)
    assert main(["run", "q.py:s", "-i", "s=s.csv", "--on-violation", "adjust"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "_vs,_ve,who\n5,9,ann\n6,8,bob\n"
    assert "s: dropped or moved: 1 × moved to the last cti" in shown.err


def test_a_policy_can_be_stricter_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.csv").write_text(LATE)
    lenient = QUERY.replace('{"who": "string"})', '{"who": "string"}, on_violation="drop")')
    (folder / "q.py").write_text(lenient)
    assert main(["run", "q.py", "-i", "s=s.csv"]) == 0
    assert main(["run", "q.py", "-i", "s=s.csv", "--on-violation", "raise"]) == 2
    assert "s.csv: row 2: breaks an earlier cti" in capsys.readouterr().err


def test_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "q.py:other"]) == 0
    shown = capsys.readouterr().out
    assert "chosen: eager" in shown
    assert "known: (vs, payload) is a key" in shown
    assert main(["explain", "q.py", "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "none.py", "-i", "s=s.csv"], "none.py: no such query file"),
        (["run", "q.py:nothing", "-i", "s=s.csv"], "q.py: nothing is not defined"),
        (["run", "q.py:wrong", "-i", "s=s.csv"], "q.py: wrong is a int, not a stream"),
        (["run", "q.py", "-i", "s"], "--input s: write NAME=PATH"),
        (["run", "q.py", "-i", "t=s.csv"], "no source 't'; the query reads s"),
        (["run", "q.py", "-i", "s=s.csv", "-i", "s=s.csv"], "s was given already"),
        (["run", "q.py", "-i", "s=gone.csv"], "gone.csv: no such file or directory"),
        (["run", "q.py", "-i", "s=s.csv", "--batch-size", "0"], "batch-size"),
        (["run", "q.py", "-i", "s=s.csv", "--engine", "warp"], "warp"),
        (["run", "broken.py", "-i", "s=s.csv"], "broken.py, line 3: where(whom == 'x'): there is no column"),
        (["run", "syntax.py", "-i", "s=s.csv"], "syntax.py, line 1: SyntaxError"),
        (["run", "q.py", "-i", "s=bad.csv"], "bad.csv: row 2: breaks an earlier cti"),
    ],
)
def test_mistakes_get_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    broken = [
        "import recension as rc",
        "s = rc.source('s', {'who': 'string'})",
        "s.where(rc.col('whom') == 'x')",
    ]
    (folder / "broken.py").write_text("\n".join(broken))
    (folder / "syntax.py").write_text("query = (\n")
    (folder / "bad.csv").write_text("_kind,_vs,_ve,who\ncti,5,,\ninsert,1,2,x\n")
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert reason in shown.err


KEYED = """
import recension as rc
jobs = {"job": "int64", "site": "string"}
query = rc.source("s", jobs, key="job", version="seq", on_violation="adjust")
"""
ROWS = """_kind,_vs,_ve,job,site,seq
insert,0,,7,CERN,1
cti,10,,,,
insert,0,12,7,CERN,2
insert,0,,7,FNAL,3
"""


def test_a_keyed_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that begin before a cti are judged by what they change; a cti stays where it is in the file."""
    (folder / "q.py").write_text(KEYED)
    (folder / "s.csv").write_text(ROWS)
    for size in ("1", "9"):
        assert main(["run", "q.py", "-i", "s=s.csv", "--close", "--batch-size", size]) == 0
        shown = capsys.readouterr()
        assert shown.out == "_vs,_ve,job,site\n0,10,7,CERN\n10,,7,FNAL\n"
        assert "1 × moved to the last cti" in shown.err
    assert main(["run", "q.py", "-i", "s=s.csv", "--close", "--on-violation", "raise"]) == 2
    assert "breaks an earlier cti: job 7, seq 3, from 0" in capsys.readouterr().err
    (folder / "s.csv").write_text("_kind,_vs,_ve,_new_ve,job,site,seq\nretract,0,9,5,7,CERN,1\n")
    assert main(["run", "q.py", "-i", "s=s.csv"]) == 2
    assert "a retraction, but the source is keyed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_recording_on_a_full_disk(folder: Path) -> None:
    """The answer is complete; what could not be recorded is one line, and the exit code says so."""
    Path("s.csv").write_text("_vs,who\n" + "".join(f"{i},somebody {i}\n" for i in range(5_000)))
    limited = (
        "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (20_000, 20_000)); from recension.cli import main"
    )
    command = [sys.executable, "-c", f"{limited}; import sys; sys.exit(main(sys.argv[1:]))"]
    options = ["run", "q.py", "-i", "s=s.csv", "--record", "r"]
    environment = os.environ | {"PYTHONPATH": str(Path(recension.__file__).parents[1])}
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, check=False)
    reason = "it could not be written: file too large"
    assert done.stderr == f"recension: --record r: {reason}; the answer itself is whole\n"
    assert done.returncode == 2
    assert done.stdout.count("\n") > 5_000


def test_what_a_killed_run_has_left_is_removed_by_the_next(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine = Path(f".out.{os.getpid()}.partial.parquet")
    left, of_others = Path(f".out.{gone.pid}.partial.parquet"), Path(f".out.{gone.pid}.partial.csv")
    for file in (mine, left, of_others):
        file.write_text("half")
    held = Path(f".out.{gone.pid + 1_000_000_000}.partial.parquet")  # of another machine, say
    with held.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(["run", "q.py", "-i", "s=s.csv", "-o", "out.parquet"]) == 0
        assert sorted(Path().glob(".out*")) == sorted([held, of_others])
    assert main(["run", "q.py", "-i", "s=s.csv", "-o", "out.parquet"]) == 0
    assert sorted(Path().glob(".out*")) == [of_others]
