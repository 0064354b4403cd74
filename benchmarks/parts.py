"""Aggregates in parts: what the slowest shard takes of a micro-batch, without Spark, on one core.

``python -m benchmarks.parts``: one key has nine of ten events. Each shard's engines run by themselves; the
shards of a level would run beside each other, so a micro-batch takes the slowest of every level. Medians of
processor time. Spark adds a fixed cost for each level.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import recension as rc
from recension.core.batch import EventBatch, concat, cti, inserts
from recension.core.formats.encode import stream_rows, stream_schema
from recension.runners.exchange.packets import Packet
from recension.runners.spark.stream.host import Host
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Inlet, topology

_SHARDS, _SIZE, _BATCHES, _WARM, _KEYS, _HOT = 4, 50_000, 12, 2, 10_000, 0.9
_SECOND, _WINDOW = 1_000_000, 10_000_000
_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])


def _queries() -> dict[str, tuple[rc.Stream, bool]]:
    """Each with whether its key can be made in parts; those without a key always are."""
    feed = rc.source("feed", _SCHEMA)
    answers: dict[str, Any] = {"n": rc.count(), "s": rc.sum("value")}
    return {
        "tumbling 10 s, by key": (feed.group_by("key").tumbling(_WINDOW).agg(**answers), True),
        "snapshots, by key": (feed.group_by("key").agg(**answers), True),
        "tumbling 10 s": (feed.tumbling(_WINDOW).agg(**answers), False),
        "snapshots": (feed.agg(**answers), False),
    }


def _batches() -> list[EventBatch]:
    """A second of events a batch, each alive for up to five, then a CTI."""
    random, found = np.random.default_rng(7), []
    for number in range(_BATCHES):
        start = number * _SECOND + np.sort(random.integers(0, _SECOND, _SIZE))
        key = np.where(random.random(_SIZE) < _HOT, 0, random.integers(1, _KEYS, _SIZE))
        payload = pa.RecordBatch.from_arrays([pa.array(key), pa.array(random.random(_SIZE))], schema=_SCHEMA)
        lasting = inserts(start, start + random.integers(1, 5 * _SECOND, _SIZE), payload)
        found.append(concat([lasting, cti((number + 1) * _SECOND, _SCHEMA)]))
    return found


def _measure(query: rc.Stream, batches: list[EventBatch], shards: int, skew: list[str]) -> list[float]:
    """Seconds of a micro-batch: of each level the slowest shard."""
    plan = topology([query.plan], shards, {"feed": Inlet()}, skew)
    hosts: dict[tuple[int, int], Host] = {}
    seconds = []
    for batch in batches:
        packing, rows = Packing(plan, "feed", 1), stream_rows(batch, stream_schema(_SCHEMA, pa.int64()))
        flowing = [*(packet.seal() for packet in packing.packets(rows)), *packing.end_of_task_packets()]
        seconds.append(list[float]())
        for level in range(1, plan.levels + 1):
            taken, given = [], list[Packet]()
            for shard in sorted({packet.shard for packet in flowing}):
                host = hosts.setdefault((level, shard), Host(plan, level, shard))
                began = time.process_time()
                given += host.run_micro_batch(p for p in flowing if p.shard == shard)[0]
                taken.append(time.process_time() - began)
            seconds[-1].append(max(taken))
            flowing = [packet.seal() for packet in given]
    return [median(level) for level in zip(*seconds[_WARM:], strict=True)]


def main() -> None:
    """Print a line for each query: one shard, the key in its shard, the key in parts."""
    batches = _batches()
    for name, (query, is_keyed) in _queries().items():
        one = sum(_measure(query, batches, 1, []))
        print(f"{name:24} one shard {1000 * one:7.0f} ms", end="")
        for label, skew in [("by key", [])] * is_keyed + [("in parts", ["key"] * is_keyed)]:
            levels = _measure(query, batches, _SHARDS, skew)
            shown = " + ".join(f"{1000 * level:.0f}" for level in levels)
            print(f"   {_SHARDS} shards, {label} {1000 * sum(levels):6.0f} ms ({shown})", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
