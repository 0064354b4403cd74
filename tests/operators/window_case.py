"""A random stream, and aggregates of windows over it: for windows that the data make (counts, sessions)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import recension as rc
from recension import denote
from recension.core.events import Element, Event
from recension.denote.grouped import groups as groups_of
from recension.lowering import operator_of
from recension.testing import assert_equivalent
from recension.testing.driver import Driver
from recension.testing.physical import Dice, Shape, build_stream

SCHEMA = {"k": "string", "v": "int64", "x": "float64"}
SOURCE = rc.source("s", SCHEMA)
INSERTS = rc.source("s", SCHEMA, properties=rc.Properties(is_insert_only=True))
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


class WindowCase:
    """A stream and a query over it. ``window`` is how a stream is cut, ``windows`` what that means.

    ``end`` draws the end of an event from its start.
    """

    def __init__(
        self,
        seed: int,
        window: Callable[[Any], Any],
        windows: denote.Windows,
        end: Callable[[random.Random, int], int],
        what: str,
        speculate: Any,
        *,
        grouped: bool,
        insert_only: bool = False,
    ) -> None:
        self._dice, self._windows, self._end = random.Random(seed), windows, end
        self._grouped, self._shape = grouped, Shape(insert_only=insert_only)
        rows, named, self._rows = AGGREGATES[what]
        source = INSERTS if insert_only else SOURCE
        plan = window(source.group_by("k") if grouped else source)
        plan = plan.agg(*rows, speculate=speculate, **named).plan
        self.driver = Driver(lambda: operator_of(plan), SOURCE.schema)

    def batches(self) -> list[list[Element]]:
        """Thirty events as they arrive."""
        events = [self._event() for _ in range(30)]
        dice = Dice(self._dice.randbytes(4000))
        told = build_stream(events, dice, self._shape, [e.payload for e in events])
        batches = []
        while told:
            size = self._dice.choice([1, 2, 5, 30])
            batches.append(told[:size])
            told = told[size:]
        return batches

    def _event(self) -> Event:
        vs = self._dice.randrange(100)
        payload = {"k": self._dice.choice("ab"), "v": self._dice.choice([None, 1, 2])}
        ve = self._end(self._dice, vs)
        return Event(payload | {"x": self._dice.choice([0.1, 0.2, -3.3])}, vs, ve)

    def meaning(self) -> list[Event]:
        """The answer to what has come."""

        def one(history: list[Event]) -> list[Event]:
            return denote.window_aggregate(history, self._windows, self._rows)

        history = self.driver.input_history()
        return denote.grouped(history, "k", one) if self._grouped else one(history)

    def groups(self) -> list[list[Event]]:
        """What has come, group by group."""
        history = self.driver.input_history()
        return list(groups_of(history, "k")) if self._grouped else [history]

    def check_every_batch(self) -> None:
        """Everything is shown at once, by a twin too, and nothing is left in the end."""
        for number, batch in enumerate(self.batches()):
            if number % 3 == 2:
                self.driver.restore_twin()
            self.driver.feed(batch)
            assert_equivalent(self.driver.history(), self.meaning())
        assert self.driver.operator.state_rows() == 0
