"""Bad input, one kind at a time: exit code 2, one line with file, row and reason, no traceback.

``check`` makes a difference: a file that can be read, but whose elements break the rules of a stream,
fails the check with exit code 1.
"""

from __future__ import annotations

import array
import fcntl
import gzip
import json
import os
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension
from recension.cli import main

Make = Callable[[Path], Path]
INSERT = {"_kind": "insert", "_vs": 1, "_ve": 9, "k": "a"}
CTI = {"_kind": "cti", "_vs": 5}


def jsonl(*rows: Any) -> Make:
    def make(folder: Path) -> Path:
        path = folder / "s.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return make


def csv(*rows: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / "s.csv").write_text("\n".join(rows) + "\n")
        return folder / "s.csv"

    return make


def parquet(**columns: Any) -> Make:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "s.parquet")
        return folder / "s.parquet"

    return make


def raw(name: str, content: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def truncated(suffix: str, keep: float) -> Make:
    def make(folder: Path) -> Path:
        table, path = pa.table({"_vs": list(range(1000))}), folder / f"s.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
        return path

    return make


def damaged(folder: Path) -> Path:
    """A Parquet file whose footer is whole and whose pages are not."""
    path = parquet(_vs=list(range(5000)), k=[str(i) for i in range(5000)])(folder)
    content = bytearray(path.read_bytes())
    content[100:2000] = b"\xff" * 1900
    path.write_bytes(bytes(content))
    return path


def swapped_offsets(folder: Path) -> Path:
    """An Arrow file in which the second text begins after its end."""
    table = pa.table({"_vs": [1, 2], "k": ["alpha", "beta"]})
    with pa.ipc.new_file(str(folder / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    content = (folder / "s.arrow").read_bytes()
    content = content.replace(struct.pack("<3i", 0, 5, 9), struct.pack("<3i", 0, 9, 5))
    return raw("s.arrow", content)(folder)


def arrow(column: pa.Array, sound: bytes = b"", damaged: bytes = b"") -> Make:
    """An Arrow file, in which sound bytes are replaced by others."""

    def make(folder: Path) -> Path:
        table = pa.table({"_vs": range(len(column)), "k": column})
        with pa.ipc.new_file(str(folder / "s.arrow"), table.schema) as writer:
            writer.write_table(table)
        content = (folder / "s.arrow").read_bytes()
        return raw("s.arrow", content.replace(sound, damaged) if sound else content)(folder)

    return make


def table_that_names(file: str) -> Make:
    """A history table whose manifest names a file; another one lies beside the table."""

    def make(folder: Path) -> Path:
        path = folder / "table"
        (path / "_history").mkdir(parents=True)
        events = pa.table({"_vs": [1], "_ve": [5], "k": ["secret"]})
        for place in (folder / "outside.parquet", path / "_history" / "schema.parquet"):
            pq.write_table(events if place.parent == folder else events.slice(0, 0), place)
        stored = {
            "format": "recension history 1",
            "previous": None,
            "number": 0,
            "query": "q",
            "batch": 0,
            "cti": 0,
            "schema": "schema.parquet",
            "deletions": [],
            "dropped": [],
            "files": [{"name": file, "rows": 1, "half_end": 5, "last_end": 5, "deleted": 0}],
        }
        (path / "_history" / "000000000000.json").write_text(json.dumps(stored))
        return path

    return make


def twins(folder: Path) -> Path:
    table = pa.table([[1], [2], [3]], names=["_vs", "k", "k"])
    pq.write_table(table, folder / "s.parquet")
    return folder / "s.parquet"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "s.csv")
    return folder / "s.csv"


def directory(*makes: Make) -> Make:
    def make(folder: Path) -> Path:
        for number, part in enumerate(makes):
            path = part(folder)
            path.rename(folder / f"{number}{path.suffix}")
        return folder

    return make


# What is wrong, how to make it, the row it is in, words of the reason.
UNREADABLE: list[tuple[str, Make, int | None, str]] = [
    ("missing", lambda folder: folder / "none.parquet", None, "no such file or directory"),
    ("below a file", lambda folder: csv("_vs")(folder) / "s.csv", None, "not a directory"),
    ("a pipe", pipe, None, "not a regular file"),
    ("unknown extension", raw("s.xlsx", b"PK"), None, "unknown format '.xlsx'"),
    ("no extension", raw("data", b"PK"), None, "unknown format 'data'"),
    ("empty directory", lambda folder: folder, None, "a directory without data files"),
    ("only hidden files", lambda folder: raw("_SUCCESS", b"")(folder).parent, None, "without data files"),
    ("unknown file in a directory", lambda folder: raw("a.txt", b"x")(folder).parent, None, "unknown format"),
    ("empty jsonl", raw("s.jsonl", b""), None, "the file is empty"),
    ("empty csv", raw("s.csv", b""), None, "the file is empty"),
    ("empty parquet", raw("s.parquet", b""), None, "the file is empty"),
    ("empty arrow", raw("s.arrow", b""), None, "the file is empty"),
    ("truncated parquet", truncated("parquet", 0.7), None, "magic bytes not found"),
    ("short parquet", truncated("parquet", 0.001), None, "Parquet file size"),
    ("truncated arrow", truncated("arrow", 0.7), None, "cut off: the file has no footer"),
    ("damaged parquet", damaged, None, ""),
    ("text for parquet", raw("s.parquet", b"hello, world, this is text"), None, "magic bytes not found"),
    ("text for arrow", raw("s.arrow", b"hello, world, this is text"), None, ""),
    ("garbage json", jsonl(INSERT, "garbage"), 2, "not JSON"),
    ("half an object", jsonl(INSERT, '{"_kind":"ins'), 2, "not JSON"),
    ("an array", jsonl("[1, 2]"), 1, "not a JSON object"),
    ("two objects on a line", jsonl(INSERT, json.dumps(INSERT) * 2), 2, "not JSON: Extra data"),
    ("the same name twice", jsonl('{"_vs":1,"_vs":2}'), 1, "the name '_vs' is there twice"),
    ("not utf-8 in json", raw("s.jsonl", b'{"_vs":1,"k":"\xff"}\n'), 1, "not JSON: not UTF-8"),
    (
        "10,000 levels of json",
        jsonl(INSERT, '{"a":' + "[" * 10_000 + "]" * 10_000 + "}"),
        2,
        "nested more than",
    ),
    ("offsets that go backwards", swapped_offsets, None, "column k: "),
    ("5,000 levels of json", jsonl('{"a":' + "[" * 5_000 + "]" * 5_000 + "}"), 1, "nested more than"),
    ("a name that is not utf-8", raw("s.jsonl", b'{"_vs":1,"\xff":1}\n'), 1, "not JSON: not UTF-8"),
    ("half of a surrogate in a name", jsonl('{"_vs":1,"\\ud800":1}'), None, "half of a surrogate pair"),
    ("not utf-8 in arrow", arrow(pa.array(["naïve"]), "ï".encode(), b"\xff\xff"), None, "column k: .*UTF8"),
    ("ragged and not utf-8", raw("s.csv", b"_vs,k\n1,2\n1,\xff,3\n"), 2, "3 columns where the header has 2"),
    ("intervals", arrow(pa.array([(1, 2, 3)], pa.month_day_nano_interval())), None, "is not supported"),
    (
        "an index outside of its dictionary",
        arrow(
            pa.DictionaryArray.from_arrays(pa.array([77], pa.int16()), pa.array([str(i) for i in range(99)])),
            struct.pack("<h", 77) + bytes(6),
            struct.pack("<h", 777) + bytes(6),
        ),
        None,
        "column k: .*777",
    ),
    (
        "a table that names a file elsewhere",
        table_that_names("../../outside.parquet"),
        None,
        "'../../outside.parquet' is not the name of a file in its folder",
    ),
    ("half of a packed file", raw("s.csv.gz", gzip.compress(b"_vs,k\n1,a\n")[:-9]), None, ""),
    ("a packed file that is none", raw("s.jsonl.gz", b'{"_vs": 1}\n'), None, ""),
    ("a lone surrogate", jsonl('{"_vs":1,"k":"\\ud800"}'), 1, "column k"),
    ("mixed types", jsonl({"_vs": 1, "k": 1}, {"_vs": 1, "k": "a"}), 2, 'column k: "a" does not fit'),
    ("an object without names", jsonl({}), 1, "names nothing"),
    (
        "a column of its own in each row",
        jsonl(*({"_vs": 1, f"c{i}": 1} for i in range(9_500))),
        None,
        "different column names in the first",
    ),
    ("too many columns", csv("_vs,k", "1,a", "1,a,b"), 2, "3 columns where the header has 2"),
    ("too few columns", csv("_vs,k", "1,a", "2,b", "3"), 3, "1 columns where the header has 2"),
    ("not utf-8 in csv", raw("s.csv", b"_vs,k\n1,a\n2,\xff\n"), 2, "invalid UTF8"),
    ("not utf-8 in a header", raw("s.csv", b"_vs,\xff\n1,a\n"), None, "the header is not UTF-8"),
    ("no times", csv("a,b", "1,2"), None, "neither a _kind nor a _vs column"),
    ("an unknown kind", jsonl(INSERT, {**INSERT, "_kind": "upsert"}), 2, "unknown kind 'upsert'"),
    ("no kind", jsonl(INSERT, {**INSERT, "_kind": None}), 2, "_kind is null"),
    ("a kind that is no text", jsonl(INSERT, {**INSERT, "_kind": 7}), 2, "column _kind: 7 is not string"),
    (
        "a kind of another type",
        parquet(_kind=[1], _vs=[1]),
        None,
        "column _kind is int64; it must be a string",
    ),
    ("an insert without start", jsonl(INSERT, {**INSERT, "_vs": None}), 2, "_vs is null"),
    ("no start in csv", csv("_kind,_vs,_ve", "insert,1,2", "insert,,2"), 2, "_vs is null"),
    (
        "no start in parquet",
        parquet(_kind=["insert", "cti", "insert"], _vs=[1, None, None]),
        3,
        "_vs is null",
    ),
    ("a retraction without start", jsonl({"_kind": "retract", "_ve": 1, "_new_ve": 2}), 1, "_vs is null"),
    ("an open row with an end", jsonl({**INSERT, "_kind": "open"}), 1, "an open row with an end"),
    ("no count", jsonl({"_kind": "external_cti", "_vs": 1, "_ve": 2}), 1, "external_cti without a count"),
    ("a start that is a float", parquet(_kind=["insert"], _vs=[1.5]), None, "column _vs is double"),
    ("a fraction for a time", jsonl(INSERT, {**INSERT, "_vs": 1.5}), 2, "1.5 is neither an integer nor"),
    ("a truth for a time", jsonl({**INSERT, "_vs": True}), 1, "true is neither an integer nor"),
    ("a word for a time", jsonl(INSERT, {**INSERT, "_ve": "soon"}), 2, "column _ve: .*'soon'"),
    ("a word for a time in csv", csv("_vs,_ve", "1,2", "1,soon"), 2, "column _ve: .*'soon'"),
    ("a time beyond int64", csv("_vs,_ve", "1,9223372036854775808"), 1, "column _ve: .*9223372036854775808"),
    (
        "numbers and timestamps",
        parquet(_vs=[1], _ve=pa.array([5], pa.timestamp("us"))),
        None,
        "all timestamps",
    ),
    (
        "a fraction of a microsecond",
        parquet(_vs=pa.array([1000, 1001], pa.timestamp("ns"))),
        2,
        "column _vs: .*lose data",
    ),
    (
        "a count that is a text",
        parquet(_kind=["cti"], _vs=[1], _count=["x"]),
        None,
        "column _count is string",
    ),
    ("a reserved name", csv("_vs,_mine", "1,2"), None, "column _mine: names that start with _ are reserved"),
    ("a reserved name in parquet", parquet(_vs=[1], _id=[1]), None, "column _id: names that start with _"),
    ("_new_ve without _kind", csv("_vs,_new_ve", "1,2"), None, "column _new_ve without a column _kind"),
    ("_batch without _seq", parquet(_vs=[1], _batch=[1]), None, "_batch and _seq only make sense together"),
    ("_batch as payload", parquet(_vs=[1], _batch=["x"], _seq=[1]), None, "column _batch is string"),
    ("_seq null", parquet(_vs=[1, 1], _batch=[1, 1], _seq=[1, None]), 2, "_seq is null"),
    ("two columns of a name", twins, None, "column k is there twice"),
    ("two columns of a name in csv", csv("_vs,k,k", "1,2,3"), None, "column k is there twice"),
    (
        "files of different types",
        directory(parquet(_vs=[1], k=[1]), parquet(_vs=[1], k=["a"])),
        None,
        "column k is string here and int64 in",
    ),
    (
        "files of different columns",
        directory(parquet(_vs=[1], k=[1]), parquet(_vs=[1], j=[1])),
        None,
        "no column j",
    ),
]

INVALID: list[tuple[str, Make, int, str]] = [
    ("an empty lifetime", jsonl(INSERT, {**INSERT, "_ve": 1}), 2, "ends before it has begun"),
    ("a negative lifetime", jsonl({**INSERT, "_ve": 0}), 1, "ends before it has begun"),
    ("in a plain table", csv("_vs,_ve", "1,2", "5,4"), 2, "ends before it has begun"),
    ("a late insert", jsonl(CTI, INSERT), 2, "breaks an earlier cti"),
    (
        "a late retraction",
        jsonl(INSERT, CTI, {**INSERT, "_kind": "retract", "_new_ve": 4}),
        3,
        "breaks an earlier cti",
    ),
    (
        "a retraction of nothing",
        jsonl(INSERT, {**INSERT, "_kind": "retract", "_ve": 8, "_new_ve": 4}),
        2,
        "retracts an event that is not there",
    ),
    (
        "the same event taken away twice",
        jsonl(INSERT, *[{**INSERT, "_kind": "retract", "_new_ve": 1}] * 2),
        3,
        "retracts an event that is not there",
    ),
    (
        "a retraction that changes nothing",
        jsonl(INSERT, {**INSERT, "_kind": "retract", "_new_ve": 9}),
        2,
        "changes nothing",
    ),
    (
        "a retraction to before the start",
        jsonl(INSERT, {**INSERT, "_kind": "retract", "_new_ve": 0}),
        2,
        "an end before the start",
    ),
    (
        "a close of nothing",
        jsonl({"_kind": "close", "_ve": 3, "k": "a"}),
        1,
        "closes an event that is not open",
    ),
    (
        "a close before the start",
        jsonl({"_kind": "open", "_vs": 5, "k": "a"}, {"_kind": "close", "_ve": 3, "k": "a"}),
        2,
        "closes an event before its start",
    ),
    (
        "in the second file",
        directory(jsonl(CTI), jsonl({**INSERT, "_vs": 7}, INSERT)),
        2,
        r"breaks an earlier cti",
    ),
]


def assert_one_line(capfd: pytest.CaptureFixture[str], path: Path, row: int | None, reason: str) -> None:
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert str(path) in err
    assert "Traceback" not in err
    if row is not None:
        assert f": row {row}: " in err, err
    assert re.search(reason, err), err


@pytest.mark.parametrize(
    ("make", "row", "reason"), [u[1:] for u in UNREADABLE], ids=[u[0] for u in UNREADABLE]
)
@pytest.mark.parametrize("command", ["history", "check", "diff"])
def test_unreadable(
    command: str, make: Make, row: int | None, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    assert main([command, str(path), *([str(path)] if command == "diff" else [])]) == 2
    assert_one_line(capfd, path, row, reason)


def test_tensors_are_compared_by_what_they_hold(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pairs = pa.array([[1, 2], [1, 2]], pa.list_(pa.int32(), 2))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), pairs)
    kinds = {"_kind": ["insert", "retract"], "_vs": [1, 1], "_ve": [9, 9], "_new_ve": [None, 5]}
    table, path = pa.table({**kinds, "k": tensors}), str(tmp_path / "s.arrow")
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    for arguments in (["check", path], ["diff", path, path], ["history", path]):
        assert main(arguments) == 0
    assert capfd.readouterr().out.endswith('1,5,"[1, 2]"\n')


@pytest.mark.parametrize(("make", "row", "reason"), [i[1:] for i in INVALID], ids=[i[0] for i in INVALID])
@pytest.mark.parametrize("command", ["history", "check", "diff"])
def test_invalid(
    command: str, make: Make, row: int, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    arguments = [command, str(path), *([str(path)] if command == "diff" else [])]
    assert main(arguments) == (1 if command == "check" else 2)
    assert_one_line(capfd, path, row, reason)


@pytest.mark.parametrize(("make", "row", "reason"), [i[1:] for i in INVALID], ids=[i[0] for i in INVALID])
def test_invalid_elements_can_be_left_out(make: Make, row: int, reason: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    for policy in ("drop", "adjust"):
        assert main(["history", str(path), "--on-violation", policy]) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["histroy"], "No such command 'histroy'"),
        (["history"], "Missing argument"),
        (["history", "--no-such-option", "x"], "No such option"),
        (["history", "x", "--on-violation", "ignore"], "'ignore' is not one of"),
        (["diff", "a"], "Missing argument"),
        (["history", "x", "y"], "unexpected extra argument"),
    ],
)
def test_usage(arguments: list[str], reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert reason in err


def test_an_output_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = jsonl({"_vs": 1, "v": [1, 2]})(tmp_path)
    for output, reason in (
        (tmp_path / "none" / "h.jsonl", "no such directory"),
        (tmp_path / "h.csv", r"column v: .* cannot be written as CSV"),
        (tmp_path / "h.doc", "unknown format '.doc'"),
        (tmp_path, "is a directory; name a file"),
    ):
        assert main(["history", str(source), "--output", str(output)]) == 2
        assert_one_line(capfd, output, None, reason)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = jsonl(INSERT, "garbage")(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(recension.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "recension.cli", "history", str(path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"recension: {path}: row 2: not JSON: Expecting value at character 1\n"


def wait_until_full(pipe: int) -> None:
    """Wait until a pipe holds all that it can: who writes to it is then in the middle of a write."""
    there = array.array("i", [0])
    while there[0] < fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - 4096:
        time.sleep(0.01)
        fcntl.ioctl(pipe, termios.FIONREAD, there)


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away(tmp_path: Path, unbuffered: str) -> None:
    path = tmp_path / "long.csv"
    path.write_text("_vs,k\n" + "".join(f"{i},some text to fill a pipe\n" for i in range(20_000)))
    environment = os.environ | {
        "PYTHONPATH": str(Path(recension.__file__).parents[1]),
        "PYTHONUNBUFFERED": unbuffered,
    }
    command = [sys.executable, "-m", "recension.cli", "history", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"_vs,_ve,k\n"
        wait_until_full(running.stdout.fileno())
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_an_interruption(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recension.core.formats.decode.Decoder.judge", interrupted)
    assert main(["history", str(jsonl(INSERT)(tmp_path))]) == 130
    assert capfd.readouterr() == ("", "")
