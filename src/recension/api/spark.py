"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recension.api.base import StreamBase, plan_of
from recension.runners.spark.session import session
from recension.runners.spark.sinks import read_changelog, read_history, write, write_changelog, write_history
from recension.runners.spark.stream.pipeline import stream as stream_plan

__all__ = ["read_changelog", "read_history", "session", "stream", "write", "write_changelog", "write_history"]


def stream(
    spark: Any,
    query: StreamBase,
    inputs: Mapping[str, Any],
    *,
    shards: int | None = None,
    order_by: Mapping[str, Sequence[str]] | None = None,
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
        columns of times. A watermark on the column of starts makes promises.
    shards
        In how many parts the query runs; by default as many as there are cores. It cannot be changed on a
        checkpoint that exists.
    order_by
        For sources that need it (a stream with ``_kind`` that is not read from files), the columns that
        put their rows in order.
    """
    return stream_plan(spark, plan_of(query, "stream"), inputs, shards=shards, order_by=order_by)
