"""How the steps of a batch are laid between the end points kept so far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.windowed import working_set
from recension.operators.windowed.steps import AxisSteps
from recension.operators.windowed.working_set import Sums, _interleave

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


def test_a_row_without_events_left_has_no_rounding_error_left() -> None:
    """0.1 was lost beside 1e40, and is taken back nevertheless."""
    none = np.zeros(2)
    held = Sums(np.array([2, 2]), [], [(np.array([1e40, 1e40]), none)])
    taken = Sums(np.array([-2, -1]), [], [(np.array([-1e40, -1e40]), np.array([-0.1, -0.1]))])
    ((high, low),) = held.add(taken).pairs
    assert (high + low).tolist() == [0.0, -0.1]
