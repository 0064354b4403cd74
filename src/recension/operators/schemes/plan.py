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
        extents = f"{chosen.extents} extent" + ("" if chosen.extents == 1 else "s")
        lines = [
            f"weights {self.model.weights}: this choice costs {chosen.cost:.2f}, "
            f"all eager {chosen.all_eager:.2f}, all lazy {chosen.all_lazy:.2f}; {extents}"
        ]
        lines += [self._of_query(j) for j in range(len(self.names))]
        if not chosen.is_eager.all():
            lines.append(f"the extent that lazy queries share: {self.model.shared():.2f}")
        return lines

    def _of_query(self, j: int) -> str:
        model, q = self.model, self.queries
        scheme = "eager" if self.selection.is_eager[j] else "lazy"
        memory, update, scan = (part[j] for part in model.eager_parts(q))
        return (
            f"{self.names[j]}: {scheme}; cp {q.cp[j]:.2f}, oop {q.oop[j]:.2f}; eager {model.eager(q)[j]:.2f} "
            f"(memory {memory:.2f}, update {update:.2f}, scan {scan:.2f}), lazy {model.lazy(q)[j]:.2f}"
        )


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
