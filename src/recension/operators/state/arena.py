"""Parallel columns that grow at the end and are rewritten from the end: the memory under an index.

Room doubles when it runs out, so that appending costs O(1) a row over time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from recension.core.memory import empty
from recension.core.sorted_runs import Column, Columns

_LEAST_ROOM = 256


class Arena:
    """Columns of equal length. A view given out is good until the next append or truncate."""

    def __init__(self, types: Mapping[str, npt.DTypeLike]) -> None:
        self._types = dict(types)
        self.clear()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __getitem__(self, name: str) -> Column:
        return self._room[name][: self._size]

    def clear(self) -> None:
        """Forget all rows and give the memory back."""
        self._size = 0
        self._room: Columns = {name: np.empty(0, kind) for name, kind in self._types.items()}

    def append(self, columns: Mapping[str, Column], order: npt.NDArray[np.int64] | None = None) -> None:
        """Add rows at the end; with an ``order`` those that it names, in that order."""
        size = len(next(iter(columns.values()))) if order is None else len(order)
        start, self._size = self._size, self._size + size
        for name, room in self._room.items():
            if len(room) < self._size:
                room = empty(max(_LEAST_ROOM, 2 * self._size), room.dtype)
                room[:start] = self._room[name][:start]
                self._room[name] = room
            if order is None:
                room[start : self._size] = columns[name]
            else:  # the order names rows that are there: to check that again would cost a copy
                np.take(columns[name], order, out=room[start : self._size], mode="clip")

    @property
    def room(self) -> int:
        """How many rows the memory held is enough for."""
        return len(next(iter(self._room.values())))

    def truncate(self, size: int) -> None:
        """Keep the first ``size`` rows."""
        self._size = size

    def nbytes(self) -> int:
        """Memory held, spare room included."""
        return sum(room.nbytes for room in self._room.values())
