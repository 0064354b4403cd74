"""``-o -``: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import recension
from recension.cli import main

QUERY = """
import recension as rc
print("loaded")
query = rc.source("s", {"who": "string"})
"""
STREAM = """_kind,_vs,_ve,who
insert,0,10,ann
cti,5,,
insert,3,20,bob
insert,5,,é
"""
JSON = """{"_kind":"insert","_vs":0,"_ve":10,"_new_ve":null,"_count":null,"who":"ann"}
{"_kind":"insert","_vs":5,"_ve":null,"_new_ve":null,"_count":null,"who":"é"}
{"_kind":"cti","_vs":5,"_ve":null,"_new_ve":null,"_count":null,"who":null}
"""
DROPPED = "recension: s: dropped or moved: 1 × breaks an earlier cti\n"
RUN = ["run", "q.py", "-i", "s=s.csv", "--on-violation", "drop"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "s.csv").write_text(STREAM, encoding="utf-8")
    return tmp_path


def test_a_stream_as_json_lines(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "-o", "-"]) == 0
    assert capfd.readouterr() == (JSON, f"loaded\n{DROPPED}")


def test_other_formats(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([*RUN, "-o", "-", "--format", "csv"]) == 0
    told = "_kind,_vs,_ve,_new_ve,_count,who\ninsert,0,10,,,ann\ninsert,5,,,,é\ncti,5,,,,\n"
    assert capfdbinary.readouterr().out == told.encode()
    assert main([*RUN, "--output", "-", "--format", "arrow"]) == 0
    table = pa.ipc.open_stream(io.BytesIO(capfdbinary.readouterr().out)).read_all()
    assert table["who"].to_pylist() == ["ann", "é", None]


def test_the_history_there_and_the_stream_in_a_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--history", "-", "-o", "out.jsonl"]) == 0
    assert capfd.readouterr().out == '{"_vs":0,"_ve":10,"who":"ann"}\n{"_vs":5,"_ve":null,"who":"é"}\n'
    assert Path("out.jsonl").read_text(encoding="utf-8") == JSON


def test_other_commands(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "s.csv", "--on-violation", "drop", "-o", "-", "--format", "csv"]) == 0
    assert capfd.readouterr().out == "_vs,_ve,who\n0,10,ann\n5,,é\n"
    assert main(["generate", "-o", "-", "--size", "20"]) == 0
    out, err = capfd.readouterr()
    assert out.count("\n") == 20
    assert err == ""


def started(*arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(recension.__file__).parents[1])}
    command = [sys.executable, "-m", "recension.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    """``recension run ... -o - | head -1``: quiet, whatever is left."""
    Path("s.csv").write_text("_vs,who\n" + "".join(f"{i},text to fill a pipe\n" for i in range(20_000)))
    with started("run", "q.py", "-i", "s=s.csv", "-o", "-", "--batch-size", "1000") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b'{"_kind":"insert"')
        running.stdout.close()
        assert running.stderr.read() == b"loaded\n"
    assert running.returncode == 141


def test_a_full_disk_behind_it_and_none_at_all(folder: Path) -> None:
    program = (
        "import os, sys; from recension.cli import main\n"
        "full, codes = os.open('/dev/full', os.O_WRONLY), []\n"
        "for more in (['-o', '-'], []):\n"
        "    os.dup2(full, 1)\n"
        "    codes.append(main([*sys.argv[1:], *more]))\n"
        "sys.__stdout__ = sys.stdout = None\n"
        "codes += [main([*sys.argv[1:], '-o', '-']), main(['check', 'q.py'])]\n"
        "sys.exit(0 if codes == [2, 2, 2, 2] else str(codes))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(recension.__file__).parents[1])}
    command = [sys.executable, "-c", program, *RUN]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    full = "recension: standard output: no space left on device"
    assert [line for line in done.stderr.splitlines() if line not in ("loaded", DROPPED.strip())] == [
        full,
        full,
        "recension: -: standard output is closed",
        "recension: q.py: unknown format '.py'; known are .parquet, .pq, .jsonl, .ndjson, .json, .csv, "
        ".arrow, .arrows, .ipc, .feather, .jsonl.gz, .ndjson.gz, .json.gz, .csv.gz",
    ]


def test_text_that_the_terminal_lacks(folder: Path) -> None:
    """Results are UTF-8 whatever the terminal has; words are escaped rather than a reason to fail."""
    Path("s.csv").write_text("_kind,_vs,who\ninsert,5,é\ncti,,\n", encoding="utf-8")
    environment = {"PYTHONPATH": str(Path(recension.__file__).parents[1]), "PYTHONIOENCODING": "ascii"}
    program = "from recension.cli import main; main(['history', 's.csv']); main(['check', 's.csv'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, check=False
    )
    assert done.stderr == b""
    assert done.stdout.startswith("_vs,_ve,who\n5,,é\n".encode())
    assert rb"ctis         1, the last at \u221e" in done.stdout


def test_ctrl_c_leaves_nothing_behind(folder: Path) -> None:
    """A real signal in the middle of a run: exit code 130, no word, no half of a file."""
    Path("q.py").write_text(
        "import sys, time, recension as rc\n"
        "def slow(row):\n    print('busy', file=sys.stderr, flush=True)\n    time.sleep(60)\n    return row\n"
        "query = rc.source('s', {'who': 'string'}).map(slow, {'who': 'string'}, per_row=True)\n"
    )
    Path("s.csv").write_text("_vs,who\n1,ann\n")
    with started("run", "q.py", "-i", "s=s.csv", "-o", "out.csv") as running:
        assert running.stderr is not None
        assert running.stderr.readline() == b"busy\n"
        running.send_signal(signal.SIGINT)
        assert running.stderr.read() == b""
    assert running.returncode == 130
    assert sorted(path.name for path in folder.iterdir()) == ["q.py", "s.csv"]
