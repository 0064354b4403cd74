"""``recension check``: valid or not, of which class, and what it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recension.cli import main
from recension.core.batch import from_elements
from recension.core.events import Cti, Element, ExternalCti, Insert, Retract
from recension.core.formats import write_stream
from recension.core.ticks import FOREVER

SCHEMA = pa.schema([("p", pa.string())])
A, B = {"p": "a"}, {"p": "b"}


def report(path: Path, elements: Sequence[Element], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    write_stream(path, [from_elements(elements, SCHEMA)], SCHEMA)
    assert main(["check", str(path), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ([Insert(A, 1, 5), Insert(A, 2, 5)], "R0"),
        ([Insert(A, 1, 5), Insert(B, 1, 5)], "R1"),
        ([Insert(B, 1, 5), Insert(A, 1, 5)], "R2"),
        ([Insert(B, 2, 5), Insert(A, 1, 5)], "R3"),
        ([Insert(B, 2, 5), Insert(A, 1, 5), Insert(A, 1, 7)], "R4"),
    ],
)
def test_class(
    elements: list[Element], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = report(tmp_path / "s.parquet", elements, capsys)
    assert facts["class"] == facts["classes"][0] == expected
    assert facts["classes"][-1] == "R4"


def test_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elements: list[Element] = [
        Insert(A, 1, 5),
        Insert(B, 1),
        Retract(A, 1, 5, 1),
        Retract(B, 1, FOREVER, 7),
        ExternalCti(0, 5, 3),
        Cti(4),
        Cti(3),
        Cti(8),
    ]
    facts = report(tmp_path / "s.jsonl", elements, capsys)
    assert facts == {
        "path": str(tmp_path / "s.jsonl"),
        "valid": True,
        "class": "R3",
        "classes": ["R3", "R4"],
        "inserts": 2,
        "retractions": 2,
        "removals": 1,
        "ctis": 2,
        "external_ctis": 1,
        "last_cti": 8,
        "ordered": True,
        "perfect": False,
        "closed": True,
        "table": False,
        "counts": {"a cti that does not advance": 1},
        "columns": {"p": "string"},
    }


def test_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stream(tmp_path / "s.csv", [from_elements([Insert(A, 1, 5), Cti(FOREVER)], SCHEMA)], SCHEMA)
    assert main(["check", str(tmp_path / "s.csv")]) == 0
    assert capsys.readouterr() == (
        "valid        yes\n"
        "class        R0 (also R1, R2, R3, R4)\n"
        "inserts      1\n"
        "retractions  0, of which 0 removals\n"
        "ctis         1, the last at ∞\n"
        "ordered      yes\n"
        "perfect      yes\n"
        "closed       yes\n"
        "columns      p string\n",
        "",
    )


def test_a_plain_table_is_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("ts,p\n1,a\n")
    assert main(["check", str(tmp_path / "t.csv"), "--start", "ts"]) == 0
    assert "closed       yes (a plain table)\n" in capsys.readouterr().out


def test_invalid_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.csv"
    path.write_text("_kind,_vs,_ve,p\ncti,5,,\ninsert,3,9,a\n")
    assert main(["check", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "valid": False,
        "file": str(path),
        "row": 2,
        "reason": "breaks an earlier cti: insert [3, 9) {'p': 'a'}",
    }
    assert main(["check", str(path), "--on-violation", "drop"]) == 0
    assert "dropped      1 × breaks an earlier cti\n" in capsys.readouterr().out
