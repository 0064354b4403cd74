"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from recension.runners.spark.session import session

__all__ = ["session"]
