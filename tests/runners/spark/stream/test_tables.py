"""Tables without times beside streaming DataFrames: the answer of the local engine, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.core.formats import write_stream
from recension.gate.files import read_history
from recension.runners.spark.stream import tables
from recension.testing import assert_equivalent

jobs = rc.source("jobs", {"k": "string", "v": "int64"})
sites = rc.table("sites", {"k": "string", "country": "string"})
query = (
    jobs.join(sites, on="k", how="left")
    .group_by("country")
    .agg(n=rc.count(), v=rc.sum("v"), speculate="eager")
)
COUNTRIES = [("a", "CH"), ("b", "UK"), ("b", "IE")]
WORK: list[list[Element]] = [
    [rc.Insert({"k": "a", "v": 1}, 1, 5), rc.Insert({"k": "b", "v": 2}, 2, 9), rc.Cti(2)],
    [rc.Insert({"k": "c", "v": 4}, 3, 6), rc.Retract({"k": "b", "v": 2}, 2, 9, 4), rc.Cti(rc.FOREVER)],
]


def feed(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    write_stream(folder / f"{number}.parquet", [from_elements(WORK[number], jobs.schema)], jobs.schema)


def run(spark: Any, folder: Path, table: Any, place: Path, asked: Any = query) -> None:
    output = rc.spark.stream(spark, asked, {"jobs": folder, "sites": table}, shards=2)
    started = rc.spark.write(
        output, history=place / "history", checkpoint=place / "checkpoint", trigger={"availableNow": True}
    )
    started.awaitTermination()


def test_a_static_frame_is_read_once_and_must_stay_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One run sends the rows with the query, the other as a file.
    monkeypatch.setattr(tables, "FEW_BYTES", 0)
    table = spark.createDataFrame(COUNTRIES, "k string, country string")
    expected = rc.run(
        query,
        {
            "jobs": [e for part in WORK for e in part],
            "sites": pa.table(dict(zip(("k", "country"), zip(*COUNTRIES, strict=True), strict=True))),
        },
    )
    feed(tmp_path / "jobs", 0)
    run(spark, tmp_path / "jobs", table, tmp_path)
    other = spark.createDataFrame([("a", "FR")], "k string, country string")
    with pytest.raises(rc.RecensionError, match="the table 'sites' has other rows"):
        run(spark, tmp_path / "jobs", other, tmp_path)
    feed(tmp_path / "jobs", 1)
    monkeypatch.undo()
    run(spark, tmp_path / "jobs", table.orderBy("country"), tmp_path)
    assert_equivalent(read_history(tmp_path / "history"), expected.history())
    frame = spark.createDataFrame(_history(), "_vs long, _ve long, k string, v long")
    batch = rc.spark.batch(spark, query, {"jobs": frame, "sites": table})
    assert_equivalent(rc.History.from_arrow(batch.toArrow()), expected.history())


def _history() -> list[tuple[Any, ...]]:
    found = rc.run(jobs, {"jobs": [e for part in WORK for e in part]}).history()
    return [(e.vs, e.ve, e.payload["k"], e.payload["v"]) for e in found.to_events()]


def test_versions_of_a_table_are_those_of_a_session_after_a_restart_too(spark: Any, tmp_path: Path) -> None:
    again = rc.table("sites", sites.schema, refresh="10m")
    asked = jobs.join(again, on="k", how="left").group_by("country").agg(n=rc.count(), v=rc.sum("v"))
    live = rc.session(asked)
    for number, rows in enumerate([COUNTRIES, [("a", "FR"), ("b", "IE"), ("c", "UK")]]):
        version = spark.createDataFrame(rows, "k string, country string")
        assert rc.spark.write_version(again, tmp_path / "sites", version) is not None
        feed(tmp_path / "jobs", number)
        run(spark, tmp_path / "jobs", tmp_path / "sites", tmp_path, asked)
        live.push("sites", version.toArrow())
        live.push("jobs", WORK[number])
        assert_equivalent(read_history(tmp_path / "history"), live.history())
    assert len({event.payload["country"] for event in live.history().to_events()}) > 2


def test_refusals(spark: Any, tmp_path: Path) -> None:
    feed(tmp_path / "jobs", 0)
    table = spark.createDataFrame(COUNTRIES, "k string, country string")
    again = jobs.join(rc.table("sites", sites.schema, refresh="10m"), on="k")
    timed = table.selectExpr("*", "1L as _vs")
    refused: list[tuple[Any, Any, str]] = [
        (again, table, r"a folder of versions, not a DataFrame: rc\.spark\.write_version"),
        (again, tmp_path, "has none"),
        (query, timed, "rows without times"),
        (query, table.select("k"), "no column country"),
        (
            query,
            spark.readStream.schema("k string, country string").json(str(tmp_path)),
            "streaming DataFrame",
        ),
        (query, 5, "a batch DataFrame or a path, not a int"),
    ]
    for asked, given, message in refused:
        with pytest.raises(rc.RecensionError, match=message):
            rc.spark.stream(spark, asked, {"jobs": tmp_path / "jobs", "sites": given})
    with pytest.raises(rc.RecensionError, match="only tables are there"):
        rc.spark.stream(spark, sites, {"sites": table})
