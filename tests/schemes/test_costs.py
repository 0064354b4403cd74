"""The cost model: equations 1 to 10 as sums over single tuples, what they count, how costs are ordered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.coalescing_scenarios import WITH_CHARGE
from hypothesis import given, settings
from hypothesis import strategies as st

from recension.operators.schemes.constants import Constants, Numbers
from recension.operators.schemes.costs import CostModel, Load, Queries, Weights

CONSTANTS = Constants(
    read=1,
    coalesce=2,
    insert=3,
    delete=0.5,
    detach=0.25,
    merge=2.5,
    merge_late=1,
    split=0.7,
    split_late=0.1,
    find=0.3,
    stamp=0.2,
)
shares = st.sampled_from([i / 10 for i in range(11)])


@given(st.integers(1, 60), st.integers(1, 20), shares, shares)
@settings(max_examples=40)
def test_equations_are_sums_over_tuples(k: int, w: int, cp: float, oop: float) -> None:
    """Rulings 24 to 28, tuple by tuple; only the first tuple of all has nothing to coalesce with."""
    c, r, m, n = CONSTANTS, 24.0, 8.0, min(k, w)
    merge, split = c.merge + c.merge_late * oop * cp, c.split + c.split_late * oop / max(cp, 1 / n)
    memory, scan, lazy_scan = r, c.read, n * c.read
    for _ in range(n - 1):
        memory += cp * m + (1 - cp) * r
        scan += (1 - cp) * c.read + cp * c.stamp
        lazy_scan += cp * c.coalesce
    update = lazy_update = 0.0
    for i in range(1, k + 1):
        update += (1 - oop) * (1 - cp) * c.insert + (1 - oop) * cp * merge
        update += oop * (1 - cp) * (c.insert + split) + oop * cp * merge
        lazy_update += c.insert + oop * c.find
        if i > w:
            update += cp * c.detach + (1 - cp) * c.delete
            lazy_update += c.delete
    model = CostModel(c, Load(k, min(k, w)), 40, oop)
    q = Queries.broadcast([cp], [oop], r, m)
    assert model.eager_memory(q)[0] == pytest.approx(memory)
    assert model.lazy_memory() == n * 40
    assert model.eager_update(q)[0] == pytest.approx(update)
    assert model.lazy_update() == pytest.approx(lazy_update)
    assert model.eager_scan(q)[0] == pytest.approx(scan)
    assert model.lazy_scan(q)[0] == pytest.approx(lazy_scan)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 4))
@settings(max_examples=40)
def test_memory_and_scans_are_exact(like_the_one_before: list[bool], groups: int) -> None:
    """With the share that really coalesced, the equations count what a window extent holds (ruling 24)."""
    tuples = [like_the_one_before] * groups
    runs = sum(1 + own[1:].count(False) for own in tuples)
    held = sum(map(len, tuples))
    cp = (held - runs) / (held - groups) if held > groups else 0.0
    model = CostModel(CONSTANTS, Load(held, held), 40, 0.0)
    q = Queries.broadcast([cp], [0.0], 24, 8, groups)
    assert model.eager_memory(q)[0] == pytest.approx(runs * 24 + (held - runs) * 8)
    assert model.eager_scan(q)[0] == pytest.approx(runs * CONSTANTS.read + (held - runs) * CONSTANTS.stamp)
    assert model.lazy_scan(q)[0] == pytest.approx(held * CONSTANTS.read + (held - runs) * CONSTANTS.coalesce)


def surface(weights: Weights) -> tuple[Numbers, Numbers]:
    """What a lone query costs by either scheme, cp down and oop across."""
    cp, oop = (x.ravel() for x in np.meshgrid(*[np.linspace(0, 1, 11)] * 2, indexing="ij"))
    constants, usual_oop = WITH_CHARGE
    model = CostModel(constants, Load(20_000, 1_000), 40, usual_oop, weights)
    q = Queries.broadcast(cp, oop, 24)
    return model.eager_cost(q).reshape(11, 11), (model.lazy_cost(q) + model.shared_cost()).reshape(11, 11)


def test_relations_of_figures_3_and_4() -> None:
    """§7.2 and rulings 37 to 39, with the constants that make the paper's selections."""
    ahead = []
    for update in (1, 50, 100):
        eager, lazy = surface(Weights(1, update, 1))
        assert (np.diff(eager, axis=1) >= -1e-9).all(), "disorder makes eager updates dearer"
        assert eager.argmax() == 10, "dearest at (0, 1)"
        ahead.append(int((eager < lazy).sum()))
    assert ahead[0] > ahead[1] >= ahead[2], "heavier updates favour lazy"
    eager, lazy = surface(Weights(1, 1, 1))
    # Where nothing coalesces C_split has no bound.
    assert (eager[1:] < lazy[1:]).all(), "eager outperforms lazy over the square"
    assert eager.argmin() == 110, "cheapest at (1, 0)"
    eager, lazy = surface(Weights(0, 1, 1))
    assert np.abs(eager[1:] - lazy[1:]).max() < 0.25, "nearly the same without memory"


def test_weights_pull_where_they_should() -> None:
    """§7.4: heavier updates favour lazy, heavier scans favour eager."""
    for cp in (0.2, 0.5, 0.8):
        q = Queries.broadcast([cp], [0.3], 24)

        def gain(weights: Weights, q: Queries = q) -> float:
            model = CostModel(WITH_CHARGE[0], Load(20_000, 1_000), 40, 0.3, weights)
            return float(model.lazy_cost(q)[0] - model.eager_cost(q)[0])

        assert gain(Weights(1, 2, 1)) < gain(Weights(1, 1, 1)) < gain(Weights(1, 1, 2))
        assert gain(Weights(2, 1, 1)) < gain(Weights(1, 1, 1))


def test_scans_differ_by_cp() -> None:
    """Ruling 32: what a read and a comparison cost cancels out, if timestamps are for nothing."""
    model = CostModel(replace(CONSTANTS, stamp=0.0), Load(10**9, 10**8), 40, 0.0, Weights(0, 0, 1))
    q = Queries.broadcast([0.0, 0.3, 1.0], [0.0] * 3, 24)
    assert model.lazy_cost(q) - model.eager_cost(q) == pytest.approx([0.0, 0.3, 1.0], abs=1e-6)
