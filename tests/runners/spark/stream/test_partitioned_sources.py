"""Sources with partitions on real Spark: as the local engine, over a restart, and by the clock of Spark."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import recension as rc
from recension.api.stream import Stream
from recension.core.batch import from_elements
from recension.core.events import Cti, Element, Insert, Retract
from recension.core.formats.encode import stream_rows, stream_schema
from recension.gate.files import open_stream
from recension.testing import assert_equivalent
from recension.testing.model import StreamModel

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def _partition(random: Random, number: int, speed: int) -> list[Element]:
    """A valid stream: rows in disorder, corrections, CTIs that lag behind."""
    elements: list[Element] = []
    alive: list[Insert] = []
    frontier = 0
    for step in range(80):
        start = max(frontier, step * speed + random.randint(-4, 4))
        event = Insert(
            {"k": random.randint(0, 5), "v": 100 * number + step}, start, start + random.randint(1, 30)
        )
        alive.append(event)
        elements.append(event)
        if random.random() < 0.3:
            old = alive.pop(random.randrange(len(alive)))
            end = random.randint(old.vs, old.ve + 9)
            if end != old.ve and min(end, old.ve) >= frontier:
                elements.append(Retract(old.payload, old.vs, old.ve, end))
        if random.random() < 0.2:
            frontier = max(frontier, (step - 5) * speed)
            elements.append(Cti(frontier))
    return [*elements, Cti(10_000)]


def _turns(random: Random, count: int) -> list[pa.Table]:
    """Micro-batches of four partitions, one of which is far behind until the end; rows in any order."""
    parts = [_partition(random, number, speed) for number, speed in enumerate((1, 2, 5, 9))]
    turns: list[list[tuple[int, int, Element]]] = [[] for _ in range(count)]
    for number, elements in enumerate(parts):
        cuts = sorted(random.randint(0, len(elements)) for _ in range(count - 1))
        cuts = [c // 3 for c in cuts] if number == 3 else cuts
        cuts[0] = max(cuts[0], 1)
        for turn, (i, j) in enumerate(zip([0, *cuts], [*cuts, len(elements)], strict=True)):
            turns[turn] += [(number, offset, elements[offset]) for offset in range(min(i, j), j)]
    return [_to_rows(random.sample(turn, len(turn))) for turn in turns]


def _to_rows(rows: list[tuple[int, int, Element]]) -> pa.Table:
    batch = from_elements([element for _, _, element in rows], SCHEMA)
    table = pa.Table.from_batches([stream_rows(batch, stream_schema(SCHEMA, pa.int64()))])
    table = table.append_column("partition", pa.array([p for p, _, _ in rows], pa.int32()))
    return table.append_column("offset", pa.array([o for _, o, _ in rows], pa.int64()))


def _put(folder: Path, number: int, table: pa.Table) -> None:
    """One file; its name says nothing of when it came."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{(number * 7) % 10}-{number}.parquet"
    pq.write_table(table, file)
    os.utime(file, (1_000_000 + number, 1_000_000 + number))


def _run(spark: Any, query: Stream, given: Any, folder: Path, **how: Any) -> Any:
    answers = rc.spark.stream(spark, query, {"s": given}, shards=2, **how)
    where: dict[str, Any] = {"checkpoint": folder / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write_changelog(answers, folder / "log", **where)
    running.awaitTermination()
    return running


def _read(spark: Any, folder: Path) -> list[list[Element]]:
    """What each micro-batch has put out, CTI last."""
    rows = rc.spark.read_changelog(spark, folder / "log").toArrow()
    batches = sorted(set(rows["_batch"].to_pylist()))
    shown = StreamModel()
    for batch in open_stream(folder / "log"):
        for element in batch.to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    return [
        [Cti(row["_vs"]) for row in rows.to_pylist() if row["_batch"] == number and row["_kind"] == "cti"]
        for number in range(batches[-1] + 1)
    ]


@pytest.mark.slow
def test_partitions_at_different_speeds_over_a_restart(spark: Any, tmp_path: Path) -> None:
    source = rc.source("s", SCHEMA, partition="partition", order="offset", partitions=4)
    query = source.group_by("k").agg(n=rc.count(), top=rc.max("v"), speculate="eager")
    turns, local, expected = _turns(Random(10), 4), rc.session(query), list[list[Element]]()
    for turn in turns:
        local.push("s", turn)
        expected.append([element for element in local.read().elements() if isinstance(element, Cti)])
    for half in (range(2), range(2, 4)):
        for number in half:
            _put(tmp_path / "in", number, turns[number])
        schema = spark.read.parquet(str(tmp_path / "in")).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        # Rows of a partition in several tasks.
        running = _run(spark, query, frame.repartition(3), tmp_path)
    assert _read(spark, tmp_path) == expected
    assert sum(map(len, expected)) == 4
    assert_equivalent(list(open_stream(tmp_path / "log")), local.history())
    (line,) = [one for one in rc.spark.metrics(running).operators if one.partitions]
    assert [(one.name, one.cti) for one in line.partitions] == [(str(n), 10_000) for n in range(4)]


@pytest.mark.slow
def test_a_watermark_by_partition_over_a_folder_and_idleness(spark: Any, tmp_path: Path) -> None:
    """Plain rows in files; the partition that lags holds the watermark until it has been idle for long."""
    source = rc.source(
        "s", {"k": "int64"}, start="t", partition="p", order="o", idle="1s", on_violation="drop"
    )

    def rows(*places: tuple[str, int, int]) -> pa.Table:
        names, order, times = zip(*places, strict=True)
        return pa.table({"t": times, "k": order, "p": names, "o": order})

    _put(tmp_path / "in", 0, rows(("a", 1, 100), ("b", 1, 10), ("a", 2, 90)))
    how: dict[str, Any] = {"watermark": {"s": 5}, "files_per_batch": 1}
    _run(spark, source, str(tmp_path / "in"), tmp_path, **how)
    assert _read(spark, tmp_path) == [[Cti(5)]]
    sleep(1.2)
    # b is idle by the timestamp of this micro-batch, and what it sends after that is late.
    _put(tmp_path / "in", 1, rows(("a", 3, 200)))
    _put(tmp_path / "in", 2, rows(("b", 2, 20), ("b", 3, 300)))
    running = _run(spark, source, str(tmp_path / "in"), tmp_path, **how)
    assert _read(spark, tmp_path)[:2] == [[Cti(5)], [Cti(195)]]
    (line,) = [one for one in rc.spark.metrics(running).operators if one.partitions]
    assert {one.name: dict(one.dropped) for one in line.partitions} == {
        "a": {},
        "b": {"breaks an earlier cti": 1},
    }
    with pytest.raises(rc.RecensionError, match=r"s: the source names its order \(o\).*leave order_by= out"):
        rc.spark.stream(spark, source, {"s": _frame(spark)}, order_by={"s": ["o"]})
    with pytest.raises(rc.SchemaError, match=r"s: no column p.*the DataFrame has t, k, o"):
        rc.spark.stream(spark, source, {"s": _frame(spark).drop("p")})


def _frame(spark: Any) -> Any:
    names = ("t", "k", "p", "o")
    return spark.readStream.format("rate").load().selectExpr(*(f"value AS {name}" for name in names))


@pytest.mark.slow
def test_an_error_names_the_partition_and_the_offset(spark: Any, tmp_path: Path) -> None:
    source = rc.source("s", SCHEMA, partition="partition", order="offset")
    rows: list[tuple[int, int, Element]] = [(3, 16, Cti(9)), (3, 17, Insert({"k": 1, "v": 1}, 5, 20))]
    _put(tmp_path / "in", 0, _to_rows(rows))
    with pytest.raises(StreamingQueryException, match=r"partition 3, offset 17: breaks an earlier cti"):
        _run(spark, source, str(tmp_path / "in"), tmp_path)
