"""A query's output in Delta: once, whatever is repeated; whose it is; what readers see."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from tests.runners.spark.lake.elements import NAMES, ann, elements, ends
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, revised, rows_of
from tests.runners.spark.sinks.test_queries import NOW, finished, history_of, put, stream

import recension as rc
from recension.core.batch import EventBatch, empty
from recension.core.errors import RecensionError, SchemaError
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.runners.spark.lake import delta_commit
from recension.runners.spark.lake.delta import DeltaTable
from recension.runners.spark.lake.delta_commit import DeltaCommits
from recension.runners.spark.lake.places import lake_table
from recension.runners.spark.lake.shape import Shape
from recension.runners.spark.lake.sinks import LakeChangelog, LakeHistory
from recension.runners.spark.sinks import writing
from recension.runners.spark.sinks.micro_batch import MicroBatch


class Table:
    """A history table that is fed by hand, as a query feeds it."""

    def __init__(self, spark: Any, path: Path, schema: pa.Schema = NAMES, query: str = "q") -> None:
        self.spark, self.query, self.address = spark, query, f"delta:{path}"
        self.stream = spark.createDataFrame(rows_of(empty(schema), 0)).schema
        self.number = 0
        self.reopen()

    def reopen(self) -> None:
        self.sink = LakeHistory(self.table, self.stream, Shape(), 2)
        self.sink.open(self.spark)

    @property
    def table(self) -> DeltaTable:
        found = lake_table(self.spark, self.address)
        assert isinstance(found, DeltaTable)
        return found

    def batch(self, events: EventBatch, number: int) -> MicroBatch:
        return fed(events, number, self.query, f"content {number}")

    def feed(self, events: EventBatch) -> None:
        self.sink.apply(self.batch(events, self.number))
        self.number += 1

    def history(self) -> History:
        return history_of(rc.spark.read_history(self.spark, self.address))

    def ordinals(self) -> Counter[tuple[Any, ...]]:
        rows = self.spark.table(self.table.sql).collect()
        return Counter((row["_vs"], row["_ve"], row["name"], row["_ordinal"]) for row in rows)


def test_a_query_writes_both_tables_in_two_runs(delta: Any, tmp_path: Path) -> None:
    """With bags, late events and many revisions; the first micro-batch of a run is written by tasks."""
    batches = revised(0, 2, size=150)
    batches.insert(1, empty(batches[0].schema))
    expected = prefixes(batches)
    log, table = f"delta:{tmp_path}/log", f"delta:{tmp_path}/table"
    for first, last in ((0, 2), (2, 3)):
        put(tmp_path / "in", batches[first:last], first)
        finished(
            rc.spark.write(
                stream(delta, tmp_path / "in"),
                changelog=log,
                history=table,
                checkpoint=tmp_path / "ck",
                trigger=NOW,
            )
        )
        assert_same(history_of(rc.spark.read_history(delta, table)), expected[last - 1])
        elements = rc.spark.read_changelog(delta, log)
        assert_same(history_of(rc.spark.history(elements)), expected[last - 1])
    assert_same(history_of(rc.spark.read_history(delta, table, version=2)), expected[1])
    commits = delta.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/table`").collect()
    notes = [json.loads(row["userMetadata"])["recension"] for row in commits if row["userMetadata"]]
    assert [note["batch"] for note in notes] == [2, 1, 0]
    assert len({note["query"] for note in notes}) == 1
    assert all(note["offsets"] for note in notes)


@pytest.fixture(params=["commit", pytest.param("merge", marks=pytest.mark.soak)])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By commits of the driver's own, and by MERGE as for a version of Delta that is not known.

    MERGE writes the first micro-batch of a run in any case, as above.
    """
    if request.param == "merge":
        monkeypatch.setattr(delta_commit, "VERSIONS", ())


@pytest.mark.usefixtures("either_way")
def test_equal_events_are_rows(delta: Any, tmp_path: Path) -> None:
    """They are told apart by an ordinal, which need not be without gaps but is unique."""
    table = Table(delta, tmp_path / "t")
    table.feed(elements(ann(1, 5), ann(1, 5), ann(2, 5)))
    assert table.ordinals() == {(1, 5, "a", 0): 1, (1, 5, "a", 1): 1, (2, 5, "a", 0): 1}
    table.feed(elements(ends(1, 5, 4), ann(1, 5)))
    table.feed(elements(ann(1, 5)))
    assert max(table.ordinals().values()) == 1
    assert [row[:2] for row in sorted(table.ordinals())] == [(1, 4), (1, 5), (1, 5), (1, 5), (2, 5)]
    table.feed(elements(ends(1, 5, 1), ends(1, 5, 1), ends(1, 5, 1)))
    assert sorted(table.ordinals()) == [(1, 4, "a", 0), (2, 5, "a", 0)]


def test_a_repeat_is_skipped_and_another_is_refused(delta: Any, tmp_path: Path) -> None:
    table = Table(delta, tmp_path / "t")
    first, second = elements(ann(1, 5)), elements(ends(1, 5, 3), ann(2, 9))
    table.feed(first)
    table.feed(second)
    before = table.ordinals()
    for _ in range(2):
        table.sink.apply(table.batch(second, 1))
        table.reopen()
    assert table.ordinals() == before
    with pytest.raises(RecensionError, match="micro-batch 1 was made of other input"):
        table.sink.apply(fed(second, 1, "q", "other"))
    with pytest.raises(RecensionError, match="has 2 micro-batches, and the next one has number 3"):
        table.sink.apply(table.batch(second, 3))
    other = Table(delta, tmp_path / "t", query="another")
    with pytest.raises(RecensionError, match="the history of another query"):
        other.sink.apply(other.batch(second, 1))
    log = LakeChangelog(table.table, table.stream)
    log.open(delta)
    with pytest.raises((RecensionError, SchemaError)):
        log.apply(table.batch(second, 2))
    assert table.ordinals() == before


@pytest.mark.usefixtures("either_way")
def test_a_table_that_something_else_changed_is_noticed(delta: Any, tmp_path: Path) -> None:
    table = Table(delta, tmp_path / "t")
    table.feed(elements(ann(1, 5), ann(2, 9)))
    delta.sql(f"DELETE FROM {table.table.sql} WHERE _vs = 2")
    before = table.ordinals()
    with pytest.raises(RecensionError, match=r"a retraction of an event that the table does not have.*_vs"):
        table.feed(elements(ann(3, 7), ends(2, 9, 4)))
    assert table.ordinals() == before
    delta.sql(f"OPTIMIZE {table.table.sql}")
    table.feed(elements(ann(3, 7), ends(1, 5, 4)))
    assert sorted(table.ordinals()) == [(1, 4, "a", 0), (3, 7, "a", 0)]


def test_killed_between_write_and_commit(delta: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit nothing is there; after it, what comes again is skipped."""
    batches = revised(3, 3, size=90)
    table = Table(delta, tmp_path / "t", batches[0].schema)
    calls = ((DeltaTable, "merge"), (DeltaTable, "append"), (DeltaCommits, "commit"))
    for number, (batch, expected) in enumerate(zip(batches, prefixes(batches), strict=True)):
        for owner, name in calls:
            call = getattr(owner, name)

            def killed(self: Any, *given: Any, call: Any = call, late: int = number % 2) -> None:
                if late:
                    call(self, *given)
                raise KeyboardInterrupt

            monkeypatch.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            table.feed(batch)
        monkeypatch.undo()
        table.reopen()
        table.feed(batch)
        assert_same(table.history(), expected)


@pytest.mark.parametrize("parts", [3, pytest.param(6, marks=pytest.mark.soak)])
def test_commits_of_the_driver(delta: Any, tmp_path: Path, parts: int) -> None:
    """Many revisions of files with deletion vectors, among them files of which nothing is left."""
    batches = revised(5, parts, size=400)
    table = Table(delta, tmp_path / "t", batches[0].schema)
    for batch, expected in zip(batches, prefixes(batches), strict=True):
        table.feed(batch)
        assert_same(table.history(), expected)
    commits = delta.sql(f"DESCRIBE HISTORY {table.table.sql}").collect()
    assert [row["operation"] for row in commits].count("UPDATE") == len(batches)
    plain = Table(delta, tmp_path / "u")
    plain.feed(elements(ann(1, 5), ann(2, 9)))
    plain.feed(elements(ends(1, 5, 3), ends(2, 9, 4)))
    assert len(list((tmp_path / "u").glob("*.bin"))) == 0
    assert sorted(plain.ordinals()) == [(1, 3, "a", 0), (2, 4, "a", 0)]


def test_a_commit_of_somebody_else_comes_first(
    delta: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep moves the rows that were found; then all is done again. Another driver's commit is enough."""
    table = Table(delta, tmp_path / "t")
    table.feed(elements(ann(1, 5), ann(2, 9)))
    table.feed(elements(ann(3, 9), ends(2, 9, 8)))
    find, others = delta_commit._Attempt._find, 0

    def find_and_wait(self: Any, change: Any) -> Any:
        nonlocal others
        found = find(self, change)
        if not others:
            others += 1
            delta.sql(f"OPTIMIZE {table.table.sql}")
        return found

    monkeypatch.setattr(delta_commit._Attempt, "_find", find_and_wait)
    table.feed(elements(ends(1, 5, 4), ann(4, 9)))
    assert others
    expected = [(1, 4, "a", 0), (2, 8, "a", 0), (3, 9, "a", 0), (4, 9, "a", 0)]
    assert sorted(table.ordinals()) == expected
    first, second = table.sink, LakeHistory(table.table, table.stream, Shape(), 2)
    second.open(delta)
    batch = table.batch(elements(ends(4, 9, 4), ann(5, 9)), table.number)
    for sink in (first, second):
        sink.check(batch)
    for sink in (first, second):
        sink.apply(batch)
    assert sorted(table.ordinals()) == [*expected[:3], (5, 9, "a", 0)]


def test_scd2(delta: Any, tmp_path: Path) -> None:
    put(
        tmp_path / "in", [elements(ann(1, 9), rc.Insert({"name": "b", "x": 1.0}, 2)), elements(ends(1, 9, 4))]
    )
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": NOW}
    table = f"delta:{tmp_path}/t"
    finished(rc.spark.write_history(stream(delta, tmp_path / "in"), table, scd2=True, **where))
    rows = delta.read.format("delta").load(f"{tmp_path}/t").orderBy("name").drop("x").collect()
    assert [row.asDict() for row in rows] == [
        {"valid_from": 1, "valid_to": 4, "name": "a", "is_current": False, "_ordinal": 0},
        {"valid_from": 2, "valid_to": None, "name": "b", "is_current": True, "_ordinal": 0},
    ]
    assert_same(
        history_of(rc.spark.read_history(delta, table)),
        reconstitute([elements(ann(1, 4), rc.Insert({"name": "b", "x": 1.0}, 2))], NAMES),
    )
    with pytest.raises(RecensionError, match="scd2"):
        rc.spark.write_history(stream(delta, tmp_path / "in"), table, **where)


def test_what_is_refused_before_it_starts(delta: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", [elements(ann(1, 5))])
    frame = stream(delta, tmp_path / "in")
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": NOW}
    with pytest.raises(RecensionError, match="need a directory each"):
        rc.spark.write(frame, changelog=f"delta:{tmp_path}/t", history=f"delta:{tmp_path}/t", **where)
    with pytest.raises(RecensionError, match="scd2 is for histories in lake formats"):
        rc.spark.write_history(frame, tmp_path / "t", scd2=True, **where)
    finished(rc.spark.write_history(frame, f"delta:{tmp_path}/t", **where))
    with pytest.raises(RecensionError, match="the history of another query"):
        rc.spark.write_history(frame, f"delta:{tmp_path}/t", checkpoint=tmp_path / "other")
    with pytest.raises(RecensionError, match="already written micro-batches elsewhere"):
        rc.spark.write_history(frame, f"delta:{tmp_path}/u", **where)
    with pytest.raises(rc.RecensionError, match="not a changelog that"):
        rc.spark.read_changelog(delta, f"delta:{tmp_path}/t")


def test_a_table_in_a_catalog_that_the_user_has_made(
    delta: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clustered as its readers want it; large micro-batches are written by tasks throughout."""
    monkeypatch.setattr(writing, "FEW", -1)
    name = "spark_catalog.default.recension_leases"
    delta.sql(f"DROP TABLE IF EXISTS {name}")
    columns = "_vs BIGINT, _ve BIGINT, name STRING, x DOUBLE, _ordinal BIGINT"
    delta.sql(f"CREATE TABLE {name} ({columns}) USING delta CLUSTER BY (_vs) LOCATION '{tmp_path}/t'")
    batches = [
        elements(ann(1, 5), ann(1, 5), ann(2, 5)),
        elements(ends(1, 5, 3), ends(1, 5, 2), rc.Cti(2)),
    ]
    put(tmp_path / "in", batches)
    try:
        query = rc.spark.write_history(
            stream(delta, tmp_path / "in"), name, checkpoint=tmp_path / "ck", trigger=NOW
        )
        finished(query)
        expected = reconstitute(batches, NAMES)
        assert_same(history_of(rc.spark.read_history(delta, name)), expected)
    finally:
        delta.sql(f"DROP TABLE {name}")


def test_pandas_and_duckdb_read_the_table_without_us(delta: Any, tmp_path: Path) -> None:
    """By the files that Delta's log lists; without deletion vectors, which such readers do not know."""
    path = tmp_path / "t"
    columns = "_vs BIGINT, _ve BIGINT, name STRING, x DOUBLE, _ordinal BIGINT"
    properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    delta.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {properties}")
    table = Table(delta, path)
    table.feed(elements(ann(1, 5), ann(1, 5), ann(2, 9, "b"), rc.Cti(2)))
    table.feed(elements(ends(2, 9, 4, "b"), ann(3, 7, "c")))
    files = [str(path / name) for name in listed(path)]
    expected = [(1, 5, "a"), (1, 5, "a"), (2, 4, "b"), (3, 7, "c")]
    frame = pd.concat([pd.read_parquet(file) for file in files])
    assert sorted(zip(frame["_vs"], frame["_ve"], frame["name"], strict=True)) == expected
    assert sorted(duckdb.sql(f"SELECT _vs, _ve, name FROM read_parquet({files})").fetchall()) == expected


def listed(path: Path) -> set[str]:
    """The files of a table's last version, by its log."""
    found: set[str] = set()
    for commit in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        found -= {one["remove"]["path"] for one in actions if "remove" in one}
        found |= {one["add"]["path"] for one in actions if "add" in one}
    return found
