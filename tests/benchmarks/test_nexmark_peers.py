"""NEXMark beside others: their queries, their answers as tables, processes that do not answer."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.nexmark import judge
from benchmarks.nexmark.comparison import expected, last_rows, read_changes
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.peers import AT_ONCE, DUCKDB, FINAL, FLINK, OURS, SPARK, Row
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.spark_own import FRAMES, UPDATES
from benchmarks.nexmark.spark_worker import measure
from benchmarks.peers import flink_nexmark
from benchmarks.peers.worker import FAILED, Worker, reason, run_within
from benchmarks.report import fill_page, markdown
from benchmarks.spark import STORE
from rich.table import Table

MIDNIGHT = dt.datetime(2026, 3, 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "files"
    write(Settings(3000, rate=30.0, steps=4), folder)
    return folder


def test_everybody_is_given_every_query() -> None:
    assert list(QUERIES) == list(flink_nexmark.SQL) == list(FRAMES)


def test_flink_has_watermarks_where_a_query_asks_for_time() -> None:
    *tables, query = flink_nexmark.statements("q8", "/files", "SINK")
    assert len(tables) == 2
    assert all("WATERMARK" in table for table in tables)
    assert query.startswith("CREATE TABLE answer SINK AS")
    tables = flink_nexmark.statements("q3", "/files", "SINK")
    assert not any("WATERMARK" in statement for statement in tables)


@pytest.mark.parametrize("name", ["q4", "q5", "q15", "q19"])
def test_of_an_answer_a_table_has_the_last_rows(name: str, files: Path) -> None:
    theirs = judge.answer(files, name)
    left = expected(name, theirs)
    if name in ("q4", "q19"):
        assert left.num_rows == theirs.num_rows - theirs.filter(theirs["_ve"].is_valid()).num_rows
    else:
        assert left.num_rows == theirs.num_rows
    if name == "q15":
        assert left["day"].to_pylist() == ["2026-03-01", "2026-03-02"]
    if name == "q5":
        final = expected(name, theirs, MIDNIGHT)
        assert 0 < final.num_rows < theirs.num_rows
        assert max(final["_ve"].to_pylist()) <= MIDNIGHT


def test_changes_come_to_rows(tmp_path: Path) -> None:
    row = {"at": "2026-03-02 00:00:00.5Z", "n": 1}
    changes: list[dict[str, Any]] = [
        {"before": None, "after": row, "op": "c"},
        {"before": row, "after": None, "op": "d"},
        *[{"before": None, "after": row | {"n": 2}, "op": "c"}] * 2,
    ]
    file = tmp_path / "part-0"
    file.write_text("".join(json.dumps(change) + "\n" for change in changes))
    schema = pa.schema({"at": pa.timestamp("us"), "n": pa.int64()})
    found = read_changes(tmp_path, schema)
    assert found.to_pylist() == [{"at": MIDNIGHT + dt.timedelta(seconds=0.5), "n": 2}] * 2
    file.write_text(json.dumps(changes[1]) + "\n")
    with pytest.raises(ValueError, match="more often"):
        read_changes(tmp_path, schema)


def test_the_latest_micro_batch_stands() -> None:
    rows = pa.table({"key": ["a", "a", "b"], "n": [1, 2, 3], "_batch": [0, 1, 0]})
    assert sorted(last_rows(rows, ["key"]).to_pylist(), key=str) == [
        {"key": "a", "n": 2},
        {"key": "b", "n": 3},
    ]


_SCRIPT = """
import sys, time
from benchmarks.peers.worker import serve

def answer(request):
    print("this is not a reply")
    if request["do"] == "end":
        sys.exit(3)
    if request["do"] == "fail":
        raise ValueError("the reason\\nand more")
    time.sleep(request["seconds"])
    return {"answer": request["seconds"]}

serve(lambda: answer)
"""


def test_a_process_answers_fails_and_starts_anew(tmp_path: Path) -> None:
    worker = Worker([sys.executable, "-c", _SCRIPT], {"PYTHONPATH": "."}, tmp_path / "log")
    try:
        assert worker.ask({"do": "sleep", "seconds": 0}, 60) == {"answer": 0}
        assert worker.ask({"do": "fail"}, 60) == {FAILED: "the reason"}
        assert worker.ask({"do": "sleep", "seconds": 60}, 0.1) == {FAILED: "over 0 s"}
        assert worker.ask({"do": "sleep", "seconds": 0.01}, 60) == {"answer": 0.01}
        assert "process ended" in worker.ask({"do": "end"}, 60)[FAILED]
        assert worker.ask({"do": "sleep", "seconds": 0}, 60) == {"answer": 0}
    finally:
        worker.close()
    assert "this is not a reply" in (tmp_path / "log").read_text()


def test_the_reason_is_the_innermost_cause() -> None:
    assert reason("An error\n  at x\nCaused by: one\n at y\nCaused by: two\n at z") == "two"
    assert reason("plain\nmore") == "plain"
    assert reason("") == "no reason given"


def test_a_row_of_the_table() -> None:
    took = {"cpu_seconds": 2.0, "seconds": 3.0, "fixed": {"cpu_seconds": 0.0, "seconds": 0.5}}
    on_spark = {"seconds": 5.0, "share": 0.5}
    refused = "row_number is refused on streams"
    row = Row("q1", 1000, {
        FINAL: took, AT_ONCE: took | {"cpu_seconds": 8.0}, FLINK: took | {"cpu_seconds": 4.0},
        SPARK: {FAILED: refused}, OURS: on_spark, DUCKDB: {FAILED: "over 9 s"},
    }, {FINAL: (0, 0), FLINK: (1, 2)})  # fmt: skip
    assert list(row.cells()) == [
        "q1", "500", "125", "250", "2.00", "0.50", "2.5", "no, see below", "100", "over 9 s",
        "Flink: 1 missing, 2 extra",
    ]  # fmt: skip
    assert list(row.reasons()) == [f"q1, {SPARK}: {refused}"]


def test_a_process_that_runs_once(tmp_path: Path) -> None:
    def run(script: str, seconds: float) -> dict[str, Any]:
        return run_within([sys.executable, "-c", script], dict(os.environ), seconds)

    assert run("print('first'); print('{\"n\": 1}')", 60) == {"n": 1}
    assert run("raise SystemExit('no such file')", 60) == {FAILED: "no such file"}
    assert run("raise SystemExit(3)", 60) == {FAILED: "failed (exit code 3)"}
    assert run("import time; time.sleep(60)", 0.1) == {FAILED: "over 0 s"}


def test_a_table_goes_into_a_page(tmp_path: Path) -> None:
    table = Table("query", "rate", title="title")
    table.add_row("q0", "1,000")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n")
    for _ in range(2):
        fill_page(page, "a", markdown(table))
        assert page.read_text() == (
            "before\n<!-- a -->\n\n| query | rate |\n| --- | --- |\n| q0 | 1,000 |\n\n<!-- /a -->\nafter\n"
        )
    with pytest.raises(ValueError, match="no comments"):
        fill_page(page, "b", "")


def test_the_guide_has_places_for_the_tables() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "nexmark.md").read_text()
    assert all(
        f"<!-- {name} -->\n" in guide and f"<!-- /{name} -->" in guide for name in ("nexmark-peers", "peers")
    )


@pytest.fixture
def own_spark(spark: Any) -> Iterator[Any]:
    """Measuring chooses a state store."""
    store = spark.conf.get(STORE)
    yield spark
    spark.conf.set(STORE, store)


@pytest.mark.parametrize("name", ["q10", "q11", "q17"])
def test_answers_of_sparks_own_operators_are_those_of_duckdb(
    name: str, files: Path, tmp_path: Path, own_spark: Any
) -> None:
    found = measure(
        own_spark,
        {"query": name, "way": "own", "files": str(files), "out": str(tmp_path), "files_per_batch": 2},
    )
    mark = None if name in UPDATES else dt.datetime.fromisoformat(found["watermark"])
    wanted = expected(name, judge.answer(files, name), mark)
    assert wanted.num_rows
    assert judge.differences(pq.read_table(tmp_path / "answer.parquet"), wanted) == (0, 0)


def test_spark_gives_its_reason_where_it_has_no_operator(files: Path, tmp_path: Path, own_spark: Any) -> None:
    with pytest.raises(Exception, match="streaming"):
        measure(
            own_spark,
            {"query": "q19", "way": "own", "files": str(files), "out": str(tmp_path), "files_per_batch": 2},
        )
