"""``recension history``: what a stream means, on the screen or in a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from recension.cli import main
from recension.core.batch import from_elements
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.formats import write_stream
from recension.core.ticks import FOREVER
from recension.gate.files import read_history

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
# LMerge, Table I, stream 2.
PHY2: list[Element] = [
    Insert({"p": "A", "n": 1}, 6, 7),
    Insert({"p": "B", "n": 2}, 8, 15),
    Retract({"p": "A", "n": 1}, 6, 7, 12),
    Retract({"p": "B", "n": 2}, 8, 15, 10),
    Insert({"p": None, "n": None}, 3),
    Cti(FOREVER),
]


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    write_stream(tmp_path / "s.parquet", [from_elements(PHY2, SCHEMA)], SCHEMA)
    return tmp_path / "s.parquet"


def test_printed_as_csv_when_not_on_a_terminal(stream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(stream)]) == 0
    assert capsys.readouterr() == ("_vs,_ve,p,n\n3,,,\n6,12,A,1\n8,10,B,2\n", "")


def test_timestamps_stay_timestamps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("from,to,k\n2024-01-01T00:00:00Z,2024-01-02T00:00:00Z,a\n")
    assert main(["history", str(path), "--start", "from", "--end", "to"]) == 0
    expected = "_vs,_ve,k\n2024-01-01T00:00:00.000000Z,2024-01-02T00:00:00.000000Z,a\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv", "arrow"])
def test_written_to_a_file(stream: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = stream.with_name(f"h.{suffix}")
    assert main(["history", str(stream), "--output", str(output)]) == 0
    assert capsys.readouterr() == ("", "")
    assert read_history(output, schema=SCHEMA).to_events() == [
        Event({"p": None, "n": None}, 3),
        Event({"p": "A", "n": 1}, 6, 12),
        Event({"p": "B", "n": 2}, 8, 10),
    ]


def test_the_history_of_a_history_is_itself(stream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = stream.with_name("h.jsonl")
    assert main(["history", str(stream), "-o", str(output)]) == 0
    assert main(["history", str(stream)]) == 0
    printed = capsys.readouterr().out
    assert main(["history", str(output)]) == 0
    assert capsys.readouterr().out == printed


def test_a_table_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("n", pa.int64())])
    events = from_elements([Insert({"n": i}, i) for i in range(100)], schema)
    write_stream(tmp_path / "s.parquet", [events], schema)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["history", str(tmp_path / "s.parquet")]) == 0
    out = capsys.readouterr().out
    assert "│ 39  │ ∞   │ 39 │" in out
    assert "… and 60 more events; --output writes them all" in out


def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.csv"
    path.write_text("_kind,_vs,_ve,k\ncti,5,,\ninsert,3,9,a\ninsert,6,9,b\n")
    assert main(["history", str(path), "--on-violation", "drop"]) == 0
    out, err = capsys.readouterr()
    assert out == "_vs,_ve,k\n6,9,b\n"
    assert err == "recension: dropped or moved: 1 × breaks an earlier cti\n"
    assert main(["history", str(path), "--on-violation", "adjust"]) == 0
    out, err = capsys.readouterr()
    assert out == "_vs,_ve,k\n5,9,a\n6,9,b\n"
    assert err == "recension: dropped or moved: 1 × moved to the last cti\n"


def test_values_that_csv_has_no_form_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"_vs":1,"v":[1,2],"s":{"a":null}}\n')
    assert main(["history", str(path)]) == 0
    assert capsys.readouterr().out == '_vs,_ve,v,s\n1,,"[1, 2]","{""a"": null}"\n'


@pytest.mark.parametrize(
    "arguments", [["--help"], [], ["history", "--help"], ["check", "--help"], ["diff", "--help"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Usage: recension" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip()


def test_null_and_the_empty_text_are_two_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"_vs":1,"v":null,"b":true}\n{"_vs":2,"v":"","b":null}\n')
    assert main(["history", str(path)]) == 0
    assert capsys.readouterr().out == '_vs,_ve,v,b\n1,,,true\n2,,"",\n'
