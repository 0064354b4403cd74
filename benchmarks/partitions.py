"""What sub-streams cost: the checks of a source with 1, 12 and 200 partitions beside one that has none.

Tables of inserts, a tenth of them revised later, are pushed with a CTI at the end of each push: one for the
source without partitions, one for every partition else. Nothing is computed above the source. Rows of all
partitions are mixed at random, as a consumer of a topic gets them; ``shuffled`` also mixes those of each
partition within a push, so that they must be sorted. ``numbered`` has runs and sequences of a producer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite

PUSH = 1 << 16
DELAY = 10_000
SIZES = (1_000_000, 2_000_000)


def _tables(
    partitions: int, size: int, _: Path, *, is_shuffled: bool = False, is_numbered: bool = False
) -> list[pa.Table]:
    rng = np.random.default_rng(11)
    start = np.arange(size, dtype=np.int64)
    key, value = rng.integers(0, 10_000, size), rng.random(size)
    # Every tenth row shortens the event five rows before it, which no other row does.
    is_retract = (start % 10 == 9) & (start > 9)
    partition = rng.integers(0, max(partitions, 1), size)
    at = np.flatnonzero(is_retract)
    for column in (key, value, partition):
        column[at] = column[at - 5]
    vs = start.copy()
    vs[at] = start[at - 5]
    columns = {
        "_kind": pa.array(np.where(is_retract, "retract", "insert")),
        "_vs": pa.array(vs),
        "_ve": pa.array(vs + 2 * DELAY),
        "_new_ve": pa.array(vs + DELAY, mask=~is_retract),
        "key": pa.array(key),
        "value": pa.array(value),
        "partition": pa.array(partition.astype(np.int32)),
        "offset": pa.array(2 * start),
    }
    if is_numbered:
        columns["run"], columns["seq"] = pa.array(["a"] * size), pa.array(start)
    table, pushes = pa.table(columns), list[pa.Table]()
    for first in range(0, size, PUSH):
        part = table.slice(first, PUSH)
        last = first + len(part)
        ctis = _ctis(part.schema, max(partitions, 1), last - DELAY, last, is_numbered=is_numbered)
        if is_shuffled:
            part = part.take(pa.array(rng.permutation(len(part))))
        pushes.append(pa.concat_tables([part, ctis]).combine_chunks())
    return pushes


def _ctis(schema: pa.Schema, partitions: int, t: int, offset: int, *, is_numbered: bool) -> pa.Table:
    rows: dict[str, Any] = {name: pa.nulls(partitions, schema.field(name).type) for name in schema.names}
    rows |= {"_kind": ["cti"] * partitions, "_vs": [max(t, 0)] * partitions}
    # Rows have even offsets: this one is after those of the push and before those of the next.
    rows |= {"partition": np.arange(partitions, dtype=np.int32), "offset": [2 * offset - 1] * partitions}
    if is_numbered:
        rows |= {"run": ["ctis"] * partitions, "seq": [offset] * partitions}
    return pa.table(rows, schema=schema)


def _push(options: dict[str, Any], pushes: list[pa.Table]) -> int:
    import recension as rc

    feed = rc.source("feed", {"key": "int64", "value": "float64"}, **options)
    live, elements = rc.session(feed, history_limit=0), 0
    for table in pushes:
        live.push("feed", table)
        elements += sum(int((batch.kind != 2).sum()) for batch in live.read().batches)
    return elements


def _measure(name: str, partitions: int, options: dict[str, Any], **kinds: bool) -> Measurement:
    against = () if not options else ("no partitions",)

    def load(size: int, folder: Path) -> list[pa.Table]:
        return _tables(partitions, size, folder, **kinds)

    return Measurement(name, load, partial(_push, options), sizes=SIZES, against=against, repeats=3)


BY_OFFSET = {"partition": "partition", "order": "offset"}
NUMBERED = {**BY_OFFSET, "run": "run", "sequence": "seq"}
SUITE = Suite(
    "partitions",
    "Sources with partitions, beside one that has none",
    (
        _measure("no partitions", 0, {}),
        _measure("1 partition", 1, BY_OFFSET),
        _measure("12 partitions", 12, BY_OFFSET),
        _measure("200 partitions", 200, BY_OFFSET),
        _measure("12 partitions, shuffled", 12, BY_OFFSET, is_shuffled=True),
        _measure("12 partitions, numbered", 12, NUMBERED, is_numbered=True),
    ),
)
