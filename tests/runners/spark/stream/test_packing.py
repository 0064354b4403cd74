"""What tasks send: alike in every attempt, and what they count is counted once."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.core.errors import FormatError
from recension.core.time_kind import AWARE, NAIVE, TICKS
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Inlet, topology

S = rc.source("s", {"k": "int64"}, start="t", on_violation="drop")


def test_packets_without_a_place_are_in_the_order_of_tasks() -> None:
    """However their packets arrive: a second attempt must see what the first one saw."""
    plan = topology([S.plan], 1, {"s": Inlet()})
    rows = pa.RecordBatch.from_pydict({"t": [1, 2], "k": [1, 2]})
    sent = []
    for task in (2, 0, 1):
        packing = Packing(plan, "s", 1, task)
        sent += [(p.place, p.position, task) for _ in range(2) for p in packing.packets(rows)]
    assert [task for *_, task in sorted(sent)] == [0, 0, 1, 1, 2, 2]
    assert len({key[:2] for key in sent}) == len(sent)


def test_a_source_read_by_several_edges_counts_once() -> None:
    by_key = S.group_by("k").agg(n=rc.count(), speculate="eager")
    query = by_key.union(S.agg(n=rc.count(), speculate="eager").with_columns(k=rc.col("n")).select("k", "n"))
    plan = topology([query.plan], 2, {"s": Inlet()})
    assert len([edge for edge in plan.edges if edge.origin is plan.sources()["s"]]) == 2
    told = []
    for level in range(1, plan.levels + 1):
        packing = Packing(plan, "s", level)
        list(packing.packets(pa.RecordBatch.from_pydict({"t": [1, None], "k": [1, 2]})))
        told += [json.loads(packet.info) for packet in packing.end_of_task_packets() if packet.info]
    assert [sum(counts["s"].values()) for counts in told] == [1]


@pytest.mark.parametrize("kind", [TICKS, NAIVE])
def test_a_file_whose_times_are_of_another_kind_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """It may come long after the query began, which has told the type of its output's times."""
    pq.write_table(pa.table({"t": pa.array([1], AWARE), "k": [1]}), tmp_path / "late.parquet")
    packing = Packing(topology([S.plan], 1, {"s": Inlet(kind=kind)}), "s", 1)
    with pytest.raises(FormatError, match=r"late.parquet: timestamps in UTC do not mix with .*query begins"):
        list(packing.read_file(tmp_path / "late.parquet"))
    same = Packing(topology([S.plan], 1, {"s": Inlet(kind=pa.timestamp("us", "Europe/Paris"))}), "s", 1)
    assert len(list(same.read_file(tmp_path / "late.parquet"))) == 1


def test_the_inputs_of_a_stream_are_of_one_kind_of_time(spark: Any, tmp_path: Path) -> None:
    for name, times in (("a", pa.array([1])), ("b", pa.array([1], NAIVE)), ("c", pa.array([1], AWARE))):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"_vs": times, "k": [1]}), tmp_path / name / "0.parquet")
    both = rc.source("a", {"k": "int64"}).union(rc.source("b", {"k": "int64"}))
    for left, right in permutations("abc", 2):
        with pytest.raises(rc.TimeError, match=r"^b: the times are .* but those of a are"):
            rc.spark.stream(spark, both, {"a": str(tmp_path / left), "b": str(tmp_path / right)})
    rows = spark.readStream.schema("_vs timestamp_ntz, k long").parquet(str(tmp_path / "b"))
    with pytest.raises(rc.TimeError, match="b: the times are timestamps without a zone, but those of a"):
        rc.spark.stream(spark, both, {"a": str(tmp_path / "c"), "b": rows})
    found = rc.spark.stream(spark, both, {"a": str(tmp_path / "b"), "b": rows})
    assert found.schema["_vs"].dataType.simpleString() == "timestamp_ntz"


def test_a_stream_joins_a_root_at_a_time_of_its_kind(tmp_path: Path) -> None:
    rc.spark.attach(tmp_path, "first", "2024-01-01")  # nothing is there yet that it could differ from
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table({"_vs": pa.array([1], AWARE), "k": [1]}), tmp_path / "a" / "0.parquet")
    for wrong in (5, "2024-01-01"):
        with pytest.raises(rc.TimeError, match=r"attach b, from_time: the times are .*0.parquet are"):
            rc.spark.attach(tmp_path, "b", wrong)
    rc.spark.attach(tmp_path, "b", "2024-01-01T00:00Z")
    assert json.loads((tmp_path / "b.join").read_text()) == {"from_time": 1_704_067_200_000_000}
