"""User-defined modules of every kind: what their writers write, and what queries make of them.

    python examples/modules.py

Prints what each query answers. `QUERIES` and `EVENTS` are what the tests run on all three runners.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import recension as rc


class MyAverage(rc.Aggregate):
    """The average of a value (§IV.C of the paper)."""

    inputs = {"value": "float64"}
    result = "float64"
    is_order_sensitive = False

    def compute(self, payloads: Any) -> Any:
        return payloads["value"].mean()


class MyTimeWeightedAverage(rc.TimeSensitiveAggregate):
    """The average of a value, each weighted by how long it lives in the window (§IV.C of the paper)."""

    inputs = {"value": "float64"}
    result = "float64"

    def compute(self, events: Any, window: rc.Window) -> float:
        weighted = sum(e.payload["value"] * (e.ve - e.vs) for e in events)
        return float(weighted / (window.end - window.start))


class RunningSum(rc.IncrementalAggregate):
    """The sum of a value, kept up to date; overlapping windows share the sums of their panes."""

    inputs = {"value": "int64"}
    result = "int64"
    is_order_sensitive = False

    def initial(self) -> int:
        return 0

    def add(self, state: int, payloads: Any) -> int:
        return state + int(payloads["value"].sum())

    def remove(self, state: int, payloads: Any) -> int:
        return state - int(payloads["value"].sum())

    def merge(self, a: int, b: int) -> int:  # type: ignore[override]
        return a + b

    def compute(self, state: int) -> int:
        return state


class TopK(rc.Operator):
    """The k greatest values with their ranks."""

    inputs = {"value": "int64"}
    result = {"value": "int64", "rank": "int64"}
    k: int = 3

    def check(self) -> None:
        if self.k < 1:
            raise ValueError(f"k counts values from 1, not {self.k}")

    def compute(self, payloads: Any) -> Iterable[dict[str, int]]:
        greatest = sorted(payloads["value"].tolist(), reverse=True)[: self.k]
        return [{"value": value, "rank": rank} for rank, value in enumerate(greatest, 1)]


class FollowedBy(rc.TimeSensitiveOperator):
    """One thing followed by another within so many ticks: true from the second on, for as long."""

    inputs = {"what": "string"}
    result = {"first": "string", "second": "string", "after": "int64"}
    first: str
    second: str
    within: int = 10

    def compute(self, events: Any, window: rc.Window) -> Iterable[rc.Event]:
        begun = [e.vs for e in events if e.payload["what"] == self.first]
        for e in events:
            for at in begun:
                if (
                    e.payload["what"] == self.second
                    and at < e.vs <= at + self.within
                    and e.vs >= window.start
                ):
                    row = {"first": self.first, "second": self.second, "after": e.vs - at}
                    yield rc.Event(row, e.vs, e.vs + self.within)


@rc.udf(result="bool")
def is_notable(what: str, value: int) -> bool:
    """A function of two columns, called for every row."""
    return what == "off" or value > 4


readings = rc.source("readings", {"machine": "string", "what": "string", "value": "int64"})
by_machine = readings.group_by("machine")

QUERIES = {
    "average": by_machine.tumbling(10).agg(average=MyAverage(), n=rc.count()),
    "weighted": by_machine.hopping(10, 5).agg(weighted=MyTimeWeightedAverage(value=rc.col("value") * 1.0)),
    "notable": readings.where(is_notable("what", "value")).tumbling(10).agg(n=rc.count()),
    "median": by_machine.tumbling(10).agg(median=rc.aggregate(np.median, "value", result="float64")),
    "sum": by_machine.hopping(20, 5).agg(sum=RunningSum()),
    "top": readings.snapshot().apply(TopK(k=2)),
    "pattern": by_machine.count_window(3)
    .clip_input("right")
    .stamp_output("keep")
    .apply(FollowedBy, first="on", second="off", within=8),
}

EVENTS: list[Any] = [
    rc.Insert({"machine": "a", "what": "on", "value": 3}, 1, 6),
    rc.Insert({"machine": "b", "what": "on", "value": 8}, 2, 30),
    rc.Cti(2),
    rc.Insert({"machine": "a", "what": "off", "value": 5}, 7, 12),
    rc.Retract({"machine": "b", "what": "on", "value": 8}, 2, 30, 9),
    rc.Insert({"machine": "b", "what": "off", "value": 1}, 4, 20),
    rc.Insert({"machine": "a", "what": "on", "value": 7}, 15, 18),
    rc.Cti(12),
    rc.Insert({"machine": "b", "what": "on", "value": 2}, 13, 14),
    rc.Insert({"machine": "a", "what": "off", "value": 4}, 19, 25),
    rc.Cti(rc.FOREVER),
]


if __name__ == "__main__":
    for name, query in QUERIES.items():
        print(f"\n{name}")
        rc.run(query, {"readings": EVENTS}, verify_modules=True).show()
