"""Have the probabilities moved so far that the choice of schemes should be made again?

They have if one of them differs from what the plan was made with by more than it may, and by more than
chance allows in samples of such sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recension.operators.schemes.learning import Estimate

_TOO_FEW: Final = 1.0


@dataclass(frozen=True, slots=True)
class Drift:
    """``tolerance`` is a difference of probabilities; up to ``deviations`` standard ones are chance."""

    tolerance: float = 0.05
    deviations: float = 4.0

    def between(self, planned: Sequence[Estimate], now: Sequence[Estimate]) -> bool:
        """Of any query?"""
        return any(
            self._moved((then.cp, then.compared), (known.cp, known.compared))
            or self._moved((then.oop, then.arrived), (known.oop, known.arrived))
            for then, known in zip(planned, now, strict=True)
        )

    def _moved(self, then: tuple[float, float], now: tuple[float, float]) -> bool:
        (p, m), (q, n) = then, now
        if n < _TOO_FEW or abs(p - q) <= self.tolerance:
            return False
        if m < _TOO_FEW:  # the plan was made before anything was known
            return n >= self.deviations**2
        pooled = (p * m + q * n) / (m + n)
        return abs(p - q) > self.deviations * math.sqrt(pooled * (1 - pooled) * (1 / m + 1 / n))
