"""The study of eager against lazy, on few readings: its runs are real, and its relations hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.coalescing_runs import QUICK, measured
from benchmarks.coalescing_scenarios import SCENARIOS
from benchmarks.coalescing_study import ours, study, surfaces

from recension.operators.schemes.costs import Weights

FEW = replace(QUICK, size=2_000, window=500)


def test_memory_is_that_of_the_extents() -> None:
    """It falls as more readings coalesce where the extent is eager, and nowhere depends on disorder."""
    eager = [measured(FEW, 0, cp, 0.0, is_eager=True).memory for cp in (0.0, 0.5, 1.0)]
    assert eager == sorted(eager, reverse=True)
    assert eager[-1] < 0.85 * eager[0]
    lazy = [measured(FEW, 0, cp, 0.0, is_eager=False).memory for cp in (0.0, 1.0)]
    assert lazy[0] == lazy[1] > eager[0]


def test_surfaces_are_of_all_points() -> None:
    found = surfaces(FEW, Weights(1, 0, 0))
    assert found.eager.shape == (3, 3)
    assert (found.eager < found.lazy).all()
    assert np.isclose(found.lazy, 1, rtol=0.1).all()
    assert found.relations().startswith("eager cheaper at 9 of 9 points")


@pytest.mark.slow
def test_selections_stand_beside_the_papers() -> None:
    lines = list(study(FEW))
    cases = [line for line in lines if line.startswith(("  5.", "  6."))]
    assert len(cases) == len(SCENARIOS) == 10
    for scenario, line in zip(SCENARIOS, cases, strict=True):
        chosen = ours(FEW, scenario)
        assert f"{scenario.eager:8}" in line
        assert line.endswith(chosen.reason(scenario.eager))
        found = chosen.selection
        assert found.cost <= min(found.all_eager, found.all_lazy) + 1e-9
    assert lines[-1].startswith("agreement with the paper on this machine: ")
