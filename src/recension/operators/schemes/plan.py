"""A plan of schemes: which coalescing queries over one stream and window are eager, and what that costs.

Source: temporal coalescing §6.2; coalescing rulings 33 to 36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recension.operators.schemes.constants import Constants
from recension.operators.schemes.costs import CostModel, Load, Queries, Weights
from recension.operators.schemes.drift import Drift
from recension.operators.schemes.learning import Estimate
from recension.operators.schemes.selection import Selection, cost_of, select


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a tuple: whole, and for each query coalesced (r) and behind a coalesced one (m)."""

    row: float
    coalesced: tuple[float, ...]
    behind: tuple[float, ...]


@dataclass(frozen=True)
class SchemePlan:
    """A selection with what it was made from."""

    names: tuple[str, ...]
    queries: Queries
    model: CostModel
    selection: Selection
    learned: tuple[Estimate, ...]

    def lines(self) -> list[str]:
        """The choice and the costs, as `explain` shows them."""
        chosen = self.selection
        eager, lazy, shared = (
            self.model.eager(self.queries),
            self.model.lazy(self.queries),
            self.model.shared(),
        )
        head = (
            f"weights {self.model.weights}: this choice costs {chosen.cost:.2f}, "
            f"all eager {chosen.all_eager:.2f}, all lazy {chosen.all_lazy:.2f}; {_count(chosen.extents, 'extent')}"
        )
        lines = [head]
        for j, (memory, update, scan) in enumerate(zip(*self.model.eager_parts(self.queries), strict=True)):
            scheme = "eager" if chosen.is_eager[j] else "lazy"
            known = f"cp {self.queries.cp[j]:.2f}, oop {self.queries.oop[j]:.2f}"
            parts = f"memory {memory:.2f}, update {update:.2f}, scan {scan:.2f}"
            lines.append(
                f"{self.names[j]}: {scheme}; {known}; eager {eager[j]:.2f} ({parts}), lazy {lazy[j]:.2f}"
            )
        if not chosen.is_eager.all():
            lines.append(f"the extent that lazy queries share: {shared:.2f}")
        return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


@dataclass(frozen=True)
class Planner:
    """Makes the plan, and says when to make it again.

    A query changes its scheme only if the new choice is cheaper by the part ``margin`` of the cost: moving is
    not free, and costs are estimates.
    """

    names: tuple[str, ...]
    sizes: Sizes
    constants: Constants
    weights: Weights = field(default_factory=Weights)
    drift: Drift = field(default_factory=Drift)
    margin: float = 0.02

    def plan(self, learned: Sequence[Estimate], load: Load, groups: Sequence[float]) -> SchemePlan:
        """The optimal plan for what is known."""
        q = Queries.of(
            [each.cp for each in learned],
            [each.oop for each in learned],
            list(self.sizes.coalesced),
            list(self.sizes.behind),
            list(groups),
        )
        usual = float(np.mean(q.oop)) if len(q) else 0.0
        model = CostModel(self.constants, load, self.sizes.row, usual, self.weights)
        chosen = select(model.eager(q), model.lazy(q), model.shared())
        return SchemePlan(self.names, q, model, chosen, tuple(learned))

    def replan(
        self, old: SchemePlan | None, learned: Sequence[Estimate], load: Load, groups: Sequence[float]
    ) -> SchemePlan | None:
        """Another plan if the probabilities have drifted from those of the old one; None if it may stay."""
        if load.held < 1 or (old is not None and not self.drift.between(old.learned, learned)):
            return None
        fresh = self.plan(learned, load, groups)
        if old is None:
            return fresh
        model, q = fresh.model, fresh.queries
        stays = cost_of(old.selection.is_eager, model.eager(q), model.lazy(q), model.shared())
        if fresh.selection.cost < stays * (1 - self.margin):
            return fresh
        kept = Selection(old.selection.is_eager, stays, fresh.selection.all_eager, fresh.selection.all_lazy)
        return SchemePlan(self.names, q, model, kept, tuple(learned))
