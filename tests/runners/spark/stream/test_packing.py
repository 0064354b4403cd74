"""What tasks send: alike in every attempt, and what they count is counted once."""

from __future__ import annotations

import json

import pyarrow as pa

import recension as rc
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
        sent += [(p.place, p.first, task) for _ in range(2) for p in packing.packets(rows)]
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
        told += [json.loads(packet.info) for packet in packing.farewell() if packet.info]
    assert [sum(counts["s"].values()) for counts in told] == [1]
