"""A query's output in Iceberg: once, whatever is repeated or comes in between; what other readers see."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.runners.spark.lake.elements import NAMES, ann, elements, ends
from tests.runners.spark.sinks.feeding import assert_same, fed, prefixes, revised, rows_of
from tests.runners.spark.sinks.test_queries import NOW, finished, history_of, put, stream

import recension as rc
from recension.core.batch import empty
from recension.core.errors import RecensionError, SchemaError
from recension.runners.spark.lake.iceberg import IcebergTable
from recension.runners.spark.lake.places import lake_table
from recension.runners.spark.lake.shape import Shape
from recension.runners.spark.lake.sinks import LakeChangelog, LakeHistory, LakeSink


class Fed:
    """A table that is fed by hand, as a query feeds it."""

    def __init__(self, spark: Any, address: str, sink: type[LakeSink] = LakeHistory) -> None:
        self.spark, self.address, self._sink = spark, address, sink
        self.stream = spark.createDataFrame(rows_of(empty(NAMES), 0)).schema

    @property
    def table(self) -> IcebergTable:
        found = lake_table(self.spark, self.address)
        assert isinstance(found, IcebergTable)
        return found

    def writer(self) -> LakeSink:
        more = (Shape(), 2) if self._sink is LakeHistory else ()
        sink = self._sink(self.table, self.stream, *more)
        sink.open(self.spark)
        return sink

    def rows(self) -> Counter[tuple[Any, ...]]:
        rows = self.spark.table(self.table.sql).collect()
        return Counter((row["_vs"], row["_ve"], row["name"]) for row in rows)

    def batches(self) -> list[int | None]:
        return [
            None if commit.note is None else commit.note.batch for commit in self.table.commits(self.spark)
        ]


def test_a_query_writes_both_tables_in_two_runs(iceberg: Any, lake: str, tmp_path: Path) -> None:
    """With bags, late events and many revisions; and every reader sees the same."""
    batches = revised(0, 3, size=90)
    expected = prefixes(batches)
    log, table = f"{lake}.db.log", f"{lake}.db.history"
    for first, last in ((0, 2), (2, 3)):
        put(tmp_path / "in", batches[first:last], first)
        finished(
            rc.spark.write(
                stream(iceberg, tmp_path / "in"),
                changelog=log,
                history=table,
                checkpoint=tmp_path / "ck",
                trigger=NOW,
            )
        )
    assert_same(history_of(rc.spark.read_history(iceberg, table)), expected[2])
    assert_same(history_of(rc.spark.history(rc.spark.read_changelog(iceberg, log))), expected[2])
    assert_same(history_of(rc.spark.read_history(iceberg, table, version=2)), expected[1])
    found = lake_table(iceberg, table)
    assert found is not None
    notes = [commit.note for commit in found.commits(iceberg)]
    assert [note and note.batch for note in notes] == [2, 1, 0]


def test_read_without_spark(iceberg: Any, lake: str, tmp_path: Path) -> None:
    """pyiceberg, and with it pandas, reads the table as it lies there."""
    read = pytest.importorskip("pyiceberg.table", reason="pyiceberg is not installed").StaticTable
    writer = Fed(iceberg, f"{lake}.db.t").writer()
    writer.apply(fed(elements(ann(1, 5), ann(1, 5), ann(2, 5)), 0, "q", "c0"))
    writer.apply(fed(elements(ends(1, 5, 4), ends(2, 5, 2)), 1, "q", "c1"))
    metadata = tmp_path / "lake" / "db" / "t" / "metadata"
    version = (metadata / "version-hint.text").read_text()
    found = read.from_metadata(str(metadata / f"v{version}.metadata.json")).scan().to_pandas()
    assert sorted(zip(found["_vs"], found["_ve"], found["name"], strict=True)) == [(1, 4, "a"), (1, 5, "a")]


def test_equal_events_and_repeats(iceberg: Any, lake: str) -> None:
    fed_table = Fed(iceberg, f"{lake}.db.t")
    writer = fed_table.writer()
    given = [elements(ann(1, 5), ann(1, 5), ann(2, 5)), elements(ends(1, 5, 4), ann(1, 6)), empty(NAMES)]
    for number, batch in enumerate(given):
        writer.apply(fed(batch, number, "q", f"c{number}"))
    expected = {(1, 5, "a"): 1, (1, 4, "a"): 1, (1, 6, "a"): 1, (2, 5, "a"): 1}
    assert fed_table.rows() == expected
    again = fed_table.writer()
    again.apply(fed(given[1], 1, "q", "c1"))
    assert fed_table.rows() == expected
    with pytest.raises(RecensionError, match="micro-batch 1 was made of other input"):
        again.apply(fed(given[1], 1, "q", "other"))
    with pytest.raises(RecensionError, match="another query"):
        fed_table.writer().apply(fed(given[1], 3, "another", "c3"))
    assert fed_table.batches() == [2, 1, 0]


@pytest.mark.parametrize("kind", [LakeHistory, LakeChangelog])
def test_two_drivers_that_both_have_looked(iceberg: Any, lake: str, kind: type[LakeSink]) -> None:
    """The second finds what the first has committed since, and a third with other input is refused."""
    fed_table = Fed(iceberg, f"{lake}.db.{kind.noun}", kind)
    fed_table.writer().apply(fed(elements(ann(1, 5)), 0, "q", "c0"))
    writers = [fed_table.writer() for _ in range(3)]
    batch = fed(elements(ann(1, 5), ann(2, 5)), 1, "q", "c1")
    for writer in writers:
        writer.check(batch)
    for writer in writers[:2]:
        writer.apply(batch)
    with pytest.raises(RecensionError, match="has just committed a micro-batch 1 of other input"):
        writers[2].apply(fed(elements(ann(1, 5), ann(2, 5)), 1, "q", "other"))
    assert fed_table.rows() == {(1, 5, "a"): 2, (2, 5, "a"): 1}
    assert fed_table.batches() == [1, 0]


@pytest.mark.parametrize("kind", [LakeHistory, LakeChangelog])
def test_a_commit_of_somebody_else_between_staging_and_publishing(
    iceberg: Any, lake: str, kind: type[LakeSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    fed_table = Fed(iceberg, f"{lake}.db.{kind.noun}", kind)
    writer, publish = fed_table.writer(), IcebergTable._publish
    writer.apply(fed(elements(ann(1, 5), ann(1, 5)), 0, "q", "c0"))
    empty_rows = iceberg.table(fed_table.table.sql).where("false")

    def after_another(table: IcebergTable, spark: Any, snapshot: int) -> None:
        monkeypatch.setattr(IcebergTable, "_publish", publish)
        empty_rows.writeTo(table.sql).append()
        publish(table, spark, snapshot)

    monkeypatch.setattr(IcebergTable, "_publish", after_another)
    given = elements(ends(1, 5, 4)) if kind is LakeHistory else elements(ann(7, 9))
    writer.apply(fed(given, 1, "q", "c1"))
    changed = (1, 4, "a") if kind is LakeHistory else (7, 9, "a")
    assert fed_table.rows()[changed] == 1
    assert fed_table.batches() == [1, None, 0]
    fed_table.writer().apply(fed(given, 1, "q", "c1"))
    assert fed_table.rows()[changed] == 1


def test_a_death_between_staging_and_publishing(
    iceberg: Any, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged is never seen, and is made anew."""
    fed_table = Fed(iceberg, f"{lake}.db.t")
    batches = [fed(elements(ann(1, 5)), 0, "q", "c0"), fed(elements(ends(1, 5, 3), ann(2, 9)), 1, "q", "c1")]

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for batch in batches:
        with monkeypatch.context() as patched:
            patched.setattr(IcebergTable, "_publish", die)
            before = fed_table.rows() if batch.number else None
            with pytest.raises(KeyboardInterrupt):
                fed_table.writer().apply(batch)
            assert before is None or fed_table.rows() == before
        fed_table.writer().apply(batch)
    assert fed_table.rows() == {(1, 3, "a"): 1, (2, 9, "a"): 1}
    staged = iceberg.sql(f"SELECT count(*) AS n FROM {fed_table.table.sql}.snapshots").first()
    assert staged["n"] == 4


def test_appended_rows_are_a_source(iceberg: Any, lake: str, tmp_path: Path) -> None:
    """A changelog by the name of its table."""
    log = Fed(iceberg, f"{lake}.db.log", LakeChangelog)
    writer = log.writer()
    writer.apply(fed(elements(ann(1, 5), ann(2, 5)), 0, "q", "c0"))
    writer.apply(fed(elements(ends(1, 5, 3), rc.Cti(20)), 1, "q", "c1"))
    query = rc.source("s", NAMES).agg(n=rc.count())
    found = rc.spark.stream(iceberg, query, {"s": log.address}, shards=1)
    finished(rc.spark.write(found, history=tmp_path / "out", checkpoint=tmp_path / "ck", trigger=NOW))
    rows = rc.spark.read_history(iceberg, tmp_path / "out").orderBy("_vs").collect()
    assert [tuple(row) for row in rows] == [(1, 2, 1), (2, 3, 2), (3, 5, 1)]


def test_changes_of_a_table_by_key(iceberg: Any, lake: str) -> None:
    table = f"{lake}.db.orders"
    iceberg.sql(f"CREATE TABLE {table} (id bigint, state string) USING iceberg")
    iceberg.sql(f"INSERT INTO {table} VALUES (1, 'new'), (2, 'new'), (3, 'new')")
    (first,) = (row["snapshot_id"] for row in iceberg.table(f"{table}.snapshots").collect())
    iceberg.sql(f"UPDATE {table} SET state = 'paid' WHERE id = 1")
    iceberg.sql(f"DELETE FROM {table} WHERE id = 2")
    orders = rc.delta_changes("orders", {"id": "int64", "state": "string"}, key="id")
    changes = orders.rows(rc.spark.read_changes(iceberg, table))
    rows = rc.spark.batch(iceberg, orders.stream, {"orders": changes}).collect()
    now = {(row["id"], row["state"]) for row in rows if row["_ve"] is None}
    assert now == {(1, "paid"), (3, "new")}
    assert {(row["id"], row["state"]) for row in rows} - now == {(1, "new"), (2, "new")}
    later = rc.spark.read_changes(iceberg, table, since=first).collect()
    assert sorted((row["id"], row["_change_type"]) for row in later) == [
        (1, "delete"),
        (1, "insert"),
        (2, "delete"),
    ]
    with pytest.raises(RecensionError, match="not the name of a table in an Iceberg catalog"):
        rc.spark.read_changes(iceberg, "/tmp/orders")


def test_refused(iceberg: Any, lake: str) -> None:
    iceberg.conf.set("spark.sql.catalog.nowhere", "org.apache.iceberg.nothing.Catalog")
    found = lake_table(iceberg, "nowhere.db.t")
    assert found is not None
    with pytest.raises(
        RecensionError, match=r"^nowhere.db.t: the session cannot write Iceberg: make it with"
    ):
        found.require_session(iceberg)
    small = iceberg.createDataFrame([], "k smallint").schema
    with pytest.raises(SchemaError, match="column k is smallint, which Iceberg lacks"):
        IcebergTable(f"{lake}.db.t", f"{lake}.db.t").create(iceberg, small, {})
