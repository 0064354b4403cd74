"""`recension generate`: files in every format, replicas in a folder, arrival times beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.cli import main
from recension.core.classes import classify
from recension.core.difference import equivalent
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.gate.files import open_stream


class Terminal:
    """Runs the command in this process and looks at what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def ok(self, *arguments: object) -> str:
        code = main(["generate", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    def refused(self, *arguments: object) -> str:
        code = main(["generate", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def history(path: Path) -> History:
    stream = open_stream(path)
    return reconstitute(stream, stream.schema)


@pytest.mark.parametrize("extension", ["parquet", "jsonl", "csv", "arrow"])
def test_one_stream_in_any_format(terminal: Terminal, tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"stream.{extension}"
    assert "2,000 elements" in terminal.ok("--output", path, "--size", 2_000, "--seed", 5)
    stream = open_stream(path)
    report = classify(stream)
    assert (report.inserts + report.ctis, report.last_cti, report.classes[0]) == (2_000, FOREVER, "R3")
    assert stream.schema.names == ["value", "text"]


def test_formats_hold_the_same_stream(terminal: Terminal, tmp_path: Path) -> None:
    paths = [tmp_path / f"stream.{extension}" for extension in ("parquet", "jsonl", "csv", "arrow")]
    for path in paths:
        terminal.ok("--output", path, "--size", 500, "--revisions", 0.5)
    first, *others = map(history, paths)
    assert all(equivalent(first, other) for other in others)


@pytest.mark.parametrize("case", ["R0", "R1", "R2", "R3", "R4"])
def test_the_class_can_be_asked_for(terminal: Terminal, tmp_path: Path, case: str) -> None:
    path = tmp_path / "stream.parquet"
    terminal.ok("--output", path, "--size", 3_000, "--case", case)
    assert classify(open_stream(path)).classes[0] == case


def test_replicas_are_different_files_of_one_history(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal.ok("--output", tmp_path / "new" / "folder", "--replicas", 3, "--size", 1_000)
    paths = [tmp_path / "new" / "folder" / f"replica-{n}.parquet" for n in (1, 2, 3)]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == paths
    assert said.count("elements") == 3
    first, *others = map(history, paths)
    assert all(equivalent(first, other) for other in others)
    assert len({path.read_bytes() for path in paths}) == 3
    assert all(classify(open_stream(path)).retractions for path in paths), "replicas are revised by default"


def test_replicas_in_another_format_and_as_timestamps(terminal: Terminal, tmp_path: Path) -> None:
    terminal.ok("--output", tmp_path, "--replicas", 2, "--size", 50, "--format", "jsonl", "--timestamps")
    assert pa.types.is_timestamp(open_stream(tmp_path / "replica-2.jsonl").time_type)


def test_the_same_seed_writes_the_same_file(terminal: Terminal, tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    for path in (one, other):
        terminal.ok("--output", path, "--size", 1_000, "--seed", 9, "--revisions", 0.3)
    assert pq.read_table(one).equals(pq.read_table(other))


def test_knobs_reach_the_stream(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "stream.parquet"
    knobs = [
        "--max-gap",
        7,
        "--event-duration",
        "3ms",
        "--stable-freq",
        0.5,
        "--string-size",
        5,
        "--no-close",
    ]
    terminal.ok("--output", path, "--size", 1_000, "--disorder", 0, *knobs)
    table = pq.read_table(path)
    kinds = table["_kind"].to_pylist()
    assert 400 < kinds.count("cti") <= 500
    assert max(np.diff(table["_vs"].to_numpy())) == 7
    lifetimes = {
        ve - vs for vs, ve in zip(table["_vs"].to_pylist(), table["_ve"].to_pylist(), strict=True) if ve
    }
    assert lifetimes == {3_000}
    assert {len(text) for text in table["text"].to_pylist() if text is not None} == {5}


def test_arrival_times_go_to_files_of_their_own(terminal: Terminal, tmp_path: Path) -> None:
    folder, arrival = tmp_path / "streams", tmp_path / "arrival"
    lags = ["--lag", 0, "--lag", "2s"]
    terminal.ok(
        "--output", folder, "--replicas", 2, "--size", 1_000, "--arrival", arrival, "--rate", 1_000, *lags
    )
    for number, lag in ((1, 0), (2, 2_000_000)):
        times = pq.read_table(arrival / f"replica-{number}.parquet")
        assert times.schema == pa.schema([("arrival", pa.int64())])
        assert len(times) == pq.read_metadata(folder / f"replica-{number}.parquet").num_rows
        first, second = times["arrival"].to_pylist()[:2]
        assert (first, second) == (lag, lag + 1_000)
    assert equivalent(history(folder / "replica-1.parquet"), history(folder / "replica-2.parquet"))


def test_bursts_congestion_and_failures(terminal: Terminal, tmp_path: Path) -> None:
    path, arrival = tmp_path / "stream.parquet", tmp_path / "arrival"
    way = ["--burst", 0.01, "--congestion", "1s+1s", "--fail-after", 8_000, "--restart-after", "3s"]
    terminal.ok("--output", path, "--size", 20_000, "--arrival", arrival, *way, "--repeat", 100)
    times = pq.read_table(arrival / "stream.parquet")["arrival"].to_numpy()
    assert len(times) == 20_100
    assert times[8_000] - times[7_999] >= 3_000_000
    assert (np.diff(times) >= 0).all()


def test_one_replica_fails_and_the_others_do_not(terminal: Terminal, tmp_path: Path) -> None:
    failures = ["--fail-after", 0, "--fail-after", 300, "--fail-after", 0]
    terminal.ok("--output", tmp_path, "--replicas", 3, "--size", 1_000, *failures)
    assert len(pq.read_table(tmp_path / "replica-2.parquet")) == 300
    assert equivalent(history(tmp_path / "replica-1.parquet"), history(tmp_path / "replica-3.parquet"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--case", "R1", "--disorder", 0.5], "case R1 has no disorder"),
        (["--stable-freq", 2], "between 0 and 1"),
        (["--max-gap", "soon"], "is not a duration"),
        (["--lag", "1s"], "stream files have no arrival times"),
        (["--congestion", "5s", "--arrival", "folder"], "START+LENGTH"),
        (["--lag", "1s", "--lag", "2s", "--arrival", "folder"], "given 2 times for 1 streams"),
        (["--string-size", 1], "longer strings"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(
    terminal: Terminal, tmp_path: Path, arguments: list[object], reason: str
) -> None:
    path = tmp_path / "stream.parquet"
    assert reason in terminal.refused("--output", path, *arguments)
    assert not path.exists()


def test_a_folder_that_is_not_there_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    assert "no such directory" in terminal.refused("--output", tmp_path / "away" / "stream.csv", "--size", 10)


def test_arrival_times_do_not_overwrite_the_streams(terminal: Terminal, tmp_path: Path) -> None:
    assert "another folder" in terminal.refused("--output", tmp_path, "--replicas", 2, "--arrival", tmp_path)
    assert "another folder" in terminal.refused("--output", tmp_path / "x.parquet", "--arrival", tmp_path)


def test_an_output_is_needed(terminal: Terminal) -> None:
    assert "--output" in terminal.refused()


def test_an_unknown_format_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    assert "stream.xlsx" in terminal.refused("--output", tmp_path / "stream.xlsx", "--size", 10)
