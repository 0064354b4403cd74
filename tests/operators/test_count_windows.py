"""Count windows over many moments in many blocks: what is shown, what is promised, what is kept."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import recension as rc
from recension import denote
from recension.core.events import Element, Event, Insert
from recension.core.ticks import BEGINNING, FOREVER
from recension.denote.grouped import groups as groups_of
from recension.lowering import operator_of
from recension.operators.state import block_table
from recension.operators.windowed.counts import sums_of
from recension.plan.windows import Moment
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.physical import Dice, Shape, build_stream

SOURCE = rc.source("s", {"k": "string", "v": "int64", "x": "float64"})
AGGREGATES: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    "sums": (
        [],
        {"n": rc.count(), "s": rc.sum("v"), "m": rc.mean("x")},
        denote.agg(n=denote.count(), s=denote.sum("v"), m=denote.mean("x")),
    ),
    "choices": (
        [],
        {"s": rc.sum("x"), "top": rc.max("v"), "q": rc.quantile("x", 0.5), "d": rc.stddev("x")},
        denote.agg(s=denote.sum("x"), top=denote.max("v"), q=denote.quantile("x", 0.5), d=denote.stddev("x")),
    ),
    "lists": (
        [],
        {"all": rc.collect("v"), "first": rc.first("x"), "last": rc.last("x")},
        denote.agg(all=denote.collect("v"), first=denote.first("x"), last=denote.last("x")),
    ),
    "rows": ([rc.top_k(2, by="v")], {}, denote.top_k(2, by="v")),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_table, "_BLOCK", 4)


class Case:
    """A random stream and a query over it."""

    def __init__(self, seed: int, n: int, by: Moment, what: str, speculate: Any, *, grouped: bool) -> None:
        self._dice = random.Random(seed)
        self.n, self.by, self.grouped = n, by, grouped
        rows, named, self._rows = AGGREGATES[what]
        stream: Any = SOURCE.group_by("k") if grouped else SOURCE
        plan = stream.count_window(n, by=by).agg(*rows, speculate=speculate, **named).plan
        self.driver = Driver(lambda: operator_of(plan), SOURCE.schema)

    def batches(self) -> list[list[Element]]:
        events = [self._event() for _ in range(30)]
        told = build_stream(events, Dice(self._dice.randbytes(4000)), Shape(), [e.payload for e in events])
        batches = []
        while told:
            size = self._dice.choice([1, 2, 5, 30])
            batches.append(told[:size])
            told = told[size:]
        return batches

    def _event(self) -> Event:
        vs = self._dice.randrange(60)
        payload = {"k": self._dice.choice("ab"), "v": self._dice.choice([None, 1, 2])}
        ve = self._dice.choice([vs + self._dice.randint(1, 30), FOREVER])
        return Event(payload | {"x": self._dice.choice([0.1, 0.2, -3.3])}, vs, ve)

    def meaning(self) -> list[Event]:
        windows = denote.count_window(self.n, self.by)

        def one(history: list[Event]) -> list[Event]:
            return denote.window_aggregate(history, windows, self._rows)

        history = self.driver.input_history()
        return denote.grouped(history, "k", one) if self.grouped else one(history)

    def moments(self) -> list[list[int]]:
        """The distinct moments of each group."""
        history = self.driver.input_history()
        groups = groups_of(history, "k") if self.grouped else [history]
        by_start = self.by == "start"
        return [sorted({e.vs if by_start else e.ve for e in group} - {FOREVER}) for group in groups]

    def first_open(self, t: int) -> int:
        """Ruling G7: the first moment of the first window that can still change."""
        past = [[m for m in group if m < t] for group in self.moments()]
        return min([t, *(group[-(self.n - 1) :][0] for group in past if group and self.n > 1)])


CASES = pytest.mark.parametrize(
    ("seed", "n", "by", "grouped"),
    [(seed, n, by, g) for seed, n in enumerate((1, 2, 3, 7)) for by in ("start", "end") for g in (0, 1)],
)


@CASES
@pytest.mark.parametrize("what", AGGREGATES)
def test_eager_shows_all_windows(seed: int, n: int, by: Moment, grouped: int, what: str) -> None:
    case = Case(seed, n, by, what, "eager", grouped=bool(grouped))
    for number, batch in enumerate(case.batches()):
        if number % 3 == 2:
            case.driver.restore_twin()
        case.driver.feed(batch)
        assert_equivalent(case.driver.history(), case.meaning())
    assert case.driver.operator.state_rows() == 0


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
