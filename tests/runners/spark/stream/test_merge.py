"""`rc.spark.merge` on real files: streams that join and leave a root, DataFrames, and the way back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.sinks import feeding
from tests.runners.spark.stream import replica

import recension as rc
from recension.core.batch import concat, from_elements
from recension.core.errors import FormatError, RecensionError, SchemaError
from recension.core.events import Element
from recension.core.history import History
from recension.runners.spark.stream import feedback
from recension.runners.spark.stream.inputs import columns_of_streams
from recension.runners.spark.stream.membership import RootPacker, read_message
from recension.testing.generator.settings import SCHEMA as GENERATED

SCHEMA = pa.schema([("p", pa.string())])
X, Y = {"p": "x"}, {"p": "y"}
KEYED = rc.Properties(has_key=True)
NOW = {"availableNow": True}


def put(root: Path, name: str, number: int, *elements: Element) -> None:
    """A file of a stream as several tasks would number its rows: in no order of their own."""
    place = root / name
    place.mkdir(parents=True, exist_ok=True)
    partial = place / f".{number}"
    pq.write_table(feeding.rows_of(from_elements(list(elements), SCHEMA), number), partial)
    os.replace(partial, place / f"part-{number:012}.parquet")


def run(merged: Any, folder: Path) -> Any:
    where: dict[str, Any] = {"changelog": folder / "log", "history": folder / "table"}
    query = rc.spark.write(merged, **where, checkpoint=folder / "ck", trigger=NOW)
    query.awaitTermination()
    return rc.spark.metrics(query)


def said(spark: Any, folder: Path) -> list[tuple[Any, ...]]:
    rows = rc.spark.read_changelog(spark, folder / "log").orderBy("_batch", "_seq").collect()
    return [(row["_batch"], row["_kind"], row["_vs"], row["_ve"], row["_new_ve"], row["p"]) for row in rows]


def test_streams_join_and_leave_a_root(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "a", 0, rc.Insert(X, 1, 5), rc.Retract(X, 1, 5, 4), rc.Insert(Y, 2, 9), rc.Cti(3))
    rc.spark.attach(root, "b", from_time=6)
    put(root, "b", 0, rc.Insert(Y, 2, 9), rc.Insert(Y, 7, 9), rc.Cti(8))

    def merged() -> Any:
        return rc.spark.merge(spark, root=root, shards=2, properties=KEYED, feedback=True)

    assert run(merged(), tmp_path).inputs == {"a": "joined", "b": "joining"}
    first = [(0, "insert", 1, 4, None, "x"), (0, "insert", 2, 9, None, "y"), (0, "insert", 7, 9, None, "y")]
    assert sorted(said(spark, tmp_path)[:-1]) == first
    assert said(spark, tmp_path)[-1] == (0, "cti", 3, None, None, None)
    # Here the query is started again, and goes on with those who have come.
    put(root, "a", 1, rc.Cti(6))
    rc.spark.detach(root, "a")
    found = run(merged(), tmp_path)
    assert found.inputs == {"a": "leaving", "b": "joined"}
    assert [operator.name for operator in found.operators][-2:] == ["b", "a"]  # b was announced first
    assert said(spark, tmp_path)[4:] == [(1, "cti", 8, None, None, None)]
    assert sorted(file.name for file in (root / "_feedback").iterdir()) == ["3.json", "8.json"]


def test_frames_of_replicas_and_what_they_are_told(spark: Any, tmp_path: Path) -> None:
    """Two changelogs merged; a third replica, which lags, then hears what is settled and skips it."""
    tellings = [concat(parts) for parts in replica.feeds(2, 400).values()]
    for name, telling in zip(("one", "two"), tellings, strict=False):
        (tmp_path / name).mkdir()
        pq.write_table(feeding.rows_of(telling, 0), tmp_path / name / "part-0.parquet")
    schema = spark.read.parquet(str(tmp_path / "one")).schema
    frames = [spark.readStream.schema(schema).parquet(str(tmp_path / name)) for name in ("one", "two")]
    told = tmp_path / "told"
    run(rc.spark.merge(spark, frames, shards=2, feedback=told), tmp_path)
    history = rc.run(rc.source("s", GENERATED), {"s": tellings[0]}).history()
    feeding.assert_same(feeding.read(tmp_path / "table"), history)
    assert not told.exists(), "at the end of time there is nobody to spare"

    t = int(history.ve[history.ve < rc.FOREVER].max()) // 2
    feedback.publish_feedback(told, t)
    insert_only = rc.source("s", GENERATED, properties=rc.Properties(is_insert_only=True))
    replica.put(tmp_path, "late", 0, _inserts(history))
    late = rc.spark.stream(
        spark,
        insert_only.where(rc.col("value") >= 0),
        {"s": tmp_path / "feeds/late"},
        shards=2,
        feedback=told,
    )
    found = run(late, tmp_path / "late")
    wanted = history.filter(history.ve >= t)
    assert 0 < len(wanted) < len(history)
    feeding.assert_same(feeding.read(tmp_path / "late" / "table"), wanted)
    assert sum(operator.skipped for operator in found.operators) == len(history) - len(wanted)


def _inserts(history: History) -> Any:
    return from_elements([rc.Insert(e.payload, e.vs, e.ve) for e in history.to_events()], GENERATED)


def test_what_cannot_be_merged(spark: Any, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("'insert' _kind", "value _vs", "value v")
    other = frame.withColumnRenamed("v", "w")
    with pytest.raises(RecensionError, match="either streaming DataFrames or root"):
        rc.spark.merge(spark)
    with pytest.raises(SchemaError, match="nothing to merge"):
        rc.spark.merge(spark, [])
    with pytest.raises(SchemaError, match=r"input 2 has the columns \['w'\], the first \['v'\]"):
        rc.spark.merge(spark, [frame, other])
    with pytest.raises(RecensionError, match="say where the inputs' queries look for feedback"):
        rc.spark.merge(spark, [frame], feedback=True)
    with pytest.raises(RecensionError, match="input 1: rows of a stream with _kind need an order"):
        rc.spark.merge(spark, [frame])
    with pytest.raises(RecensionError, match="no stream is there yet whose columns could be seen"):
        rc.spark.merge(spark, root=tmp_path / "nothing")
    with pytest.raises(RecensionError, match="not the name of a sub-folder"):
        rc.spark.attach(tmp_path, "a/b", 3)


def test_what_the_small_files_say(tmp_path: Path) -> None:
    rc.spark.attach(tmp_path, "b", "1970-01-01T00:00:01")
    assert json.loads((tmp_path / "b.join").read_text()) == {"from_time": 1_000_000}
    assert json.loads(read_message(tmp_path / "b.join")) == {"joins": "b", "since": 1_000_000}
    rc.spark.detach(tmp_path, "b")
    assert json.loads(read_message(tmp_path / "b.leave"))["leaves"] == "b"
    (tmp_path / "c.join").write_text('{"from_time": "soon"}')
    with pytest.raises(FormatError, match="it must hold"):
        read_message(tmp_path / "c.join")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(FormatError, match=r"neither in a stream's folder nor called NAME\.join"):
        read_message(tmp_path / "notes.txt")


def test_files_that_may_not_count_are_refused(tmp_path: Path) -> None:
    packer = RootPacker.__new__(RootPacker)
    packer._root = tmp_path
    (tmp_path / "a" / "_spark_metadata").mkdir(parents=True)

    def refused(file: Path) -> str:
        row = pa.RecordBatch.from_pylist([{"path": file.as_uri()}])
        with pytest.raises(FormatError) as told:
            list(packer.packets(None, [row]))  # type: ignore[arg-type]
        return str(told.value)

    assert "write it with rc.spark.write_changelog" in refused(tmp_path / "a" / "part-0.parquet")
    assert "a folder inside a stream's folder" in refused(tmp_path / "b" / "c" / "part-0.parquet")


def test_the_columns_of_a_root(tmp_path: Path) -> None:
    put(tmp_path, "a", 0, rc.Cti(3))
    put(tmp_path, "_feedback", 0, rc.Cti(3))
    (tmp_path / "empty").mkdir()
    rc.spark.detach(tmp_path, "a")
    assert columns_of_streams(tmp_path) == (SCHEMA, pa.int64())
