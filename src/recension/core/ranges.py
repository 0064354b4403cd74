"""Many ranges of positions, written out."""

from __future__ import annotations

import numpy as np

from recension.core.batch import Index


def expand(first: Index, last: Index) -> tuple[Index, Index]:
    """Every position of every range ``[first, last)``, range by range, with the number of its range.

    >>> [column.tolist() for column in expand(np.array([5, 9, 2]), np.array([7, 9, 4]))]
    [[0, 0, 2, 2], [5, 6, 2, 3]]
    """
    size = np.maximum(last - first, 0)
    end = np.cumsum(size)
    owner = np.repeat(np.arange(len(size)), size)
    return owner, np.arange(len(owner)) + np.repeat(first - end + size, size)
