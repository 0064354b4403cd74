"""NEXMark: the questions of an auction house, asked of this library and judged by DuckDB."""

from benchmarks.nexmark.runner import main, measured

__all__ = ["main", "measured"]
