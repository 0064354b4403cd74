"""What a newcomer does wrong, and what goes wrong around them: exit code 2 and one line, no traceback."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recension.cli import main
from recension.gate.files import read_history

GOOD = 'import recension as rc\nquery = rc.source("s", {"value": "int64", "text": "string"})\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(GOOD)
    (tmp_path / "s.csv").write_text("_vs,value,text\n1,1,a\n")
    return tmp_path


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("recension: ")
    return err.strip()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(range(256)) * 4, "bad.py: SyntaxError: source code string cannot contain null bytes"),
        (b"\xff\xfe", "bad.py, line 1: SyntaxError: (unicode error) 'utf-8' codec"),
        (b"x = (\n", "bad.py, line 1: SyntaxError"),
        (b"\n1 / 0\n", "bad.py, line 2: ZeroDivisionError"),
        (b"def f():\n    f()\nf()\n", "bad.py, line 2: RecursionError"),
        (b"import sys\nsys.exit(3)\n", "bad.py, line 2: the query file ended the program (exit 3)"),
        (b"raise BaseException('no\\nmore')\n", "bad.py, line 1: BaseException: no more"),
        (b"import gone\n", "bad.py, line 1: ModuleNotFoundError: No module named 'gone'"),
        (b"", "bad.py: query is not defined; a query file defines one"),
        (b"query = None\n", "bad.py: query is None, not a stream"),
        (GOOD.replace("query", "answer").encode(), "the streams in it are answer: name one as bad.py:answer"),
    ],
)
@pytest.mark.parametrize("command", ["run", "explain"])
def test_query_files(
    folder: Path, capfd: pytest.CaptureFixture[str], command: str, content: bytes, reason: str
) -> None:
    (folder / "bad.py").write_bytes(content)
    assert reason in refused(capfd, command, "bad.py", *(["-i", "s=s.csv"] if command == "run" else []))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("gone.py", "gone.py: no such query file"),
        (".", ".: is a directory"),
        ("", "argument 2 is empty"),
        ("q.py:", "q.py:: '' is not the name of a stream; write q.py:query"),
        ("q.py:a-b", "q.py:a-b: 'a-b' is not the name of a stream"),
        ("q.py:Query", "q.py: Query is not defined (did you mean 'query'?)"),
    ],
)
def test_names_of_queries(folder: Path, capfd: pytest.CaptureFixture[str], query: str, reason: str) -> None:
    assert refused(capfd, "explain", query).startswith(f"recension: {reason}")


def test_a_file_that_may_not_be_read(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "s.csv")

    monkeypatch.setattr(Path, "stat", denied)
    assert refused(capfd, "check", "s.csv") == "recension: s.csv: permission denied"


def test_no_benchmarks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", "gone.json", "s.csv"]) == 2
    assert capsys.readouterr() == ("", "recension: gone.json: no such file or directory\n")


def test_a_path_that_is_not_utf8(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "s\udcff.csv"
    (folder / name).write_text("_vs,value,text\n1,1,a\n")
    assert "surrogates not allowed" in refused(capfd, "check", name)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write more into a file, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_a_full_disk(folder: Path, capfd: pytest.CaptureFixture[str], suffix: str) -> None:
    """What was there before stays, and nothing else is left."""
    output = Path(f"out.{suffix}")
    output.write_text("from before")
    assert main(["generate", "-o", "big.arrow", "--size", "20000"]) == 0
    capfd.readouterr()
    there = sorted(folder.iterdir())
    for command in (["run", "q.py", "-i", "s=big.arrow"], ["history", "big.arrow"]):
        with files_of_at_most(50_000):
            told = refused(capfd, *command, "-o", str(output))
        assert told == f"recension: {output}: file too large"
    with files_of_at_most(50_000):
        told = refused(capfd, "generate", "--size", "20000", "-o", str(output), "--arrival", "arrival")
    assert "file too large" in told
    assert output.read_text() == "from before"
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == there


def test_a_link_is_followed_and_a_long_name_is_fine(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "link.csv").symlink_to("data/answer")
    for name in ("link.csv", "n" * 250 + ".csv"):
        assert main(["history", "s.csv", "-o", name]) == 0
        assert len(read_history(name)) == 1
    assert (folder / "link.csv").is_symlink()
    assert [path.name for path in (folder / "data").iterdir()] == ["answer"]


def test_a_bad_row_in_the_middle_leaves_no_output(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "s.csv").write_text("_vs,value,text\n1,1,a\n2,2,b\n3,x,c\n")
    told = refused(capfd, "run", "q.py", "-i", "s=s.csv", "-o", "o.csv", "--batch-size", "1")
    assert "s.csv: row 3: column value" in told
    assert sorted(path.name for path in folder.iterdir()) == ["q.py", "s.csv"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["history", ""], "argument 2"),
        (["check", "x.csv", "--output="], "--output="),
        ([""], "the command"),
        (["diff", "a.csv", ""], "argument 3"),
    ],
)
def test_an_empty_argument_is_not_the_current_folder(
    arguments: list[str], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capfd.readouterr().err == f"recension: {name} is empty: give a value\n"
