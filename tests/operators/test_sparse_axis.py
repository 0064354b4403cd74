"""Steps of equally long events that lie far apart: those that a sort of both ends gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from recension.operators.windowed import steps as windowed_steps
from recension.operators.windowed.dense_axis import DenseAxis
from recension.operators.windowed.steps import AxisSteps, Contributions, axis_steps


@pytest.mark.parametrize("groups", [1, 3, 50, 1000])
@pytest.mark.parametrize("length", [1, 2, 60])
def test_only_beginnings_need_a_sort(groups: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([groups, length])
    monkeypatch.setattr(DenseAxis, "try_build", staticmethod(lambda *_: None))
    place = windowed_steps._place_steps
    for _ in range(60):
        size = int(rng.integers(2, 40))
        group, start = rng.integers(0, groups, size), rng.integers(0, int(rng.choice([2, 100, 10**6])), size)
        values = np.round(rng.random(size) * 100, 3)
        whole = [np.ones(size, np.int64), rng.integers(-5, 5, size), np.zeros(size, np.int64)]
        amounts = Contributions(whole, [(values, np.zeros(size))])
        monkeypatch.setattr(windowed_steps, "_place_steps", place)
        placed = axis_steps(group, start, start, start + length, amounts)
        monkeypatch.setattr(windowed_steps, "_place_steps", lambda *_: None)
        _compare(placed, axis_steps(group, start, start, start + length, amounts))


def _compare(one: AxisSteps, other: AxisSteps) -> None:
    for name in ("group", "time", "refs", "n", "covered"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert [x.tolist() for x in one.ints] == [x.tolist() for x in other.ints]
    assert [p.tobytes() for pair in one.pairs for p in pair] == [
        p.tobytes() for pair in other.pairs for p in pair
    ]
