"""``recension run`` over files whose rows are of partitions, or were sent again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.cli import main
from recension.gate.files import open_stream

QUERY = """
import recension as rc
feed = rc.source("feed", {"v": "int64"}, partition="p", order="o")
query = feed
paced = feed.advance_time(2)
alone = rc.source("feed", {"v": "int64"})
"""
ROWS = """_kind,_vs,_ve,v,p,o
insert,12,15,1,a,1
cti,10,,,a,2
insert,3,4,2,b,8
cti,5,,,b,9
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "feed.csv").write_text(ROWS)
    return tmp_path


def output(path: Path) -> list[str]:
    return [str(element) for batch in open_stream(path) for element in batch.to_elements()]


def test_a_partitioned_input_is_read_whole(folder: Path) -> None:
    assert main(["run", "q.py", "-i", "feed=feed.csv", "-o", "out.jsonl", "--batch-size", "1"]) == 0
    assert output(folder / "out.jsonl") == [
        "insert [12, 15) {'v': 1}",
        "insert [3, 4) {'v': 2}",
        "cti 5",
    ]
    assert main(["run", "q.py:paced", "-i", "feed=feed.csv", "-o", "paced.jsonl", "--close"]) == 0
    assert output(folder / "paced.jsonl")[-1] == "cti ∞"


def test_rows_of_several_files_stand_by_their_order(folder: Path) -> None:
    (folder / "files").mkdir()
    header, *rows = ROWS.splitlines()
    for number, row in enumerate(reversed(rows)):
        (folder / "files" / f"{number}.csv").write_text(f"{header}\n{row}\n")
    assert main(["run", "q.py", "-i", "feed=files", "-o", "out.jsonl"]) == 0
    assert output(folder / "out.jsonl")[-1] == "cti 5"


@pytest.mark.parametrize("names", [("a", "b"), ("p=a", "p=b")])
def test_folders_are_partitions(folder: Path, names: tuple[str, str]) -> None:
    table = pa.table(
        {"_kind": ["insert", "cti"], "_vs": [3, 5], "_ve": [4, None], "v": [1, None], "o": [1, 2]}
    )
    for name in names:
        (folder / "parts" / name).mkdir(parents=True)
        pq.write_table(table, folder / "parts" / name / "0.parquet")
    assert main(["run", "q.py", "-i", "feed=parts", "-o", "out.jsonl"]) == 0
    assert output(folder / "out.jsonl") == ["insert [3, 4) {'v': 1}"] * 2 + ["cti 5"]


def test_errors_name_file_row_and_partition(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "feed.csv").write_text(ROWS + "insert,4,9,1,b,10\n")
    assert main(["run", "q.py", "-i", "feed=feed.csv"]) == 2
    assert capsys.readouterr().err == (
        "recension: feed.csv: row 5: partition b: breaks an earlier cti: insert [4, 9) {'v': 1}\n"
    )
    assert main(["run", "q.py", "-i", "feed=feed.csv", "--on-violation", "drop"]) == 0
    assert "1 × breaks an earlier cti" in capsys.readouterr().err
    (folder / "feed.csv").write_text(ROWS.replace("p,o", "q,o"))
    assert main(["run", "q.py", "-i", "feed=feed.csv"]) == 2
    assert "no column p, which the source names as its partition" in capsys.readouterr().err


def test_what_a_run_sent_again_is_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        "_kind,_vs,_ve,v,_run,_batch,_seq",
        "insert,1,3,1,a,0,0",
        "insert,1,3,1,a,0,0",
        "insert,5,6,1,b,0,0",
    ]
    (folder / "feed.csv").write_text("\n".join(rows) + "\n")
    assert main(["run", "q.py:alone", "-i", "feed=feed.csv"]) == 0
    out, err = capsys.readouterr()
    assert out == "_vs,_ve,v\n1,3,1\n5,6,1\n"
    assert "1 × a repeat of an element that came before" in err
    assert main(["history", "feed.csv"]) == 0
    assert capsys.readouterr().out == out
