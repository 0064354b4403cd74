"""What tasks mark for the clocks of other shards, and what a shard makes of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.errors import RecensionError
from recension.core.events import Element
from recension.core.formats.encode import stream_rows, stream_schema
from recension.gate.files import open_stream
from recension.gate.open_close import GONE
from recension.runners.exchange.packets import Packet
from recension.runners.spark.stream import processor
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Inlet, topology
from recension.testing.model import StreamModel

SCHEMA = {"k": "int64"}
S = rc.source("s", SCHEMA)


def _marks(query: rc.Stream, starts: list[int]) -> list[int]:
    """The times that are marked when events start then."""
    plan = topology([query.plan], 3, {"s": Inlet()})
    elements: list[Element] = [rc.Insert({"k": k}, start, 100) for k, start in enumerate(starts)]
    batch = from_elements(elements, S.schema)
    packets = list(Packing(plan, "s", 1).packets(stream_rows(batch, stream_schema(batch.schema, pa.int64()))))
    assert [packet.shard for packet in packets] == [0, 1, 2]
    assert len({packet.marks for packet in packets}) == 1
    assert packets[0].marks is not None
    marks: list[int] = next(iter(pa.ipc.open_stream(packets[0].marks))).column("time").to_pylist()
    return marks


def test_only_what_makes_a_row_late_is_marked_and_the_last() -> None:
    assert _marks(S.advance_time(2), list(range(50))) == [49]
    assert _marks(S.advance_time(2), [3, 9, 4, 7, 12, 11]) == [9, 12]
    assert _marks(S.advance_time(2, every=10), [3, 13, 14, 9, 25, 26]) == [13, 25]
    assert _marks(S.where(rc.col("k") != 1).advance_time(2), [3, 9, 4, 7, 12, 11]) == [12]
    assert _marks(S.align(2), [3, 9, 4, 7, 12, 11]) == [12]
    inserts = rc.source("s", SCHEMA, properties=rc.Properties(is_insert_only=True))
    assert _marks(inserts.advance_time(2, events=4), [3, 9, 4]) == [3, 9, 4]


def test_opens_and_closes() -> None:
    """A close of an event that is forgotten comes to nothing: the rows after it are still judged rightly."""
    processor._parked.clear()
    rng = np.random.default_rng(3)
    query = S.advance_time(4)
    for shards in (2, 3):
        rehearsal, local = Rehearsal([query.plan], shards), rc.session(query)
        for turn in range(0, 60, 10):
            kinds = ["open" if i < 6 else "close" for i in range(12)]
            starts = [int(t) for t in turn + rng.integers(0, 14, 6)]
            ends = [t + int(n) for t, n in zip(starts, rng.integers(1, 9, 6), strict=True)]
            opens, closes = {"_vs": [*starts, *[None] * 6]}, {"_ve": [*[None] * 6, *ends]}
            keys = [turn + i % 6 for i in range(11)] + [max(0, turn - 20)]
            rows = pa.table({"_kind": kinds, **opens, **closes, "k": keys}).to_batches()[0]
            rows = rows.slice(0, 12 if turn >= 40 else 11)
            plan, flowing = rehearsal.plan, list[Packet]()
            packing = Packing(plan, "s", 1)
            flowing += [*packing.packets(rows), *packing.end_of_task_packets()]
            shown = rehearsal.output(rehearsal._level(1, flowing)).to_elements()
            local.push("s", pa.Table.from_batches([rows]))
            assert sorted(map(str, shown)) == sorted(map(str, local.read().elements()))
        assert local.counts()["s"][GONE] > 0


def test_an_external_cti_that_no_shard_could_verify_is_refused() -> None:
    query = S.where(rc.col("k") > 0).finalize()
    counted = from_elements([rc.ExternalCti(0, 5, 1)], S.schema)
    rows = stream_rows(counted, stream_schema(counted.schema, pa.int64()))
    with pytest.raises(
        RecensionError, match=r"counts the elements of all shards: declare .*external_ctis=True"
    ):
        list(Packing(topology([query.plan], 2, {"s": Inlet()}), "s", 1).packets(rows))
    for plan in (
        topology([query.plan], 1, {"s": Inlet()}),
        topology([S.plan], 2, {"s": Inlet()}),
        topology([rc.source("s", SCHEMA, external_ctis=True).finalize().plan], 2, {"s": Inlet()}),
    ):
        assert list(Packing(plan, "s", 1).packets(rows))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_on_spark(spark: Any, tmp_path: Path, kind: str) -> None:
    """Files that tasks read and send, and files that each shard reads for itself."""
    s = rc.source("s", SCHEMA, start="t")
    query = s.advance_time(3).align(4)
    rng, local, expected = np.random.default_rng(5), rc.session(query), StreamModel()
    (tmp_path / "in").mkdir()
    for number in range(3):
        starts = 20 * number + rng.permutation(24)
        rows = pa.table({"t": starts, "k": rng.integers(0, 9, 24)})
        local.push("s", rows)
        for element in local.read().elements():
            expected.take(element)
        file = tmp_path / "in" / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(rows, file)
        else:
            rows.to_pandas().to_json(file, orient="records", lines=True)
        os.utime(file, (number, number))  # Spark takes the older first
    answers = rc.spark.stream(spark, query, {"s": str(tmp_path / "in")}, shards=2, files_per_batch=1)
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    rc.spark.write_changelog(answers, tmp_path / "log", **where).awaitTermination()
    shown = StreamModel()
    for batch in open_stream(tmp_path / "log"):
        for element in batch.to_elements():
            assert (fault := shown.fault(element)) is None, f"{element} {fault}"
            shown.take(element)
    assert shown.events() == expected.events()
    assert len(expected.events()) < 72
