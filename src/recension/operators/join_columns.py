"""What a join reads and writes: the keys of each side, and where every output column comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask
from recension.core.rowhash import Hashes, row_hash

Predicate: TypeAlias = Callable[[pa.RecordBatch], Mask]

LEFT = 0
RIGHT = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join: its payload columns and, in the same order as on the other side, its keys."""

    schema: pa.Schema
    keys: tuple[str, ...] = ()

    def groups(self, payload: pa.RecordBatch, size: int) -> Hashes:
        """A hash of the keys of every row."""
        return row_hash(payload.select(list(self.keys)), size)

    def has_keys(self, payload: pa.RecordBatch, size: int) -> Mask:
        """Which rows can match at all: those without a null among their keys."""
        present = np.ones(size, np.bool_)
        for key in self.keys:
            column = payload.column(key)
            if column.null_count:
                present &= column.is_valid().to_numpy(zero_copy_only=False)
        return present


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """A column of the joined payload: ``source`` of side LEFT or RIGHT, under a name of its own."""

    side: int
    source: str
    name: str


class JoinedPayload:
    """Puts joined payloads together from rows of both sides."""

    def __init__(self, left: pa.Schema, right: pa.Schema, columns: Sequence[JoinedColumn]) -> None:
        inputs = (left, right)
        self._columns = columns
        self.schema = pa.schema([inputs[c.side].field(c.source).with_name(c.name) for c in columns])

    def sources(self, side: int) -> list[str]:
        """The columns of one side that the joined payload needs."""
        return list(dict.fromkeys(c.source for c in self._columns if c.side == side))

    def of(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Joined payloads from equally many rows of the left and the right side."""
        return pa.RecordBatch.from_arrays(
            [rows[c.side].column(c.source) for c in self._columns], schema=self.schema
        )
