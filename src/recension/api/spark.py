"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recension.api.base import StreamBase, plan_of
from recension.core.ticks import DurationLike
from recension.runners.spark.batch.run import batch as run_batch
from recension.runners.spark.batch.run import history
from recension.runners.spark.failures import reason_of
from recension.runners.spark.session import session
from recension.runners.spark.sinks import read_changelog, read_history, write, write_changelog, write_history
from recension.runners.spark.stream.metrics import PipelineMetrics, pipeline_metrics
from recension.runners.spark.stream.pipeline import stream as stream_plan

__all__ = [
    "batch",
    "history",
    "metrics",
    "read_changelog",
    "read_history",
    "reason_of",
    "session",
    "stream",
    "write",
    "write_changelog",
    "write_history",
]


def batch(spark: Any, query: StreamBase, inputs: Mapping[str, Any]) -> Any:
    """Run a query over history DataFrames as a batch job; the result is a DataFrame like any other.

    Parameters
    ----------
    spark
        A session, such as ``rc.spark.session()`` gives.
    query
        A stream built with the API.
    inputs
        For each source by name: a history (``_vs``, ``_ve`` and the payload), a plain table with the
        source's own ``start=`` and ``end=`` columns, or a physical stream (with ``_kind``), which is
        reconstituted first.

    What depends on the order of arrival is refused: finite memories, and policies for late elements.
    """
    return run_batch(spark, plan_of(query, "batch"), inputs)


def stream(
    spark: Any,
    query: StreamBase,
    inputs: Mapping[str, Any],
    *,
    shards: int | None = None,
    order_by: Mapping[str, Sequence[str]] | None = None,
    watermark: Mapping[str, DurationLike] | None = None,
    files_per_batch: int | None = None,
) -> Any:
    """Run a query as a Structured Streaming pipeline: a streaming DataFrame of its physical output.

    Parameters
    ----------
    spark
        A classic Spark session. State settings and the number of shuffle partitions are set on it.
    query
        A stream built with the API.
    inputs
        For each source by name a streaming DataFrame, with control columns or with the source's own
        columns of times, on which a watermark makes promises; or a folder of stream files, which the tasks
        read themselves.
    shards
        In how many parts the query runs; by default as many as there are cores. It cannot be changed on a
        checkpoint that exists.
    order_by
        For sources that need it (a stream with ``_kind`` that is not read from files), the columns that
        put their rows in order.
    watermark
        For folders of plain tables: how far promises lag behind the latest start; what ``withWatermark``
        says of a DataFrame.
    files_per_batch
        How many files of a folder a micro-batch takes at most.
    """
    return stream_plan(
        spark,
        plan_of(query, "stream"),
        inputs,
        shards=shards,
        order_by=order_by,
        watermark=watermark,
        files_per_batch=files_per_batch,
    )


def metrics(query: Any) -> PipelineMetrics:
    """What the operators of a running or finished query did, as far back as Spark keeps its progress."""
    return pipeline_metrics(query.recentProgress)
