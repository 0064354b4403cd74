"""Notices when nearly all rows of a join have one key: then its pairs grow with the square of the rows.

Cost        a look at a few dozen rows of a batch, and one comparison a row where they are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.rowhash import Hashes

ROWS: Final = 100_000
SHARE: Final = 0.9
_LOOKS: Final = 64


class KeySkew:
    """Watches the keys of both sides of a join; speaks once of each."""

    def __init__(self, *keys: Sequence[str]) -> None:
        self._sides = [_Side(list(own)) for own in keys]
        self._warnings: list[str] = []

    def note(self, port: int, group: Hashes, payload: pa.RecordBatch) -> None:
        """Rows with these key hashes have come."""
        side = self._sides[port]
        if side.is_watched and len(group):
            side.count(group)
            if side.is_skewed() and len(alike := np.flatnonzero(group == side.common)):
                side.is_watched = False
                self._warnings.append(side.words(payload, int(alike[0])))

    def take_warnings(self) -> list[str]:
        """What there is to say, if it has not been said."""
        warnings, self._warnings = self._warnings, []
        return warnings


class _Side:
    """How many rows there are, and how many have the most common key: one that most have is not missed."""

    def __init__(self, keys: list[str]) -> None:
        self._keys, self.is_watched = keys, bool(keys)
        self._rows = self._alike = 0
        self.common: np.uint64 | None = None

    def count(self, group: Hashes) -> None:
        looked, counts = np.unique(group[:: 1 + len(group) // _LOOKS], return_counts=True)
        at = int(np.argmax(counts))
        if looked[at] != self.common and 2 * counts[at] > counts.sum() and 2 * self._alike <= self._rows:
            self.common, self._alike = looked[at], 0
        self._rows += len(group)
        if self.common is not None:
            self._alike += int(np.count_nonzero(group == self.common))

    def is_skewed(self) -> bool:
        return self._rows >= ROWS and self._alike >= SHARE * self._rows

    def words(self, payload: pa.RecordBatch, row: int) -> str:
        key = ", ".join(f"{name} = {payload.column(name)[row].as_py()!r}" for name in self._keys)
        return (
            f"{100 * self._alike // self._rows} % of the {self._rows:,} rows that one side has taken in have "
            f"{key}: their pairs are made in one place and grow with the square of the rows; join on more "
            "columns, or filter that key out"
        )
