"""Equivalences twice: as the engine computes them, and as the oracle understands them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recension.core.events import Payload
from recension.plan.equivalences import Custom, Equivalence, Trend, Within


def _both(holds: Callable[[Any, Any], bool]) -> Callable[[Payload, Payload], bool]:
    def of(before: Payload, after: Payload) -> bool:
        pairs = [(before[name], after[name]) for name in before]
        return all(a is not None and b is not None and holds(a, b) for a, b in pairs)

    return of


def same_parity(before: pa.RecordBatch, after: pa.RecordBatch) -> pa.Array:
    total = pc.add(before.column("v"), after.column("v"))
    return pc.equal(pc.bit_wise_and(total, 1), 0)


EQUIVALENCES: list[tuple[Equivalence, Callable[[Payload, Payload], bool]]] = [
    (Trend("increasing"), _both(lambda a, b: b > a)),
    (Trend("decreasing"), _both(lambda a, b: b < a)),
    (Within(1), _both(lambda a, b: abs(b - a) <= 1)),
    (Within(0.5, relative=True), _both(lambda a, b: abs(b - a) <= 0.5 * abs(a))),
    (Custom(same_parity), _both(lambda a, b: (a + b) % 2 == 0)),
]
