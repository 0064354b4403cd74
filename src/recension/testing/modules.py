"""Modules that show what a module sees: for transcripts, and for trying out windows and policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from recension.core.events import Event
from recension.modules import Events, IncrementalAggregate, Payloads, TimeSensitiveOperator, Window
from recension.modules.contracts import Operator


class Echo(TimeSensitiveOperator):
    """Every event as it is seen in its window, with the value ``v``.

    Seen from its own start where it is not clipped on the left; the query's stamping has the last word.
    """

    inputs: ClassVar[Any] = {"v": None}
    result: ClassVar[Any] = {"v": "int64"}

    def compute(self, events: Events, window: Window) -> Iterable[Event]:
        return iter(events)


class Seen(TimeSensitiveOperator):
    """The value and the lifetime of every event as it is seen, as long as the window."""

    inputs: ClassVar[Any] = {"v": None}
    result: ClassVar[Any] = {"v": "int64", "from": "int64", "to": "int64"}

    def compute(self, events: Events, window: Window) -> Iterable[dict[str, Any]]:
        return [{"v": e.payload["v"], "from": e.vs, "to": e.ve} for e in events]


class Members(Operator):
    """The value of every member."""

    inputs: ClassVar[Any] = {"v": None}
    result: ClassVar[Any] = {"v": "int64"}

    def compute(self, payloads: Payloads) -> Iterable[dict[str, Any]]:
        return [{"v": p["v"]} for p in payloads]


class Total(IncrementalAggregate):
    """The sum of the values that are there, kept up to date; null if there is none."""

    inputs: ClassVar[Any] = {"v": "int64"}
    result: ClassVar[Any] = "int64"
    is_order_sensitive: ClassVar[bool] = False

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def add(self, state: tuple[int, int], payloads: Payloads) -> tuple[int, int]:
        values = [p["v"] for p in payloads if p["v"] is not None]
        return state[0] + sum(values), state[1] + len(values)

    def remove(self, state: tuple[int, int], payloads: Payloads) -> tuple[int, int]:
        values = [p["v"] for p in payloads if p["v"] is not None]
        return state[0] - sum(values), state[1] - len(values)

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]

    def compute(self, state: tuple[int, int]) -> int | None:
        return state[0] if state[1] else None
