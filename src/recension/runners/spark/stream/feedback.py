"""Feedback: a merge says in small files what it no longer needs, and slower replicas read them.

    _feedback/1200.json     {"before": 1200}: events that finally end before 1200 do not matter any more

A replica takes the files as it takes any input, a micro-batch at a time. So a micro-batch that is run again
gets the same feedback, and skips the same events. Files are removed when they are old: a replica that died
within a micro-batch and starts more than an hour later may get less feedback, and retract what it never
sent. A merge copes with that.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.ticks import BEGINNING, FOREVER
from recension.lowering import operator_of
from recension.plan.node import Node, each_once
from recension.plan.nodes import Source
from recension.runners.exchange.packets import FEEDBACK, PACKETS, Packet
from recension.runners.spark.stream.packing import paths_of
from recension.runners.spark.stream.task import freeze_gc
from recension.runners.spark.stream.topology import Topology

FOLDER: Final = "_feedback"
# Only the latest counts; the others stay for those who have begun to read them.
_KEPT: Final = 64
_SECONDS: Final = 3600
_PARTIAL: Final = ".partial-"


def publish_feedback(folder: Path, t: int) -> None:
    """Write that events which finally end before ``t`` do not matter; at the end of time nobody reads it."""
    file = folder / f"{t}.json"
    if t == FOREVER or file.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{_PARTIAL}{uuid4().hex}"
    partial.write_text(json.dumps({"before": t}) + "\n", encoding="utf-8")
    os.replace(partial, file)
    unfinished = folder.glob(f"{_PARTIAL}*")
    for old in [*unfinished, *sorted(folder.glob("[!.]*.json"), key=feedback_time)[:-_KEPT]]:
        with suppress(FileNotFoundError):
            if old.stat().st_mtime < time.time() - _SECONDS:
                old.unlink()


def feedback_time(file: Path) -> int:
    """The time that a file is about."""
    try:
        return int(file.stem)
    except ValueError:
        raise FormatError("not a merge's feedback: the name is not a time", file=str(file)) from None


class FeedbackPacker:
    """For ``mapInArrow``: the latest feedback of the micro-batch, for every shard of one level."""

    def __init__(self, topology: Topology, level: int, keys: list[int]) -> None:
        self._shards, self._keys = topology.shards_from(level), keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        t = max(map(feedback_time, paths_of(batches)), default=BEGINNING)
        packets = [feedback_packet(self._keys[shard], t) for shard in range(self._shards)]
        if t > BEGINNING:
            yield pa.RecordBatch.from_pylist([packet._asdict() for packet in packets], PACKETS)


def feedback_packet(shard: int, t: int) -> Packet:
    """Events that finally end before ``t`` are not needed of this shard."""
    return Packet(shard, FEEDBACK, info=json.dumps({"before": t}))


def latest_feedback(packets: Iterable[Packet]) -> int:
    """The latest time that some of these packets have."""
    return max((json.loads(packet.info)["before"] for packet in packets), default=BEGINNING)


def feedback_times(roots: Sequence[Node], t: int) -> dict[Node, int]:
    """For each step a time such that no reader needs events of it that finally end before.

    ``t`` is that time for the answers. Feedback goes from reader to input, packets the other way, level after
    level: so every level works out by itself what the steps above it would say.
    """
    asked: defaultdict[Node, list[int]] = defaultdict(list)
    for root in roots:
        asked[root].append(t)
    times: dict[Node, int] = {}
    for node in reversed(list(each_once(roots))):
        times[node] = min(asked[node])
        found = _input_times(node, times[node])
        for child, since in zip(node.inputs, found, strict=True):
            asked[child].append(BEGINNING if since is None else since)
    return times


def _input_times(node: Node, t: int) -> Sequence[int | None]:
    """The same for the inputs of a step; none: it needs everything."""
    nothing: list[int | None] = [None] * len(node.inputs)
    if t == BEGINNING or isinstance(node, Source):
        return nothing
    shrinks = [child.properties.is_shrink_only for child in node.inputs]
    # A new operator: only its answer matters, not the state that it would drop.
    return operator_of(node).on_feedback(t, shrinks) or nothing
