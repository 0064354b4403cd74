"""The optimal selection against all subsets; and the paper's own scenarios."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from benchmarks.coalescing_scenarios import AS_PRINTED, ROW_BYTES, SCENARIOS, WITH_CHARGE, Scenario
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.schemes.constants import Constants
from recension.operators.schemes.costs import CostModel, Load, Queries
from recension.operators.schemes.plan import SchemeSelection, cost_of, select

costs = st.floats(0, 10) | st.sampled_from([0.0, 1.0, 2.0])


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=7), costs)
def test_as_good_as_the_best_of_all_subsets(drawn: list[tuple[float, float]], shared: float) -> None:
    eager, lazy = (np.array(x) for x in zip(*drawn, strict=True))
    found = select(eager, lazy, shared)
    every = [np.array(choice) for choice in product([False, True], repeat=len(drawn))]
    best = min(_objective(choice, drawn, shared) for choice in every)
    assert found.cost == pytest.approx(best)
    assert found.cost == pytest.approx(_objective(found.is_eager, drawn, shared))
    assert found.all_eager == pytest.approx(_objective(every[-1], drawn, shared))
    assert found.all_lazy == pytest.approx(_objective(every[0], drawn, shared))
    assert found.cost <= min(found.all_eager, found.all_lazy) + 1e-9
    assert found.extents == sum(found.is_eager) + (0 if all(found.is_eager) else 1)


def _objective(choice: np.ndarray, drawn: list[tuple[float, float]], shared: float) -> float:
    """The 0-1 program's, spelled out: y is 1 if any x is 0."""
    x = [int(is_eager) for is_eager in choice]
    y = max(1 - each for each in x)
    return sum(e * xj + s * (1 - xj) for xj, (e, s) in zip(x, drawn, strict=True)) + shared * y


def test_a_lone_lazy_query_must_save_more_than_the_shared_extent_costs() -> None:
    eager, lazy = np.array([1.0, 1.0, 1.5]), np.array([2.0, 2.0, 1.0])
    assert select(eager, lazy, 0.4).is_eager.tolist() == [True, True, False]
    assert select(eager, lazy, 0.6).is_eager.tolist() == [True, True, True]
    assert cost_of(np.array([True, True, False]), eager, lazy, 0.6) == pytest.approx(3.6)


def _selected(
    scenario: Scenario, constants: Constants, usual_oop: float, *, is_charged: bool
) -> SchemeSelection:
    model = CostModel(constants, Load(20_000, 1_000), 40, usual_oop, scenario.weights)
    q = Queries.broadcast(scenario.cp, scenario.oop, ROW_BYTES)
    return select(model.eager_cost(q), model.lazy_cost(q), model.shared_cost() if is_charged else 0.0)


@pytest.mark.parametrize("is_charged", [False, True], ids=["as printed", "with the charge"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: f"table {s.table}, case {s.case}")
def test_scenarios_of_tables_5_and_6(scenario: Scenario, is_charged: bool) -> None:
    found = _selected(scenario, *(WITH_CHARGE if is_charged else AS_PRINTED), is_charged=is_charged)
    assert found.is_eager.tolist() == scenario.is_eager
    cost = {"optimal": found.cost, "eager": found.all_eager, "lazy": found.all_lazy}
    words = scenario.relation.split()
    for one, sign, other in zip(words[::2], words[1::2], words[2::2], strict=False):
        assert cost[one] == cost[other] if sign == "=" else cost[one] < cost[other]
