"""``recension run`` over files of Debezium's envelopes, as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recension.cli import main

QUERY = """
import recension as rc
schema = {"id": "int64", "state": "string", "note": "string"}
query = rc.debezium("orders", schema, key="id", optional="note").stream
"""


def change(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": 1000 * lsn}}


LOG = [
    change("r", None, {"id": 1, "state": "new"}, 1),
    change("u", None, {"id": 1, "state": "paid", "note": "card"}, 2),
    change("d", {"id": 1}, None, 3),
    None,
    change("c", None, {"id": 2, "state": "new", "note": None}, 4),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.py").write_text(QUERY)


def write(messages: list[Any], wraps: bool = False) -> None:
    wrapped = [one if one is None or not wraps else {"schema": {}, "payload": one} for one in messages]
    Path("orders.jsonl").write_text("\n".join(map(json.dumps, wrapped)) + "\n")


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("size", ["1", "2", "1000"])
def test_envelopes_in_lines(wraps: bool, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(LOG, wraps)
    assert main(["run", "q.py", "-i", "orders=orders.jsonl", "--batch-size", size]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "_vs,_ve,id,state,note",
        "1970-01-01T00:00:01.000000Z,1970-01-01T00:00:02.000000Z,1,new,",
        "1970-01-01T00:00:02.000000Z,1970-01-01T00:00:03.000000Z,1,paid,card",
        "1970-01-01T00:00:04.000000Z,,2,new,",
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (change("c", None, {"id": 3}, 5), "row 6: no column state; there are id; if it was added later"),
        (change("t", None, None, 5), "row 6: op 't' is not the change of a row"),
    ],
)
def test_errors_name_the_line(message: Any, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    write([*LOG, message])
    for size in ("2", "1000"):
        assert main(["run", "q.py", "-i", "orders=orders.jsonl", "--batch-size", size]) == 2
        assert capsys.readouterr().err.startswith(f"recension: orders.jsonl: {reason}")


def test_rows_that_were_made_of_envelopes_are_read_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": 1, "state": "new", "note": None, "log_time": "1970-01-01T00:00:01Z", "log_version": 1}
    Path("orders.jsonl").write_text(json.dumps(row | {"log_deleted": False}) + "\n")
    assert main(["run", "q.py", "-i", "orders=orders.jsonl"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["1970-01-01T00:00:01.000000Z,,1,new,"]
