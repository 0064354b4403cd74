"""The optimal selection: which queries get an eager extent each, and which share the lazy one.

A 0-1 program with one fixed charge: the shared extent is paid once, if any query is lazy. Given that one is,
the charge is a constant and every query chooses for itself; so the optimum is that choice, or all eager.

Source: temporal coalescing §6.2; coalescing rulings 33 to 35.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Mask
from recension.operators.schemes.constants import Numbers


@dataclass(frozen=True)
class Selection:
    """Which queries are eager; what that costs, and what all eager and all lazy would."""

    is_eager: Mask
    cost: float
    all_eager: float
    all_lazy: float

    @property
    def extents(self) -> int:
        """How many extents are kept."""
        return int(self.is_eager.sum()) + int(not self.is_eager.all())


def cost_of(is_eager: Mask, eager: Numbers, lazy: Numbers, shared: float) -> float:
    """The objective, for any choice."""
    fixed = 0.0 if is_eager.all() else shared
    return float(np.where(is_eager, eager, lazy).sum()) + fixed


def select(eager: Numbers, lazy: Numbers, shared: float) -> Selection:
    """The cheapest choice; of equals the one with more eager queries."""
    every, own = np.ones(len(eager), np.bool_), eager <= lazy
    all_eager, apart = (cost_of(choice, eager, lazy, shared) for choice in (every, own))
    is_eager, cost = (every, all_eager) if all_eager <= apart else (own, apart)
    return Selection(is_eager, cost, all_eager, cost_of(~every, eager, lazy, shared))
