"""State cut into small pieces, so that a few rows do what thousands do: leaves split, blocks fill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from recension.operators.extents import extent
from recension.operators.extents import operator as extents
from recension.operators.state import (
    block_table,
    events_by_start,
    group_counts,
    interval_index,
    leaf_log,
    leaf_table,
    open_starts,
    row_store,
)

_SIZES: Final[list[tuple[Any, dict[str, int]]]] = [
    (block_table, {"_BLOCK": 2}),
    (events_by_start, {"_FIRST_LOOK": 1, "_FIRST_READ": 1}),
    (extent, {"_SLACK": 0}),
    (extents, {"_REACH": 1}),
    (group_counts, {"_REUSE_AT": 0}),
    (interval_index, {"_GRACE": 1}),
    (leaf_log, {"_BITS": 4, "_SEGMENT": 16, "_SLACK": 16, "_CHUNK": 64, "_LEAST": 16}),
    (leaf_table, {"_LONG": 2, "_SHORT": 1}),
    (open_starts, {"_FIRST_LOOK": 1}),
    (row_store, {"_SMALL": 1}),
]


@contextmanager
def small_state() -> Iterator[None]:
    """What is put into state in the meantime is put into small pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in _SIZES:
            for name, size in sizes.items():
                patch.setattr(module, name, size)
        yield
