"""Every micro-batch of a pipeline is run twice, and everything that it writes is compared.

The second time each is planned as the log of offsets says, like after a kill: with other Python workers of
another hash seed, Arrow batches of another size, and tasks that end in another order. Of the state
(what Spark's state store logs of it) and of our own tables, names and bytes are the same. Delta and Iceberg
name their own files and snapshots: there it is the rows, their ordinals and the notes of all commits. Of a
recording it is all but how long steps took.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.runners.spark.lake import killed
from tests.runners.spark.sinks.again import digests
from tests.runners.spark.sinks.feeding import assert_same, read, revised
from tests.runners.spark.stream import driver

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import concat
from recension.runners.recording_files import MANIFEST, SUM
from recension.runners.spark.lake.places import lake_table

pytestmark = pytest.mark.slow
OTHERWISE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "13",
    "spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "7",
    "spark.sql.files.maxPartitionBytes": "3000",
}
SEED = "PYTHONHASHSEED"


class Delay:
    """For ``map``: while a file is there, the task that has the first key ends last."""

    def __init__(self, folder: Path) -> None:
        self._order = str(folder / "wait")

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if Path(self._order).exists() and 0 in rows.column("n").to_pylist():
            time.sleep(0.5)
        return rows


class Twice:
    """A pipeline that writes into folders of two names."""

    def __init__(self, spark: Any, folder: Path, sink: str, files: int) -> None:
        self.spark, self.folder, self.sink = spark, folder, sink
        self.batches = revised(7, 2 * files, 700)

    def query(self) -> Stream:
        answers = driver.query()
        return answers.map(Delay(self.folder), answers.schema, per_row=False)

    def addresses(self, name: str) -> dict[str, Any]:
        if self.sink == "own":
            place = self.folder / name
            return {"changelog": place / "log", "history": place / "table", "record": place / "recording"}
        if self.sink == "delta":
            return {t: f"delta:{self.folder}/{name}/{t}" for t in ("changelog", "history")}
        return {t: f"killed.{name}.{t}" for t in ("changelog", "history")}

    def run(self, name: str, number: int) -> None:
        """One micro-batch; its files are the last two that are there."""
        for file in (2 * number, 2 * number + 1):
            if not (self.folder / "in" / f"{file:04}.parquet").exists():
                driver.put(self.folder / "in", file, self.batches[file])
        schema = self.spark.read.parquet(str(self.folder / "in")).schema
        frame = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        rows = rc.spark.stream(
            self.spark, self.query(), {"s": frame.parquet(str(self.folder / "in"))}, shards=2
        )
        recorded: dict[str, Any] = {"record_edges": "all"} if self.sink == "own" else {}
        rc.spark.write(
            rows,
            **self.addresses(name),
            **recorded,
            checkpoint=self.folder / name / "ck",
            trigger={"availableNow": True},
        ).awaitTermination()

    def plan_again(self, number: int) -> None:
        """The checkpoint of the second run says that a micro-batch was planned as in the first."""
        one, two = (self.folder / name / "ck" for name in ("one", "two"))
        planned = [one / "metadata", one / "offsets" / str(number), *one.glob(f"sources/*/{number}")]
        for file in planned:
            (two / file.relative_to(one)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, two / file.relative_to(one))

    def written(self, name: str) -> Any:
        """All that is in the state and in the tables, in a form that can be compared."""
        state = digests(self.folder / name / "ck" / "state")
        logged = {file: digest for file, digest in state.items() if file.endswith(".changelog")}
        assert logged
        return {"state": logged} | self._tables(name)

    def _tables(self, name: str) -> dict[str, Any]:
        if self.sink == "own":
            found = {table: digests(self.folder / name / table) for table in ("log", "table", "recording")}
            manifest = json.loads((self.folder / name / "recording" / MANIFEST).read_text())
            manifest.pop(SUM)  # of the seconds too
            found["recording"][MANIFEST] = json.dumps(_without_seconds(manifest))
            return found
        return {table: self._commits(address) for table, address in self.addresses(name).items()}

    def _commits(self, address: str) -> list[Any]:
        table = lake_table(self.spark, address)
        assert table is not None
        return [
            (commit.note, sorted(map(str, table.read(self.spark, commit.version).collect())))
            for commit in table.commits(self.spark)
            if commit.note is not None
        ]


def _without_seconds(stored: Any) -> Any:
    """Without how long steps took, and the digest of a manifest that has it."""
    if isinstance(stored, dict):
        return {
            name: _without_seconds(value) for name, value in stored.items() if name not in ("seconds", "sum")
        }
    return [_without_seconds(value) for value in stored] if isinstance(stored, list) else stored


@pytest.mark.parametrize(("sink", "files"), [("own", 3), ("delta", 2), ("iceberg", 2)])
def test_everything_that_a_micro_batch_writes_is_the_same_again(
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path, sink: str, files: int
) -> None:
    if sink != "own":
        killed.with_catalog(request.getfixturevalue(sink), tmp_path)
    twice = Twice(spark, tmp_path, sink, files)
    for number in range(files):
        twice.run("one", number)
    shutil.move(tmp_path / "in", tmp_path / "there")
    environment = spark.sparkContext.environment
    before = environment.get(SEED), {name: spark.conf.get(name, None) for name in OTHERWISE}
    (tmp_path / "wait").touch()
    try:
        environment[SEED] = "12"
        for name, value in OTHERWISE.items():
            spark.conf.set(name, value)
        for number in range(files):
            twice.plan_again(number)
            twice.run("two", number)
    finally:
        for name, value in before[1].items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
        environment[SEED] = before[0] or "0"
    one, two = twice.written("one"), twice.written("two")
    for table in one:
        assert one[table] == two[table]
    if sink == "own":
        expected = rc.run(driver.query(), {"s": concat(twice.batches)}).history()
        assert_same(read(tmp_path / "two" / "table"), expected)
