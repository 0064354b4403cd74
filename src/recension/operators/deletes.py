"""Deletes: every event from its end, for ever; what never ends gives nothing.

Assumes     a valid physical stream.
Guarantees  the output history holds an endless event at each end in the input history, after every batch;
            an end that moves takes one output event away and adds another; CTIs pass unchanged.
State       none.
Cost        O(n) in the batch.
Source      Consistency Sensitive Streaming Operators in CEDR, §4.2, as corrected by ruling D7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.ticks import FOREVER, Ticks
from recension.operators.alter_lifetime import AlterLifetime
from recension.operators.lifetimes import Lifetime


class Deletes(AlterLifetime):
    """The alteration whose start depends on the input's end."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, _AfterTheEnd())


@dataclass(frozen=True)
class _AfterTheEnd(Lifetime):
    """D4: an end that moves from ``x`` to ``y`` removes an event starting at ``x`` and adds one at ``y``."""

    def start(self, vs: Ticks, ve: Ticks) -> Ticks:
        return ve

    def end(self, vs: Ticks, ve: Ticks) -> Ticks:
        return np.full(len(ve), FOREVER)
