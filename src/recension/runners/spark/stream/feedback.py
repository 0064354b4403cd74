"""The way back: a merge says in small files what it no longer wants, and slower replicas read them.

    _feedback/1200.json     {"before": 1200}: events that finally end before 1200 do not matter any more

A replica takes the files as it takes any input, a micro-batch at a time, so that one which is run again hears
the same: what it has left out of its answer then is what it takes for left out now. Files go when they are
old; a replica that died an hour ago within a micro-batch may hear less, and take back what it never said: a
merge copes with that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.ticks import BEGINNING, FOREVER
from recension.runners.spark.stream.packets import FEEDBACK, Packet
from recension.runners.spark.stream.packing import PACKETS, paths_of
from recension.runners.spark.stream.task import keep_what_is_loaded
from recension.runners.spark.stream.topology import Topology

FOLDER: Final = "_feedback"
# Only the latest counts; the others stay for those who have begun to read them.
_KEPT: Final = 64
_SECONDS: Final = 3600


def publish(folder: Path, t: int) -> None:
    """Say that nothing matters that finally ends before ``t``; the end of time says nothing new."""
    file = folder / f"{t}.json"
    if t == FOREVER or file.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{uuid4().hex}"
    partial.write_text(json.dumps({"before": t}) + "\n", encoding="utf-8")
    os.replace(partial, file)
    for old in sorted(folder.glob("[!.]*.json"), key=time_of)[:-_KEPT]:
        with suppress(FileNotFoundError):
            if old.stat().st_mtime < time.time() - _SECONDS:
                old.unlink()


def time_of(file: Path) -> int:
    """The time that a file is about."""
    try:
        return int(file.stem)
    except ValueError:
        raise FormatError("not a merge's feedback: the name is not a time", file=str(file)) from None


class FeedbackPacker:
    """For ``mapInArrow``: what was said since the last micro-batch, for every shard of one level."""

    def __init__(self, topology: Topology, level: int, keys: list[int]) -> None:
        self._shards, self._keys = topology.called_from(level), keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        t = max(map(time_of, paths_of(batches)), default=BEGINNING)
        rows = [Packet(self._keys[shard], FEEDBACK, cti=t)._asdict() for shard in range(self._shards)]
        if t > BEGINNING:
            yield pa.RecordBatch.from_pylist(rows, PACKETS)
