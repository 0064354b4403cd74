"""Micro-batches as a query hands them to a sink: numbered rows, from several tasks, in any order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, concat
from recension.core.difference import difference
from recension.core.formats import open_stream
from recension.core.formats.encode import stream_rows, stream_schema
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder, reconstitute
from recension.core.wall_clock import now
from recension.runners.spark.sinks.micro_batch import MicroBatch, micro_batch
from recension.testing.generator import StreamSettings, generate
from recension.testing.generator.settings import SCHEMA

QUERY = "the query"


def revised(seed: int, parts: int, size: int = 600) -> list[EventBatch]:
    """A stream with late events, copies and many revisions, cut at random places."""
    settings = StreamSettings.of(
        "R4",
        size=size,
        revisions=0.4,
        duplicates=0.2,
        stable_freq=0.05,
        event_duration="2m",
        duration_spread=0.9,
        seed=seed,
    )
    stream = concat(list(generate(settings)))
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(stream) + 1, parts - 1))
    bounds = [0, *cuts.tolist(), len(stream)]
    return [stream.slice(a, b) for a, b in pairwise(bounds)]


def rows_of(batch: EventBatch, number: int, time_type: pa.DataType | None = None) -> pa.Table:
    """The rows of a micro-batch, shuffled."""
    rows = stream_rows(batch, stream_schema(batch.schema, time_type or pa.int64()))
    table = pa.Table.from_batches([rows])
    table = table.append_column("_batch", pa.array(np.full(len(batch), number, np.int64)))
    table = table.append_column("_seq", pa.array(np.arange(len(batch), dtype=np.int64)))
    return table.take(pa.array(np.random.default_rng(number).permutation(len(batch))))


def fed(
    batch: EventBatch,
    number: int,
    query: str = QUERY,
    content: str = "",
    before: str | None = None,
    at: int | None = None,
) -> MicroBatch:
    """The same, as the sink sees it; planned now, or at a time in microseconds."""
    planned = now() if at is None else at
    return micro_batch(query, number, rows_of(batch, number), content, before, at=planned)


def prefixes(batches: list[EventBatch]) -> list[History]:
    """The history after each micro-batch."""
    builder, found = HistoryBuilder(SCHEMA), []
    for batch in batches:
        builder.add(batch)
        found.append(builder.build())
    return found


def read(path: Path) -> History:
    """What the ordinary readers make of a directory."""
    reader = open_stream(path)
    return replace(reconstitute(reader, reader.schema), time_type=reader.time_type)


def assert_same(found: History, expected: History) -> None:
    apart = difference(found, expected)
    assert not apart, str(apart)
