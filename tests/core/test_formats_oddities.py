"""Files that once led the readers astray, each with what it must give."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.core.classes import classify
from recension.core.difference import difference
from recension.core.errors import FormatError
from recension.core.formats import csv_files
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.gate.files import open_stream


def _history(path: Path) -> History:
    reader = open_stream(path)
    return reconstitute(reader, reader.schema)


@pytest.mark.parametrize("text", ["null\n", '{"_vs": 1, "x": 1}\nnull\n', '  "abc"\n', "[1]\n"])
def test_a_line_that_is_no_object(tmp_path: Path, text: str) -> None:
    """Arrow's parser crashes on a lone null, and takes later ones for objects."""
    (tmp_path / "s.jsonl").write_text(text)
    row = text.count("\n")
    with pytest.raises(FormatError, match=f"row {row}: not a JSON object"):
        list(open_stream(tmp_path / "s.jsonl"))


def test_json_lines_are_sorted_by_batch_and_sequence(tmp_path: Path) -> None:
    rows = [
        '{"_kind": "cti", "_vs": 2, "_batch": 1, "_seq": 0}',
        '{"_kind": "insert", "_vs": 0, "_ve": 5, "_batch": 0, "_seq": 0, "x": 2}',
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(rows))
    elements = [str(e) for batch in open_stream(tmp_path / "s.jsonl") for e in batch.to_elements()]
    assert elements == ["insert [0, 5) {'x': 2}", "cti 2"]


def test_a_csv_that_ends_inside_quotes(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text('_vs,x\n1,"a\n2,b\n')
    with pytest.raises(FormatError, match="a quoted cell is not closed"):
        list(open_stream(tmp_path / "s.csv"))
    (tmp_path / "s.csv").write_text('_vs,x\n1,"a\n2,b"\n')
    assert _history(tmp_path / "s.csv").payload["x"].to_pylist() == ["a\n2,b"]


@pytest.mark.parametrize("text", ['1,"a', '1,b"\n2,"a\n3,b\n', '1,"a""', '"1,a\n2,b'])
def test_a_csv_that_is_cut_inside_quotes(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.csv").write_text("_vs,x\n" + text)
    with pytest.raises(FormatError, match=r"a quoted cell is not closed|row 1: 1 columns where"):
        open_stream(tmp_path / "s.csv")


@pytest.mark.parametrize("block", [1 << 20, 24])
@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ('5" screen', '5" screen'),
        ('"a""b"', 'a"b'),
        ('""""', '"'),
        ('"a"b"c', 'ab"c'),
        ('"a\nb""c,"', 'a\nb"c,'),
        ('a""', 'a""'),
    ],
)
def test_quotes_inside_of_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str, value: str, block: int
) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", block)
    (tmp_path / "s.csv").write_text(f'"_vs",x\n1,{cell}\n2,"b\nc"\n3,{cell}\n4,"d\ne"\n')
    assert _history(tmp_path / "s.csv").payload["x"].to_pylist() == [value, "b\nc", value, "d\ne"]


@pytest.mark.parametrize(
    ("column", "strongest"),
    [
        (pa.nulls(2), "R1"),
        (pa.array([2.0, 1.0], pa.float16()), "R2"),
        (pa.array([float("nan"), 1.0]), "R2"),
        (pa.array([1.0, float("nan")]), "R1"),
        (pa.array([[("a", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64())), "R2"),
        (pa.array(["b", "a"], pa.string_view()), "R2"),
    ],
    ids=["null", "float16", "nan first", "nan last", "map", "string view"],
)
def test_ties_of_every_type_are_classified(tmp_path: Path, column: pa.Array, strongest: str) -> None:
    table = pa.table({"_vs": [1, 1], "c": column})
    with pa.ipc.new_file(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert classify(open_stream(tmp_path / "s.arrow")).classes[0] == strongest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([2**53 + 1]), pa.array([1.0])),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1])),
        (pa.array([5], pa.decimal128(5, 0)), pa.array([2**62])),
    ],
    ids=["no exact float", "unsigned", "decimal"],
)
def test_numbers_of_different_types_are_compared(tmp_path: Path, left: pa.Array, right: pa.Array) -> None:
    for name, column in (("l", left), ("r", right)):
        pq.write_table(pa.table({"_vs": [1], "x": column}), tmp_path / f"{name}.parquet")
    histories = [_history(tmp_path / f"{name}.parquet") for name in ("l", "r")]
    assert difference(*histories)
    assert not difference(histories[0], histories[0])


def test_one_instant_in_two_zones_is_one_instant(tmp_path: Path) -> None:
    for name, zone in (("l", "UTC"), ("r", "Europe/Paris")):
        column = pa.array([0], pa.timestamp("us", zone))
        pq.write_table(pa.table({"_vs": [1], "x": column}), tmp_path / f"{name}.parquet")
    assert not difference(*(_history(tmp_path / f"{name}.parquet") for name in ("l", "r")))


def test_layouts_nobody_computes_with_are_refused_by_name(tmp_path: Path) -> None:
    table = pa.table({"_vs": [1], "c": pa.array([[1]], pa.list_view(pa.int64()))})
    with pa.ipc.new_file(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match="column c: type list_view<item: int64> is not supported"):
        open_stream(tmp_path / "s.arrow")
