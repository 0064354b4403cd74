"""How the steps of a batch are laid between the end points kept so far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.windowed import working_set
from recension.operators.windowed.steps import AxisSteps
from recension.operators.windowed.working_set import _interleave

POINTS = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 9)), unique=True, max_size=30).map(sorted)


@pytest.mark.parametrize("least", [0, 1_000], ids=["marked", "searched for"])
@given(known=POINTS, steps=POINTS.filter(bool))
def test_end_points_and_steps_side_by_side(
    least: int, known: list[tuple[int, int]], steps: list[tuple[int, int]]
) -> None:
    (group, time), (own_group, own_time) = (np.array(p, np.int64).reshape(-1, 2).T for p in (steps, known))
    none = np.zeros(len(group), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working_set, "_SHORT", least)
        at_known, at_steps, is_new = _interleave(
            {"group": own_group, "time": own_time}, AxisSteps(group, time, none, none, none > 0, [], [])
        )
    merged = sorted({*known, *steps})
    assert [merged[at] for at in at_known.tolist()] == known
    assert [merged[at] for at in at_steps.tolist()] == steps
    assert is_new.tolist() == [point not in known for point in merged]
