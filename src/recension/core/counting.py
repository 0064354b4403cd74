"""Counts of elements by reason, as tables: they are part of snapshots, being of all that ever came."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa


def counts_table(counts: Counter[str]) -> pa.Table:
    """A row a reason."""
    reasons, numbers = pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64())
    return pa.table({"reason": reasons, "n": numbers})


def counts_of(table: pa.Table) -> Counter[str]:
    """The counts in a table that `counts_table` gave."""
    return Counter(dict(zip(table["reason"].to_pylist(), table["n"].to_pylist(), strict=True)))
