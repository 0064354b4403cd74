"""Tables that are read again in a pipeline, with workers that forget and attempts that fail."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.runners.spark.stream.rehearsal import Arriving, Rehearsal

import recension as rc
from recension.core.batch import concat, from_elements
from recension.core.events import Element
from recension.core.reconstitution import reconstitute
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.topology import require_refreshable
from recension.testing import assert_equivalent

jobs = rc.source("jobs", {"k": "string", "v": "int64"})
more = rc.source("more", {"k": "string", "w": "int64"})
sites = rc.table("sites", {"k": "string", "country": "string"}, refresh="10m")
QUERIES = {
    "joined": jobs.join(sites, on="k"),
    "outer": jobs.join(sites, on="k", how="left"),
    "two streams": jobs.join(more, on="k").join(sites, on="k"),
    "counted by another key": jobs.join(sites, on="k").group_by("country").agg(n=rc.count()),
    "without a key": jobs.join(sites.rename({"k": "site"}), where=rc.col("k") == rc.col("site")),
}


def version(*rows: tuple[str, str]) -> pa.Table:
    names = ("k", "country")
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}, sites.schema)


# What comes in each micro-batch: a version of the table, and elements of the two streams.
TURNS: list[tuple[pa.Table | None, list[Element], list[Element]]] = [
    (
        version(("a", "CH"), ("b", "UK"), ("b", "UK")),
        [*(rc.Insert({"k": k, "v": 1}, 1, 30) for k in "abcd"), rc.Cti(3)],
        [*(rc.Insert({"k": k, "w": 1}, 0, 20) for k in "abcd"), rc.Cti(9)],
    ),
    (version(("b", "UK"), ("c", "FR")), [rc.Insert({"k": "a", "v": 2}, 3, 6), rc.Cti(5)], []),
    (None, [rc.Retract({"k": "a", "v": 1}, 1, 30, 7), rc.Cti(7)], []),
    (version(("a", "CH"), ("c", "FR"), ("d", "IE")), [], []),
    (version(), [rc.Cti(12)], [rc.Cti(15)]),
    (version(("b", "DE")), [rc.Cti(rc.FOREVER)], [rc.Cti(rc.FOREVER)]),
]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_shards_agree_on_what_a_version_holds_from(name: str, shards: int, tmp_path: Path) -> None:
    query = QUERIES[name]
    rehearsal, live = Rehearsal([query.plan], shards), rc.session(query)
    require_refreshable(rehearsal.plan)
    streams = {source: {"jobs": jobs, "more": more}[source] for source in live.sources if source != "sites"}
    processor._parked.clear()
    given = []
    for number, (table, *came) in enumerate(TURNS):
        arriving: dict[str, list[Arriving]] = {}
        if table is not None:
            path = rc.spark.write_version(sites, tmp_path, table)
            assert path is not None
            arriving["sites"] = [path]
            live.push("sites", table)
        for source, elements in zip(("jobs", "more"), came, strict=True):
            if source in streams and elements:
                arriving[source] = [from_elements(elements, streams[source].schema)]
                live.push(source, elements)
        if number % 2:
            rehearsal.turn(arriving, fails=True)
        if number % 3 == 2:
            processor._parked.clear()
        given.append(rehearsal.output(rehearsal.turn(arriving)))
        assert_equivalent(reconstitute(given, query.schema), live.history())
    elements = list(concat(given).to_elements())
    assert elements[-1] == rc.Cti(rc.FOREVER)
    # The streams have ended: no version changes anything any more.
    last = rc.spark.write_version(sites, tmp_path, version(("a", "PT")))
    assert last is not None
    assert not len(rehearsal.output(rehearsal.turn({"sites": [last]})))


def test_of_versions_that_come_together_the_last_counts_and_none_comes_twice(tmp_path: Path) -> None:
    processor._parked.clear()
    rehearsal = Rehearsal([QUERIES["joined"].plan], 2)
    paths: list[Any] = [rc.spark.write_version(sites, tmp_path, version(("a", c))) for c in ("CH", "UK")]
    work = from_elements([rc.Insert({"k": "a", "v": 1}, 1, 5), rc.Cti(2)], jobs.schema)
    came: dict[str, Any] = {"sites": paths, "jobs": [work]}
    out = [str(e) for e in rehearsal.output(rehearsal.turn(came)).to_elements()]
    assert out == ["insert [1, 5) {'k': 'a', 'v': 1, 'country': 'UK'}", "cti 2"]
    with pytest.raises(rc.RecensionError, match="in that order"):
        rehearsal.turn({"sites": paths[:1]})


def test_refusals() -> None:
    other = sites.rename({"k": "l"})
    crossed = jobs.join(other, where=rc.col("k") < rc.col("l"))
    held = jobs.group_by("k").sessions(5).agg(n=rc.count())
    refused: list[tuple[Any, str]] = [
        (jobs.join(sites, on="k").union(crossed.select("k", "v", "country")), "declare a table"),
        (jobs.join(sites, on="k").rename({"k": "j", "country": "k"}).join(more, on="k"), "in one stage"),
        (held.join(sites, on="k"), "shards=1"),
    ]
    for query, message in refused:
        with pytest.raises(rc.RecensionError, match=message):
            require_refreshable(Rehearsal([query.plan], 2).plan)


def test_a_version_is_written_if_the_rows_differ(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    first = rc.spark.write_version(sites, folder, pd.DataFrame({"country": ["CH", "UK"], "k": ["a", "b"]}))
    assert first == folder / "version-000000000001.parquet"
    assert rc.spark.write_version(sites, folder, version(("b", "UK"), ("a", "CH"))) is None
    assert rc.spark.write_version(sites, folder, version(("b", "UK"), ("b", "UK"))) is not None
    with pytest.raises(rc.RecensionError, match="no column country"):
        rc.spark.write_version(sites, folder, pa.table({"k": ["a"]}))
    with pytest.raises(rc.RecensionError, match="rows without times"):
        rc.spark.write_version(sites, folder, pa.table({"k": ["a"], "country": ["CH"], "_vs": [1]}))
    with pytest.raises(rc.RecensionError, match="read again is needed"):
        rc.spark.write_version(jobs, folder, version())
    (folder / "z.parquet").write_bytes((folder / "version-000000000001.parquet").read_bytes())
    with pytest.raises(rc.RecensionError, match="its versions alone"):
        rc.spark.write_version(sites, folder, version())


def test_a_table_is_read_again_as_long_as_the_query_runs(tmp_path: Path) -> None:
    often = rc.table("sites", sites.schema, refresh="10ms")
    query: Any = SimpleNamespace(isActive=True)
    readings: list[Any] = [version(("a", "CH")), version(("a", "CH")), OSError("gone"), version()]

    def read() -> pa.Table:
        found = readings.pop(0) if len(readings) > 1 else readings[0]
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(rc.RecensionError, match="give a function that reads"):
        rc.spark.refresh(query, often, tmp_path, version())
    refresher = rc.spark.refresh(query, often, tmp_path, read)
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("version-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    query.isActive = False
    while refresher.is_active and time.monotonic() < until:
        time.sleep(0.01)
    assert not refresher.is_active
    refresher.stop()
    assert sorted(path.name for path in tmp_path.glob("version-*")) == [
        "version-000000000001.parquet",
        "version-000000000002.parquet",
    ]
