"""Micro-batches into our own tables as any attempt writes them: ``again.py FOLDER SEED`` says what is there.

The seed decides, and must not matter: in which order rows and tasks come, in Arrow batches of which sizes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.runners.spark.sinks.feeding import QUERY, revised, rows_of

from recension.core.batch import EventBatch
from recension.core.rowhash import combine, row_hash
from recension.runners.spark.sinks import revision
from recension.runners.spark.sinks.changelog import Changelog
from recension.runners.spark.sinks.history_table import HistoryTable
from recension.runners.spark.sinks.micro_batch import MicroBatch, micro_batch

BATCHES, BUCKETS, PLANNED = 12, 3, 1_700_000_000_000_000


def digests(folder: Path) -> dict[str, str]:
    """What is in a folder, by names: digests of all files but locks and checksums of Hadoop's."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != ".lock")
    return {
        str(file.relative_to(folder)): blake2b(file.read_bytes(), digest_size=12).hexdigest()
        for file in files
        if file.suffix != ".crc"
    }


def small_files() -> None:
    """Files are merged after a few rows."""
    vars(revision).update(FULL=60, SMALLEST=4, FAN_IN=3)


def given(events: EventBatch, number: int, rng: np.random.Generator) -> MicroBatch:
    """A micro-batch as some tasks gave it."""
    return micro_batch(
        QUERY, number, shuffled(rows_of(events, number), rng), f"content {number}", at=PLANNED + number
    )


def shuffled(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The rows in another order, in batches of other sizes."""
    rows = rows.take(pa.array(rng.permutation(len(rows))))
    return pa.Table.from_batches(rows.to_batches(max_chunksize=int(rng.integers(1, 50))), rows.schema)


def parts_of(batch: MicroBatch, rng: np.random.Generator) -> Iterator[tuple[int, MicroBatch]]:
    """The rows of each bucket, in the order in which its tasks run."""
    events, rows = batch.events(), pa.Table.from_batches([batch.rows])
    place = combine(row_hash(events.payload, len(events)), events.vs) % np.uint64(BUCKETS)
    for bucket in rng.permutation(BUCKETS).tolist():
        mine = rows.filter(pa.array(~events.is_data() | (place == bucket)))
        if len(mine):
            yield bucket, batch.with_rows(shuffled(mine, rng))


def write(folder: Path, seed: int) -> None:
    """Every other micro-batch by the driver, the others by tasks."""
    rng = np.random.default_rng(seed)
    for number, events in enumerate(revised(0, BATCHES)):
        batch = given(events, number, rng)
        for sink in (Changelog(folder / "log"), HistoryTable(folder / "table", keep=0, buckets=BUCKETS)):
            if number % 2:
                sink.apply(batch)
                continue
            with sink.hold(batch) as writer:
                commit_parts(sink, writer, batch, rng)


def commit_parts(sink: Any, writer: Any, batch: MicroBatch, rng: np.random.Generator) -> None:
    """As the driver does with what tasks say; Spark gives it in the order of their partitions."""
    found = {bucket: writer.write(part, bucket, BUCKETS) for bucket, part in parts_of(batch, rng)}
    sink.commit(batch, [found[bucket] for bucket in sorted(found) if found[bucket] is not None])


if __name__ == "__main__":
    small_files()
    write(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(digests(Path(sys.argv[1]))))
