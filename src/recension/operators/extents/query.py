"""What a coalescing query asks of an extent: which readings are of one group, and which go on with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.batch import Index, Mask
from recension.core.rowhash import Hashes
from recension.operators.extents.laid import Hashed

Equivalent: TypeAlias = Callable[[pa.RecordBatch, pa.RecordBatch], Mask]


@dataclass(frozen=True)
class CoalescingQuery:
    """``equivalent`` compares the ``on`` columns of neighbours; None: they must be equal."""

    group_by: Sequence[str]
    on: Sequence[str]
    equivalent: Equivalent | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of an answer but for the interval."""
        return [*self.group_by, *(name for name in self.on if name not in self.group_by)]

    def hashes(self, readings: Hashed) -> tuple[Hashes, Hashes]:
        """Of each reading, a hash of its group and one of all that an answer shows of it."""
        group = readings.of(self.group_by)
        return group, readings.of((name for name in self.on if name not in self.group_by), group)

    def goes_on(self, readings: pa.RecordBatch, before: Index, after: Index) -> Mask:
        """Does the reading ``after`` go on with the one ``before``, for each pair of positions?"""
        if self.equivalent is None or not len(after):
            return np.zeros(len(after), np.bool_)
        values = readings.select(list(self.on))
        return self.equivalent(values.take(pa.array(before)), values.take(pa.array(after)))
