"""``recension diff``: the same meaning, whatever the elements, the format and the width of a number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recension.cli import main
from recension.core.batch import from_elements
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.formats import write_stream
from recension.core.ticks import FOREVER

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
A, B = {"p": "A", "n": 1}, {"p": "B", "n": 2}
# LMerge, Table I: two physical streams of one history.
PHY1: list[Element] = [Insert(B, 8), Insert(A, 6, 12), Retract(B, 8, FOREVER, 10), Cti(11), Cti(FOREVER)]
PHY2: list[Element] = [
    Insert(A, 6, 7),
    Insert(B, 8, 15),
    Retract(A, 6, 7, 12),
    Retract(B, 8, 15, 10),
    Cti(FOREVER),
]
SUFFIXES = ["parquet", "jsonl", "csv", "arrow"]


def written(path: Path, elements: Sequence[Element], schema: pa.Schema = SCHEMA) -> str:
    write_stream(path, [from_elements(elements, schema)], schema)
    return str(path)


@pytest.mark.parametrize("left", SUFFIXES)
@pytest.mark.parametrize("right", SUFFIXES)
def test_equivalent_in_any_format(
    left: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = written(tmp_path / f"a.{left}", PHY1), written(tmp_path / f"b.{right}", PHY2)
    assert main(["diff", a, b]) == 0
    assert capsys.readouterr() == ("equivalent: 2 events\n", "")


def test_a_stream_and_its_history(tmp_path: Path) -> None:
    a = written(tmp_path / "a.parquet", PHY1)
    assert main(["history", a, "--output", str(tmp_path / "h.csv")]) == 0
    assert main(["diff", a, str(tmp_path / "h.csv")]) == 0


@pytest.mark.parametrize("left", SUFFIXES)
@pytest.mark.parametrize("right", SUFFIXES)
def test_different(left: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path / f"a.{left}", PHY1), written(tmp_path / f"b.{right}", PHY2[:3])
    assert main(["diff", a, b]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        f"different: 1 events only in {a}, 1 only in {b}\n"
        "  - [8, 10) {'p': 'B', 'n': 2}\n"
        "  + [8, 15) {'p': 'B', 'n': 2}\n"
    )


def test_bags_not_sets(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", [Insert(A, 1, 5), Insert(A, 1, 5)])
    b = written(tmp_path / "b.csv", [Insert(A, 1, 5)])
    assert main(["diff", a, b]) == 1


RICH = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.date32()),
        ("t", pa.timestamp("ms", "UTC")),
        ("m", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("z", pa.string()),
        ("never", pa.float64()),
    ]
)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("is_turned", [False, True])
def test_text_is_read_in_the_types_of_the_other_side(suffix: str, is_turned: bool, tmp_path: Path) -> None:
    instant = dt.datetime(2024, 1, 2, 3, 4, 5, 6000, dt.UTC)
    values = [1, 0.5, dt.date(2024, 1, 1), instant, Decimal("1.10"), "2024-01-01", "007", None]
    rows = [dict(zip(RICH.names, row, strict=True)) for row in (values, [None] * 5 + [""] + [None] * 2)]
    batch = from_elements([Insert(row, 1, 5) for row in rows], RICH)
    for name in ("a.parquet", f"b.{suffix}"):
        write_stream(tmp_path / name, [batch], RICH)
    paths = [str(tmp_path / name) for name in ("a.parquet", f"b.{suffix}")]
    assert main(["diff", *(paths[::-1] if is_turned else paths)]) == 0


def test_json_knows_texts_that_csv_takes_for_dates(tmp_path: Path) -> None:
    schema = pa.schema([("s", pa.string())])
    paths = [
        written(tmp_path / f"a.{suffix}", [Insert({"s": "2024-01-01"}, 1)], schema)
        for suffix in ("csv", "jsonl")
    ]
    assert main(["diff", *paths]) == 0
    assert main(["diff", *paths[::-1]]) == 0


def test_json_may_leave_nulls_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_vs":1,"_ve":5,"p":"A"}\n')
    b = written(tmp_path / "b.parquet", [Insert({"p": "A", "n": None}, 1, 5)])
    assert main(["diff", str(tmp_path / "a.jsonl"), b]) == 0


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"_vs": [6], "p": ["A"]}, "payload columns differ"),
        ({"_vs": [6], "p": [1], "n": [1]}, "column p is string on one side and int64 on the other"),
    ],
)
def test_other_columns_are_a_difference(
    table: dict[str, list[object]], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = written(tmp_path / "a.parquet", PHY1)
    pq.write_table(pa.table(table), tmp_path / "b.parquet")
    assert main(["diff", a, str(tmp_path / "b.parquet")]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"different: {reason}")


def test_values_of_another_type_are_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = written(tmp_path / "a.parquet", PHY1)
    (tmp_path / "b.csv").write_text("_vs,_ve,p,n\n6,12,A,one\n8,10,B,two\n")
    assert main(["diff", a, str(tmp_path / "b.csv")]) == 1
    assert capsys.readouterr().out.startswith("different: column n is int64 on one side and string")


def test_own_columns_of_times_where_they_are_needed(tmp_path: Path) -> None:
    a = written(tmp_path / "a.parquet", PHY1)
    (tmp_path / "b.csv").write_text("from,to,p,n\n6,12,A,1\n8,10,B,2\n")
    assert main(["diff", a, str(tmp_path / "b.csv"), "--start", "from", "--end", "to"]) == 0
    assert main(["diff", str(tmp_path / "b.csv"), a, "--start", "from", "--end", "to"]) == 0


def test_without_payload_columns(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / f"a.{suffix}", [Insert({}, 1, 5), Insert({}, 1, 5)], pa.schema([]))
        for suffix in ("csv", "parquet")
    ]
    assert main(["diff", *paths]) == 0


DIFFERENT: list[tuple[str, pa.DataType, object, pa.DataType, object]] = [
    ("a tiny decimal", pa.decimal128(38, 20), Decimal("1e-20"), pa.int64(), 0),
    ("the last digit", pa.decimal128(38, 20), Decimal("1.00000000000000000001"), pa.int64(), 1),
    ("a wide decimal", pa.decimal256(76, 0), Decimal(2**127), pa.int64(), 0),
    ("a far time", pa.timestamp("us"), 2**62, pa.timestamp("ns"), (2**62 * 1000 + 2**63) % 2**64 - 2**63),
    ("text and bytes", pa.string(), "a", pa.binary(), b"a"),
]


@pytest.mark.parametrize("case", DIFFERENT, ids=[case[0] for case in DIFFERENT])
def test_values_that_only_seem_equal(
    case: tuple[str, pa.DataType, object, pa.DataType, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = []
    for name, kind, value in (("a", *case[1:3]), ("b", *case[3:])):
        is_moment = pa.types.is_timestamp(kind)
        column = pa.array([value], pa.int64()).view(kind) if is_moment else pa.array([value], kind)
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({"_vs": [1], "_ve": [5], "x": column}), paths[-1])
    for left, right in (paths, paths[::-1]):
        assert main(["diff", str(left), str(right)]) == 1
        assert capsys.readouterr().out.startswith("different: ")
        assert main(["diff", str(left), str(left)]) == 0
        assert capsys.readouterr().out == "equivalent: 1 events\n"


def test_rounding_that_swaps_the_order_of_rows(tmp_path: Path) -> None:
    small, large = 1.0, 1.0 + 1e-12
    for name, columns in (("a", {"x": [small, large]}), ("b", {"x": [large, small]})):
        table = pa.table({"_vs": [1, 1], "_ve": [5, 5], **columns, "y": [3.0, 7.0]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert main(["diff", str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]) == 0
