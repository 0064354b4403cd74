"""A plan of schemes: which coalescing queries over one stream and window are eager, and what that costs.

The choice is a 0-1 program with one fixed charge: the shared extent is paid once, if any query is lazy. Given
that one is, the charge is a constant and every query chooses for itself; so the optimum is that choice, or
all eager. The plan is made again when a probability differs from the one it was made with by more than it
may, and by more than chance allows in samples of such sizes.

Source: temporal coalescing §6.2; coalescing rulings 33 to 36.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import Mask
from recension.operators.schemes.constants import Constants, Numbers
from recension.operators.schemes.costs import CostModel, Load, Queries, Weights
from recension.operators.schemes.learning import Estimate

_TOO_FEW: Final = 1.0


@dataclass(frozen=True)
class SchemeSelection:
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


def select(eager: Numbers, lazy: Numbers, shared: float) -> SchemeSelection:
    """The cheapest choice; of equals the one with more eager queries."""
    every, own = np.ones(len(eager), np.bool_), eager <= lazy
    all_eager, apart = (cost_of(choice, eager, lazy, shared) for choice in (every, own))
    is_eager, cost = (every, all_eager) if all_eager <= apart else (own, apart)
    return SchemeSelection(is_eager, cost, all_eager, cost_of(~every, eager, lazy, shared))


@dataclass(frozen=True, slots=True)
class Drift:
    """``tolerance`` is a difference of probabilities; up to ``deviations`` standard ones are chance."""

    tolerance: float = 0.05
    deviations: float = 4.0

    def has_drifted(self, planned: Sequence[Estimate], now: Sequence[Estimate]) -> bool:
        """Has a probability of any query moved too far?"""
        return any(
            self._has_moved((then.cp, then.compared), (known.cp, known.compared))
            or self._has_moved((then.oop, then.arrived), (known.oop, known.arrived))
            for then, known in zip(planned, now, strict=True)
        )

    def _has_moved(self, then: tuple[float, float], now: tuple[float, float]) -> bool:
        (p, m), (q, n) = then, now
        if n < _TOO_FEW or abs(p - q) <= self.tolerance:
            return False
        if m < _TOO_FEW:  # the plan was made before anything was known
            return n >= self.deviations**2
        pooled = (p * m + q * n) / (m + n)
        return abs(p - q) > self.deviations * math.sqrt(pooled * (1 - pooled) * (1 / m + 1 / n))


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
    selection: SchemeSelection
    learned: tuple[Estimate, ...]

    def describe(self) -> list[str]:
        """The choice and the costs, as `explain` shows them."""
        chosen = self.selection
        extents = f"{chosen.extents} extent" + ("" if chosen.extents == 1 else "s")
        lines = [
            f"weights {self.model.weights}: this choice costs {chosen.cost:.2f}, "
            f"all eager {chosen.all_eager:.2f}, all lazy {chosen.all_lazy:.2f}; {extents}"
        ]
        lines += [self._describe_query(j) for j in range(len(self.names))]
        if not chosen.is_eager.all():
            lines.append(f"the extent that lazy queries share: {self.model.shared_cost():.2f}")
        return lines

    def snapshot(self) -> pa.Table:
        """What it was made from, a row a query, and the choice."""
        size, load = len(self.names), self.model.load
        known = {f.name: [getattr(each, f.name) for each in self.learned] for f in fields(Estimate)}
        held = {"readings": [load.arrived] * size, "held": [load.held] * size}
        return pa.table({**known, **held, "eager": self.selection.is_eager})

    def _describe_query(self, j: int) -> str:
        model, q = self.model, self.queries
        scheme = "eager" if self.selection.is_eager[j] else "lazy"
        memory, update, scan = (part[j] for part in model.eager_parts(q))
        return (
            f"{self.names[j]}: {scheme}; cp {q.cp[j]:.2f}, oop {q.oop[j]:.2f}; "
            f"eager {model.eager_cost(q)[j]:.2f} (memory {memory:.2f}, update {update:.2f}, "
            f"scan {scan:.2f}), lazy {model.lazy_cost(q)[j]:.2f}"
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
    enough: float = 256

    def plan(
        self,
        learned: Sequence[Estimate],
        load: Load,
        is_eager: Mask | None = None,
    ) -> SchemePlan:
        """The optimal plan for what is known; or this choice, and what it costs."""
        q = Queries.broadcast(
            [each.cp for each in learned],
            [each.oop for each in learned],
            list(self.sizes.coalesced),
            list(self.sizes.behind),
        )
        usual = float(np.mean(q.oop)) if len(q) else 0.0
        model = CostModel(self.constants, load, self.sizes.row, usual, self.weights)
        chosen = select(model.eager_cost(q), model.lazy_cost(q), model.shared_cost())
        if is_eager is not None:
            cost = cost_of(is_eager, model.eager_cost(q), model.lazy_cost(q), model.shared_cost())
            chosen = replace(chosen, is_eager=is_eager, cost=cost)
        return SchemePlan(self.names, q, model, chosen, tuple(learned))

    def replan(self, old: SchemePlan | None, learned: Sequence[Estimate], load: Load) -> SchemePlan | None:
        """Another plan if the old one was a guess, or the probabilities have drifted; None if it may stay."""
        if load.held < 1 or min(each.arrived for each in learned) < self.enough:
            return None
        if old is None:
            return self.plan(learned, load)
        was_guess = not any(each.arrived for each in old.learned)
        if not was_guess and not self.drift.has_drifted(old.learned, learned):
            return None
        fresh, kept = (self.plan(learned, load, each) for each in (None, old.selection.is_eager))
        return fresh if fresh.selection.cost < kept.selection.cost * (1 - self.margin) else kept

    def restore(self, table: pa.Table) -> SchemePlan:
        """The plan that gave this table."""
        rows = table.select([f.name for f in fields(Estimate)]).to_pylist()
        load = Load(table["readings"][0].as_py(), table["held"][0].as_py())
        eager = table["eager"].to_numpy().astype(np.bool_)
        return self.plan([Estimate(**row) for row in rows], load, eager)
