"""Count windows over many moments in many blocks: what is shown, what is promised, what is kept."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.operators.window_case import AGGREGATES, WindowCase

from recension import denote
from recension.core.events import Insert
from recension.core.ticks import BEGINNING, FOREVER
from recension.operators.state import block_table
from recension.operators.windowed.counts import sums_of
from recension.plan.windows import Moment
from recension.testing import assert_equivalent


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_table, "_BLOCK", 4)


def _end(dice: random.Random, vs: int) -> int:
    return dice.choice([vs + dice.randint(1, 30), FOREVER])


class Case(WindowCase):
    """Count windows."""

    def __init__(self, seed: int, n: int, by: Moment, what: str, speculate: Any, *, grouped: bool) -> None:
        windows = denote.count_window(n, by)
        super().__init__(
            seed, lambda s: s.count_window(n, by=by), windows, _end, what, speculate, grouped=grouped
        )
        self.n, self.by = n, by

    def moments(self) -> list[list[int]]:
        """The distinct moments of each group."""
        by_start = self.by == "start"
        return [sorted({e.vs if by_start else e.ve for e in group} - {FOREVER}) for group in self.groups()]

    def first_open(self, t: int) -> int:
        """Ruling G7: the first moment of the first window that can still change."""
        past = [[m for m in group if m < t] for group in self.moments()]
        return min([t, *(group[-(self.n - 1) :][0] for group in past if group and self.n > 1)])


CASES = pytest.mark.parametrize(
    ("seed", "n", "by", "grouped"),
    [(seed, n, by, g) for seed, n in enumerate((1, 2, 3, 7)) for by in ("start", "end") for g in (0, 1)],
)


@pytest.mark.pairs
@CASES
@pytest.mark.parametrize("what", AGGREGATES)
def test_eager_shows_all_windows(seed: int, n: int, by: Moment, grouped: int, what: str) -> None:
    Case(seed, n, by, what, "eager", grouped=bool(grouped)).check_every_batch()


@pytest.mark.pairs
@CASES
@pytest.mark.parametrize("what", AGGREGATES)
def test_others_show_the_windows_that_have_ended(
    seed: int, n: int, by: Moment, grouped: int, what: str
) -> None:
    case, watermark = Case(seed, n, by, what, "perfect", grouped=bool(grouped)), BEGINNING
    for batch in case.batches():
        case.driver.feed(batch)
        starts = [element.vs for element in batch if isinstance(element, Insert)]
        watermark = max(watermark, case.driver.input_cti(), *starts)
        assert_equivalent(case.driver.history(), [e for e in case.meaning() if e.ve <= watermark])


@CASES
def test_ctis_and_state_go_as_far_as_they_can(seed: int, n: int, by: Moment, grouped: int) -> None:
    case = Case(seed, n, by, "sums", "eager", grouped=bool(grouped))
    for batch in case.batches():
        t = case.driver.input_cti()
        case.driver.feed(batch)
        if t < case.driver.input_cti() < FOREVER:
            t = case.driver.input_cti()
            assert case.driver.cti == case.first_open(t)
            needed = [
                len([m for m in g if m >= t]) + min(n - 1, len([m for m in g if m < t]))
                for g in case.moments()
            ]
            assert case.driver.operator.state_rows() == sum(needed)


@pytest.mark.parametrize("n", range(1, 20))
def test_sums_of_consecutive_values(n: int) -> None:
    values = np.arange(16) ** 2
    expected = [int(values[i : i + n].sum()) for i in range(16 - n + 1)]
    assert sums_of(values, n, np.add).tolist() == expected
