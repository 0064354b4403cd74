"""Directories: which files, in which order, and what they must agree on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.core.batch import concat
from recension.core.errors import FormatError, StreamError
from recension.gate.files import open_stream


def part(path: Path, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


def starts(path: Path, size: int = 100) -> list[int]:
    return [vs for batch in open_stream(path, batch_size=size) for vs in batch.vs.tolist()]


def log(path: Path, *entries: Mapping[str, str], version: str = "v1") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([version, *map(json.dumps, entries)]))


def added(name: str, action: str = "add") -> dict[str, str]:
    return {"path": f"file:///elsewhere/a%20b/{name}", "action": action}


def test_files_in_name_order(tmp_path: Path) -> None:
    part(tmp_path / "b.parquet", _vs=[3])
    part(tmp_path / "a.parquet", _vs=[7, 5])
    part(tmp_path / "c.jsonl", _vs=[1])
    for name in ("_SUCCESS", ".a.parquet.crc", ".hidden.parquet", "_x.csv"):
        (tmp_path / name).write_text("not data")
    assert starts(tmp_path) == [7, 5, 3, 1]


def test_parts_without_bytes_are_parts_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    part(tmp_path / "b.json", _vs=[3])
    assert starts(tmp_path) == [3]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_parts_without_bytes_alone_are_a_stream_without_elements(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    reader = open_stream(tmp_path, schema=pa.schema([("k", pa.int64())]))
    assert list(reader) == []
    assert reader.schema.names == ["k"]
    assert not reader.is_table


class TestSparkLog:
    def test_only_committed_files_in_order_of_commit(self, tmp_path: Path) -> None:
        for i, name in enumerate(["z", "a", "m", "failed", "gone"]):
            part(tmp_path / f"{name}.parquet", _vs=[i])
        log(tmp_path / "_spark_metadata" / "0", added("z.parquet"), added("gone.parquet"))
        log(tmp_path / "_spark_metadata" / "1", added("m.parquet"), added("gone.parquet", "delete"))
        log(tmp_path / "_spark_metadata" / "2", added("a.parquet"))
        (tmp_path / "_spark_metadata" / ".2.crc").write_bytes(b"crc")
        assert starts(tmp_path) == [0, 2, 1]

    def test_a_compacted_log_stands_for_those_before_it(self, tmp_path: Path) -> None:
        for i, name in enumerate(["a", "b", "c"]):
            part(tmp_path / f"{name}.parquet", _vs=[i])
        log(tmp_path / "_spark_metadata" / "8", added("never.parquet"))
        log(tmp_path / "_spark_metadata" / "9.compact", added("c.parquet"), added("a.parquet"))
        log(tmp_path / "_spark_metadata" / "10", added("b.parquet"))
        assert starts(tmp_path) == [2, 0, 1]

    def test_a_listed_file_that_is_gone(self, tmp_path: Path) -> None:
        log(tmp_path / "_spark_metadata" / "0", added("a.parquet"))
        with pytest.raises(FormatError, match="no such file"):
            open_stream(tmp_path)

    def test_a_log_of_another_version(self, tmp_path: Path) -> None:
        log(tmp_path / "_spark_metadata" / "0", added("a.parquet"), version="v7")
        with pytest.raises(FormatError, match="_spark_metadata/0: version 'v7' of Spark's log is not known"):
            open_stream(tmp_path)

    def test_a_log_that_is_none(self, tmp_path: Path) -> None:
        log(tmp_path / "_spark_metadata" / "0", {"name": "a"})
        with pytest.raises(FormatError, match="_spark_metadata/0: not a log of Spark's file sink"):
            open_stream(tmp_path)


class TestNumberedRows:
    """`_batch` and `_seq` say in which order rows were written, wherever they lie."""

    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_over_the_whole_directory(self, tmp_path: Path, size: int) -> None:
        part(tmp_path / "a.parquet", _batch=[1, 1, 2], _seq=[0, 2, 1], _vs=[10, 12, 21])
        part(tmp_path / "b.parquet", _batch=[1, 2], _seq=[1, 0], _vs=[11, 20])
        part(tmp_path / "c.parquet", _batch=[0, 0], _seq=[0, 1], _vs=[0, 1])
        assert starts(tmp_path, size) == [0, 1, 10, 11, 12, 20, 21]
        assert open_stream(tmp_path).schema == pa.schema([])

    def test_within_one_file(self, tmp_path: Path) -> None:
        path = part(tmp_path / "a.parquet", _batch=[1, 0, 0], _seq=[0, 1, 0], _vs=[10, 1, 0])
        assert starts(path) == [0, 1, 10]

    def test_batch_by_batch_when_files_do_not_overlap(self, tmp_path: Path) -> None:
        for batch in range(5):
            rows = range(4)
            part(
                tmp_path / f"{9 - batch}.parquet",
                _batch=[batch] * 4,
                _seq=list(rows),
                _vs=[batch * 10 + i for i in rows],
            )
        pieces = [batch.vs.tolist() for batch in open_stream(tmp_path, batch_size=2)]
        assert [vs for one in pieces for vs in one] == [
            batch * 10 + i for batch in range(5) for i in range(4)
        ]
        assert max(map(len, pieces)) == 2

    def test_faults_name_the_file_and_row_they_come_from(self, tmp_path: Path) -> None:
        part(tmp_path / "a.parquet", _batch=[0, 0], _seq=[0, 2], _kind=["cti", "cti"], _vs=[5, 9])
        part(tmp_path / "b.parquet", _batch=[0, 0], _seq=[3, 1], _kind=["cti", "insert"], _vs=[11, 3])
        with pytest.raises(StreamError, match=r"b.parquet: row 2: breaks an earlier cti"):
            starts(tmp_path)

    def test_numbers_must_be_there(self, tmp_path: Path) -> None:
        part(tmp_path / "a.parquet", _batch=[0, 0], _seq=[0, None], _vs=[5, 9])
        with pytest.raises(FormatError, match=r"a.parquet: row 2: _seq is null"):
            starts(tmp_path)


class TestAgreement:
    def test_text_widens(self, tmp_path: Path) -> None:
        part(tmp_path / "a.jsonl", _vs=[1], v=[1])
        part(tmp_path / "b.jsonl", _vs=[1], v=[2.5], w=["x"])
        part(tmp_path / "c.jsonl", _vs=[1], v=[None])
        reader = open_stream(tmp_path)
        assert reader.schema == pa.schema([("v", pa.float64()), ("w", pa.string())])
        assert concat(list(reader)).payload.column("v").to_pylist() == [1.0, 2.5, None]

    def test_columns_may_come_in_another_order(self, tmp_path: Path) -> None:
        part(tmp_path / "a.parquet", _vs=[1], v=[1], w=["x"])
        part(tmp_path / "b.parquet", w=["y"], v=[2], _vs=[2])
        assert concat(list(open_stream(tmp_path))).payload.to_pylist() == [
            {"v": 1, "w": "x"},
            {"v": 2, "w": "y"},
        ]

    @pytest.mark.parametrize(
        ("other", "reason"),
        [
            ({"_vs": [1], "v": ["x"]}, "column v is string here and int64 in .*a.parquet"),
            ({"_vs": [1]}, "no column v"),
            (
                {"_vs": pa.array([1], pa.timestamp("us")), "v": [1]},
                r"the times are timestamps without a zone, but those of .*a.parquet are ticks",
            ),
            ({"_kind": ["insert"], "_vs": [1], "v": [1]}, "one of this and .*a.parquet has a column _kind"),
            (
                {"_batch": [1], "_seq": [1], "_vs": [1], "v": [1]},
                "one of this and .*a.parquet has the columns _batch",
            ),
        ],
    )
    def test_types_do_not(self, tmp_path: Path, other: Mapping[str, object], reason: str) -> None:
        part(tmp_path / "a.parquet", _vs=[1], v=[1])
        part(tmp_path / "b.parquet", **other)
        with pytest.raises(FormatError, match=rf"b.parquet: {reason}"):
            open_stream(tmp_path)

    def test_an_additional_column(self, tmp_path: Path) -> None:
        part(tmp_path / "a.parquet", _vs=[1], v=[1])
        part(tmp_path / "b.parquet", _vs=[1], v=[1], w=[1])
        with pytest.raises(FormatError, match=r"a.parquet: no column w"):
            open_stream(tmp_path)
