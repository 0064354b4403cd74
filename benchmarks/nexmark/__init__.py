"""NEXMark: the questions of an auction house, asked of this library and judged by DuckDB."""
