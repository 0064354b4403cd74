"""Sinks of streaming queries: the stream itself as a changelog, and its current history as a table."""

from recension.runners.spark.sinks.reading import read_changelog, read_history
from recension.runners.spark.sinks.writing import write, write_changelog, write_history

__all__ = ["read_changelog", "read_history", "write", "write_changelog", "write_history"]
