"""The gate by itself: judging changes nothing, and the earliest row's fault is the one that is reported."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.core.change_log import tables_of
from recension.core.errors import FormatError, RecensionError, StreamError
from recension.core.events import Cti, Insert, Retract
from recension.core.validity import Policy
from recension.gate.files import open_stream
from recension.gate.gate import Gate
from recension.plan.source import Source

SCHEMA = pa.schema([("k", pa.string())])
A = {"k": "a"}
GOOD = {"_kind": "insert", "_vs": 5, "_ve": 9, "_new_ve": None, "k": "a"}
# By the step that finds it.
FAULTS: dict[str, dict[str, Any]] = {
    "decode": {**GOOD, "_kind": "upsert"},
    "open and close": {**GOOD, "_kind": "close", "_vs": None, "k": "nobody"},
    "declared": {**GOOD, "_kind": "retract", "_new_ve": 7},
    "validity": {**GOOD, "_ve": 5},
}


def rows_of(*rows: dict[str, Any]) -> pa.Table:
    types = {
        "_kind": pa.string(),
        "_vs": pa.int64(),
        "_ve": pa.int64(),
        "_new_ve": pa.int64(),
        "k": pa.string(),
    }
    return pa.Table.from_pylist(list(rows), pa.schema(list(types.items())))


def state(gate: Gate) -> dict[str, Any]:
    return {name: table.to_pydict() for name, table in tables_of(gate.snapshot()).items()}


@pytest.mark.parametrize("policy", ["raise", "drop", "adjust"])
def test_judging_changes_nothing(policy: Policy) -> None:
    gate = Gate(Source("s", SCHEMA, on_violation=policy))
    gate.admit(gate.judge([Insert(A, 1, 9), Insert({"k": "b"}, 2), Cti(3)]))
    before, counts = state(gate), gate.counts
    coming = [Retract(A, 1, 9, 5), Insert(A, 4, 8), Cti(4)]
    first, second = gate.judge(coming), gate.judge(coming)
    assert (state(gate), gate.counts) == (before, counts)
    assert first.batch.to_elements() == second.batch.to_elements()
    assert gate.admit(second).to_elements() == coming
    assert state(gate) != before


@pytest.mark.parametrize("later", FAULTS)
@pytest.mark.parametrize("earlier", FAULTS)
def test_the_earliest_row_is_reported_whichever_step_finds_it(
    earlier: str, later: str, tmp_path: Path
) -> None:
    given = [GOOD, FAULTS[earlier], GOOD, FAULTS[later]]
    source = rc.source("s", {"k": "string"}, properties=rc.Properties(is_insert_only=True))
    with pytest.raises(StreamError) as alone:
        rc.session(source).push("s", rows_of(*given[:2]))
    with pytest.raises(StreamError) as pushed:
        rc.session(source).push("s", rows_of(*given))
    assert str(pushed.value) == str(alone.value)
    assert pushed.value.row == 2
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    for way in (
        lambda: rc.run(source, {"s": path}),
        lambda: rc.run(source, {"s": str(path)}),
        lambda: rc.run(source, {"s": open_stream(path)}),
        lambda: rc.session(source).push("s", path),
    ):
        with pytest.raises(StreamError) as read:
            way()
        assert (read.value.file, read.value.row) == (str(path), 2)
        assert read.value.reason == pushed.value.reason


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl", "s.parquet", "s.arrow"])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_value_that_no_column_holds_is_reported_after_the_faults_of_earlier_rows(
    name: str, size: int, tmp_path: Path
) -> None:
    """A text is converted a block at a time, so its values are looked at before any step is."""
    path, source = tmp_path / name, rc.source("s", {"k": "string", "v": "int64", "w": "int64"})
    good = {"_kind": "insert", "_vs": 6, "_ve": None, "k": "a", "v": 1.0, "w": 1.0}
    late = {**good, "_vs": 2}
    cti: dict[str, Any] = {**dict.fromkeys(good), "_kind": "cti", "_vs": 5}
    write_rows(path, [good, cti, {**good, "w": 1.5}, {**good, "v": 2.5}])
    with pytest.raises(StreamError, match="row 3: column w: "):
        rc.run(source, {"s": open_stream(path, batch_size=size)})
    write_rows(path, [good, cti, late, {**good, "v": 2.5}, {**good, "w": 1.5}])
    for way in (
        lambda: rc.run(source, {"s": path}, batch_size=size),
        lambda: rc.run(source, {"s": open_stream(path, batch_size=size)}),
        lambda: rc.session(source).push("s", path),
    ):
        with pytest.raises(StreamError, match="row 3: breaks an earlier cti"):
            way()


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as a file of the format that its name says."""
    table = pa.Table.from_pylist(rows)
    match path.suffix:
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            pyarrow.feather.write_feather(table, str(path), compression="uncompressed")


def test_times_of_another_kind_are_reported_after_the_faults_of_earlier_rows() -> None:
    late, other = Insert(A, 2), Insert(A, datetime(2024, 7, 1), datetime(2024, 7, 2))
    session = rc.session(rc.source("s", {"k": "string"}))
    with pytest.raises(StreamError, match="s: row 3: breaks an earlier cti"):
        session.push("s", [Insert(A, 1), Cti(5), late, other])
    with pytest.raises(rc.TimeError, match=r"s: row 3: insert .* the times are timestamps without a zone"):
        session.push("s", [Insert(A, 1), Cti(5), other, late])


def numbered(path: Path, places: list[tuple[int | None, int]]) -> tuple[pa.Table, Path]:
    """Rows that their writer has numbered, the last of which ends as it begins; also as a file."""
    rows = [{**GOOD, "_batch": batch, "_seq": seq} for batch, seq in places]
    rows[-1]["_ve"] = rows[-1]["_vs"]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, path)
    return table, path


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([(1, 0), (0, 1), (2, 0), (0, 0)], "row 4: an event that ends before"),
        ([(0, 0), (None, 1)], "row 2: _batch"),
    ],
    ids=["in another order", "without a number"],
)
def test_rows_that_are_read_in_another_order_keep_their_numbers(
    places: list[tuple[int | None, int]], says: str, tmp_path: Path
) -> None:
    source = rc.source("s", {"k": "string"})
    for data in numbered(tmp_path / "s.parquet", places):
        with pytest.raises(StreamError, match=says):
            rc.session(source).push("s", data)
        with pytest.raises(StreamError, match=says):
            rc.run(source, {"s": data}, batch_size=1)


def test_a_push_of_a_path_is_taken_in_as_a_whole(tmp_path: Path) -> None:
    for number, row in enumerate([GOOD, {**GOOD, "_kind": "cti", "_vs": 20, "_ve": None}, GOOD]):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    session = rc.session(rc.source("s", {"k": "string"}))
    with pytest.raises(StreamError, match=r"2\.jsonl: row 1: breaks an earlier cti"):
        session.push("s", tmp_path)
    assert len(session.history()) == 0
    (tmp_path / "2.jsonl").unlink()
    session.push("s", tmp_path)
    assert len(session.history()) == 1


def test_what_is_not_there_is_named() -> None:
    session = rc.session(rc.source("s", {"k": "string"}))
    with pytest.raises(RecensionError, match=r"nowhere\.parquet"):
        session.push("s", "nowhere.parquet")


def test_a_reader_that_was_told_another_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps(GOOD) + "\n")
    reader = open_stream(tmp_path / "s.jsonl", on_violation="drop")
    with pytest.raises(RecensionError, match=r"it is the source that decides, as in rc\.source\('s'"):
        rc.run(rc.source("s", {"k": "string"}), {"s": reader})
    assert len(rc.run(rc.source("s", {"k": "string"}, on_violation="drop"), {"s": reader}).history()) == 1


def test_a_stream_in_a_file_for_a_source_with_columns_of_times(tmp_path: Path) -> None:
    """As when it is pushed: what has our columns is read by them, another table by the user's."""
    source = rc.source("s", {"k": "string"}, start="ts", end="until")
    (tmp_path / "s.jsonl").write_text(json.dumps(GOOD) + "\n")
    (tmp_path / "t.jsonl").write_text(json.dumps({"ts": 5, "until": 9, "k": "a"}) + "\n")
    (tmp_path / "h.jsonl").write_text(json.dumps({"_vs": 5, "_ve": 9, "k": "a"}) + "\n")
    for name in ("s", "t", "h"):
        assert rc.run(source, {"s": tmp_path / f"{name}.jsonl"}).history().to_events() == [
            rc.Event(A, 5, 9)
        ], name


def test_data_by_partition_may_be_paths(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({**GOOD, "_vs": number}) + "\n")
    source = rc.source("s", {"k": "string"}, partition="p")
    session = rc.session(source)
    session.push("s", {number: tmp_path / f"{number}.jsonl" for number in (0, 1)})
    assert len(session.history()) == 2
    (tmp_path / "p.jsonl").write_text(json.dumps({**GOOD, "p": 1}) + "\n")
    with pytest.raises(RecensionError, match="data without the column 'p', which says it already"):
        session.push("s", tmp_path / "p.jsonl", partition=1)
    session.push("s", tmp_path / "p.jsonl")
    assert len(session.history()) == 3


def test_a_fault_in_one_part_comes_before_what_is_wrong_in_the_next() -> None:
    source = rc.source("s", {"x": "int64"}, partition=("p",))
    bad = pa.table({"_kind": ["insert", "odd"], "_vs": [1, 2], "x": [1, 2]})
    parts = {"a": bad.slice(0, 1), "b": bad, "c": pa.table({"_kind": ["insert"], "_vs": [1]})}
    with pytest.raises(FormatError, match=r"s: row 3: unknown kind 'odd'"):
        rc.session(source).push("s", parts)


def test_directories_of_partitions_are_not_given_to_another_partition(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    (tmp_path / "p=1" / "0.jsonl").write_text(json.dumps(GOOD) + "\n")
    session = rc.session(rc.source("s", {"k": "string"}, partition="p"))
    refused = "a directory for each partition, such as '1', which says it"
    with pytest.raises(RecensionError, match=refused):
        session.push("s", tmp_path, partition=2)
    with pytest.raises(RecensionError, match=refused):
        session.push("s", {2: tmp_path})
    session.push("s", tmp_path / "p=1", partition=1)
    session.push("s", tmp_path)
    assert len(session.history()) == 2
