"""Chart patterns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import recension as rc


class HeadAndShoulders(rc.TimeSensitiveOperator):
    """Three peaks in a row, the middle one higher than its neighbours by at least ``depth``.

    Found when the third peak has passed, and true from then to the end of the window.
    """

    inputs = {"price": "float64"}
    result = {"left": "float64", "head": "float64", "right": "float64"}
    depth: int = 1

    def check(self) -> None:
        if self.depth < 1:
            raise ValueError(f"depth is at least 1, not {self.depth}")

    def compute(self, events: Any, window: rc.Window) -> Iterable[rc.Event]:
        peaks = list(_peaks(events["price"].tolist(), events.vs.tolist()))
        for (left, _), (head, _), (right, at) in zip(peaks, peaks[1:], peaks[2:], strict=False):
            if head >= max(left, right) + self.depth:
                yield rc.Event({"left": left, "head": head, "right": right}, at, window.end)


def _peaks(prices: list[float], times: list[int]) -> Iterable[tuple[float, int]]:
    """Prices that are higher than the one before and the one after, with the time of the one after."""
    at = zip(prices, times, strict=True)
    for ((before, _), (price, _)), (_, (after, time)) in pairwise(pairwise(at)):
        if before < price > after:
            yield price, time
