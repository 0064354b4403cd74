"""Plans of schemes: made from what is learned, kept until it drifts, and told in words."""

from __future__ import annotations

import numpy as np
from benchmarks.coalescing_scenarios import WITH_CHARGE

from recension.operators.schemes.costs import Load, Weights
from recension.operators.schemes.learning import Estimate
from recension.operators.schemes.plan import Planner, SchemePlan, Sizes

NAMES = ("h by region", "l by mote", "v by mote")
PLANNER = Planner(NAMES, Sizes(40, (24, 32, 32), (8, 8, 8)), WITH_CHARGE[0], Weights(1, 1, 2))
LOAD = Load(20_000, 1_000)


def known(*cp: float, oop: float = 0.0, sample: float = 10_000) -> list[Estimate]:
    return [Estimate(p, oop, sample, sample) for p in cp]


def planned(old: SchemePlan | None, learned: list[Estimate]) -> SchemePlan | None:
    return PLANNER.replan(old, learned, LOAD)


def test_a_plan_stays_until_probabilities_drift() -> None:
    first = planned(None, known(0.9, 0.05, 0.05))
    assert first is not None
    assert first.selection.is_eager.tolist() == [True, False, False]
    assert planned(first, known(0.88, 0.06, 0.05)) is None
    second = planned(first, known(0.9, 0.9, 0.9))
    assert second is not None
    assert second.selection.is_eager.tolist() == [True, True, True]
    assert planned(second, known(0.9, 0.9, 0.9)) is None


def test_a_choice_that_is_hardly_cheaper_is_not_worth_moving() -> None:
    first = planned(None, known(0.9, 0.1, 0.1))
    assert first is not None
    grid = np.linspace(0.1, 0.9, 81)
    plans = [planned(first, known(0.9, p, p)) for p in grid]
    for plan in plans:
        if plan is None:
            continue
        best = PLANNER.plan(plan.learned, LOAD).selection
        # It is the best, or the old one at no more than the margin above the best.
        assert plan.selection.cost <= best.cost / (1 - PLANNER.margin) + 1e-9
        moved = plan.selection.is_eager.tolist() != first.selection.is_eager.tolist()
        assert not moved or plan.selection.cost == best.cost
    changes = [plan for plan in plans if plan and plan.selection.is_eager.all()]
    kept = [plan for plan in plans if plan and not plan.selection.is_eager.all()]
    assert changes
    assert kept
    assert any(PLANNER.plan(plan.learned, LOAD).selection.is_eager.all() for plan in kept)


def test_nothing_is_planned_before_anything_is_held() -> None:
    assert PLANNER.replan(None, known(0.0, 0.0, 0.0, sample=0), Load(0, 0)) is None


def test_costs_and_choice_in_words() -> None:
    plan = planned(None, known(0.9, 0.05, 0.2, oop=0.1))
    assert plan is not None
    assert plan.describe() == [
        "weights ⟨1, 1, 2⟩: this choice costs 4.54, all eager 4.77, all lazy 5.20; 2 extents",
        "h by region: eager; cp 0.90, oop 0.10; eager 1.24 (memory 0.24, update 0.90, scan 0.05), lazy 1.90",
        "l by mote: lazy; cp 0.05, oop 0.10; eager 1.82 (memory 0.77, update 0.10, scan 0.48), lazy 1.05",
        "v by mote: lazy; cp 0.20, oop 0.10; eager 1.71 (memory 0.68, update 0.23, scan 0.40), lazy 1.20",
        "the extent that lazy queries share: 1.05",
    ]
