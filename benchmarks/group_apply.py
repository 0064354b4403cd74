"""Queries on 1,000 groups: steps by their keys, for all groups at once, against a pipeline for each group."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import Measurement, Suite
from benchmarks.moving_window import SCHEMA, stream
from recension.core.batch import EventBatch

if TYPE_CHECKING:
    from recension.runners.local import Session

GROUPS = 1_000


def _batches(size: int, _: Path) -> list[EventBatch]:
    return [replace(batch, payload=_grouped(batch.payload)) for batch in stream(size)]


def _grouped(payload: pa.RecordBatch) -> pa.RecordBatch:
    key = payload["key"]
    group = pc.subtract(key, pc.multiply(pc.divide(key, GROUPS), GROUPS))
    return pa.record_batch([group.cast(SCHEMA.field("key").type), payload["value"]], schema=SCHEMA)


def _session(query: Any) -> Session:
    import recension as rc

    return rc.session(query(rc, rc.source("feed", SCHEMA)))


def _run(query: Any, batches: list[EventBatch]) -> int:
    live, answers = _session(query), 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            answers += int((out.kind == 0).sum()) - int((out.kind == 1).sum())
    return answers


def _counted(rc: Any, feed: Any) -> Any:
    return feed.group_by("key").apply(lambda g: g.agg(n=rc.count()))


def _counted_by_group(rc: Any, feed: Any) -> Any:
    return feed.group_by("key").apply(lambda g: g.finalize().agg(n=rc.count()))


def _cleansed(rc: Any, feed: Any) -> Any:
    return feed.group_by("key").apply(lambda g: g.cleanse())


def _cleansed_by_group(rc: Any, feed: Any) -> Any:
    return feed.group_by("key").apply(lambda g: g.finalize().cleanse())


_AT_ONCE = " for all groups at once"

SUITE = Suite(
    "group_apply",
    "queries on 1,000 groups, 20 % late: by their keys for all groups at once, and group by group",
    (
        Measurement(
            "count, group by group",
            _batches,
            partial(_run, _counted_by_group),
            sizes=(200_000, 400_000),
            against=(f"count,{_AT_ONCE}",),
            repeats=1,
        ),
        Measurement(f"count,{_AT_ONCE}", _batches, partial(_run, _counted), sizes=(200_000,), repeats=1),
        Measurement(
            "cleanse, group by group",
            _batches,
            partial(_run, _cleansed_by_group),
            sizes=(200_000, 400_000),
            against=(f"cleanse,{_AT_ONCE}",),
            repeats=1,
        ),
        Measurement(f"cleanse,{_AT_ONCE}", _batches, partial(_run, _cleansed), sizes=(200_000,), repeats=1),
    ),
)
