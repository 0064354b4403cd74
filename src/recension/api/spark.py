"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recension.api.base import StreamBase, plan_of
from recension.runners.spark.batch.run import batch as run_batch
from recension.runners.spark.batch.run import history
from recension.runners.spark.session import session

__all__ = ["batch", "history", "session"]


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
