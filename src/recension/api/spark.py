"""Queries on Spark: `rc.spark`, loaded when it is first named."""

from __future__ import annotations

from recension.runners.spark.session import session
from recension.runners.spark.sinks import read_changelog, read_history, write, write_changelog, write_history

__all__ = ["read_changelog", "read_history", "session", "write", "write_changelog", "write_history"]
