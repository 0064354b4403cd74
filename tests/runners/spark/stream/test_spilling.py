"""A bound on the memory of a shard: the same answers, and metrics that say what lies in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.runners.spark.stream.rehearsal import Rehearsal

import recension as rc
from recension.core.batch import from_elements
from recension.core.memory_pool import MemoryPool
from recension.runners.exchange.packets import METRICS, OUTPUT, Packet
from recension.runners.spark.stream import host, processor

S = rc.source("s", {"k": "int64", "v": "int64"})
QUERY = S.group_by("k").agg(n=rc.count(), v=rc.sum("v"), speculate="eager").where(rc.col("n") > 0)


def _answers(packets: list[Packet]) -> list[Packet]:
    return [packet.seal() for packet in packets if packet.edge == OUTPUT]


def test_shards_spill_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine that stays, one that is loaded, and one that failed."""
    pools: list[MemoryPool | None] = []

    def open_pool(memory: int | None, spill: str | None) -> MemoryPool | None:
        pools.append(None if memory is None else MemoryPool(0, tmp_path, least_piece=1))
        return pools[-1]

    monkeypatch.setattr(host, "open_pool", open_pool)
    given: dict[int | None, list[list[Packet]]] = {}
    for memory in (None, 10**8):
        processor._parked.clear()
        rehearsal = Rehearsal([QUERY.plan], shards=2, memory=memory)
        given[memory] = found = []
        for number in range(6):
            if number == 2:
                processor._parked.clear()
            rows = [rc.Insert({"k": k % 7, "v": k}, number, number + 3) for k in range(40)]
            batch = from_elements([*rows, rc.Cti(number)], S.schema)
            if number == 4:
                rehearsal.turn({"s": [batch]}, fails=True)
            packets = rehearsal.turn({"s": [batch]})
            found.append(_answers(packets))
            reports = [json.loads(packet.info) for packet in packets if packet.edge == METRICS]
            assert sum(report.get("spilled_bytes", 0) > 0 for report in reports) == (2 if memory else 0)
    assert given[None] == given[10**8]


def test_another_bound_is_another_engine(tmp_path: Path) -> None:
    processor._parked.clear()
    for memory in (None, 10**8, 10**9):
        rehearsal = Rehearsal([QUERY.plan], shards=1, memory=memory)
        rehearsal.turn({"s": [from_elements([rc.Cti(1)], S.schema)]})
        assert [parked.host.memory for parked in processor._parked.values()] == [memory]


def test_bad_bounds_are_refused_before_spark_is_asked() -> None:
    for memory, message in [("1MB", "at least 16MB"), ("much", '"512MB" or "2GiB"')]:
        with pytest.raises(rc.RecensionError, match=message):
            rc.spark.stream(None, S, {}, memory=memory)
        with pytest.raises(rc.RecensionError, match=message):
            rc.spark.merge(None, {}, memory=memory)


@pytest.mark.slow
def test_a_query_with_more_state_than_memory(spark: Any, tmp_path: Path) -> None:
    draw, size = np.random.default_rng(1), 30_000
    (tmp_path / "in").mkdir()
    files = []
    for number in range(4):
        vs = np.arange(number * size, (number + 1) * size)
        keys = np.char.mod("a key of some length %06d", draw.integers(0, 60_000, size))
        kinds = ["insert"] * size
        rows = pa.table({"_kind": kinds, "_vs": vs, "_ve": vs + 10**6, "_new_ve": vs, "k": keys, "v": vs})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet")
        files.append(rows)
    source = rc.source("s", {"k": "string", "v": "int64"})
    query = source.group_by("k").agg(n=rc.count(), v=rc.sum("v"), speculate="eager")
    found = rc.spark.stream(
        spark, query, {"s": str(tmp_path / "in")}, shards=2, files_per_batch=1, memory="16MB"
    )
    where: dict[str, Any] = {"checkpoint": tmp_path / "ck", "trigger": {"availableNow": True}}
    running = rc.spark.write(found, history=tmp_path / "history", **where)
    running.awaitTermination()
    metrics = rc.spark.metrics(running)
    assert metrics.spilled_bytes > 10_000_000
    assert 0 < metrics.resident_bytes <= 2 * 16_000_000
    warnings = [warning for line in metrics.operators for warning in line.warnings]
    assert len(warnings) in (2, 3, 4)  # one a shard, and in every worker that it comes to
    assert all("outgrown half of its memory of 16 MB" in warning for warning in warnings)
    session = rc.session(query)
    for rows in files:
        session.push("s", rows)
    read = rc.spark.read_history(spark, tmp_path / "history").toArrow().select(["_vs", "_ve", "k", "n", "v"])
    order = [(name, "ascending") for name in read.column_names]
    ours = session.history().to_arrow().select(read.column_names)
    assert read.sort_by(order).cast(ours.schema).equals(ours.sort_by(order))
