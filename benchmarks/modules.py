"""Users' modules over windows: against the library's aggregates, incremental or not, overlapping, grouped."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import recension as rc
from benchmarks.harness import Measurement, Suite
from recension.core.batch import EventBatch, inserts

if TYPE_CHECKING:
    from recension.runners.local import Session

WINDOW, BATCH, GROUPS = 1_000, 65_536, 1_000
_SOME, _FEW, _KEYS = 500_000, 40_000, 100


class VectorSum(rc.Aggregate):
    """On a whole column."""

    inputs = {"value": "int64"}
    result = "int64"
    is_order_sensitive = False

    def compute(self, payloads: Any) -> Any:
        return payloads["value"].sum()


class RowSum(VectorSum):
    """Row by row."""

    def compute(self, payloads: Any) -> Any:
        return sum(row["value"] for row in payloads)


class KeptSum(rc.IncrementalAggregate):
    """By what comes and goes."""

    inputs = {"value": "int64"}
    result = "int64"
    is_order_sensitive = False

    def initial(self) -> int:
        return 0

    def add(self, state: int, payloads: Any) -> int:
        return state + int(payloads["value"].sum())

    def remove(self, state: int, payloads: Any) -> int:
        return state - int(payloads["value"].sum())

    def compute(self, state: int) -> int:
        return state


class SharedSum(KeptSum):
    """… by panes."""

    def merge(self, a: int, b: int) -> int:
        return a + b


class Median(rc.Aggregate):
    inputs = {"value": "int64"}
    result = "float64"
    is_order_sensitive = False

    def compute(self, payloads: Any) -> Any:
        return np.median(payloads["value"])


class KeptMedian(rc.IncrementalAggregate):
    """In a sorted list."""

    inputs = {"value": "int64"}
    result = "float64"
    is_order_sensitive = False

    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], payloads: Any) -> list[int]:
        for value in payloads["value"].tolist():
            insort(state, value)
        return state

    def remove(self, state: list[int], payloads: Any) -> list[int]:
        for value in payloads["value"].tolist():
            del state[bisect_left(state, value)]
        return state

    def compute(self, state: list[int]) -> float:
        middle = len(state) // 2
        return float(state[middle]) if len(state) % 2 else (state[middle - 1] + state[middle]) / 2


class Weighted(rc.TimeSensitiveAggregate):
    """Weighted by lifetime, as the paper writes it."""

    inputs = {"value": "int64"}
    result = "float64"
    is_order_sensitive = False

    def compute(self, events: Any, window: rc.Window) -> Any:
        return sum(e.payload["value"] * (e.ve - e.vs) for e in events) / (window.end - window.start)


class KeptWeighted(rc.IncrementalTimeSensitiveAggregate):
    inputs = {"value": "int64"}
    result = "float64"
    is_order_sensitive = False

    def initial(self, window: rc.Window) -> int:
        return 0

    def add(self, state: int, events: Any, window: rc.Window) -> int:
        return state + int((events["value"] * (events.ve - events.vs)).sum())

    def remove(self, state: int, events: Any, window: rc.Window) -> int:
        return state - int((events["value"] * (events.ve - events.vs)).sum())

    def compute(self, state: int, window: rc.Window) -> float:
        return state / (window.end - window.start)


def _stream(size: int, _: Path, *, batch: int = BATCH, groups: int = GROUPS) -> list[EventBatch]:
    """Point events, one a tick, of many keys."""
    rng = np.random.default_rng(7)
    key, value = rng.integers(0, groups, size), rng.integers(0, 1_000, size)
    at = np.arange(size)
    rows = pa.record_batch({"key": key, "value": value})
    return [
        inserts(at[a : a + batch], at[a : a + batch] + 1, rows.slice(a, batch)) for a in range(0, size, batch)
    ]


def _feed() -> Any:
    known = rc.Properties(is_insert_only=True)
    return rc.source("feed", {"key": "int64", "value": "int64"}, properties=known)


def _session(
    answer: Any, size: int = WINDOW, hop: int = WINDOW, *, grouped: bool = False, eager: bool = False
) -> Session:
    stream = _feed().group_by("key") if grouped else _feed()
    return rc.session(stream.hopping(size, hop).agg(s=answer, speculate="eager" if eager else "perfect"))


def _run(make: Any, batches: list[EventBatch]) -> int:
    """The number of answers, those taken back not counted."""
    live, answers, seen = make(), 0, 0
    for batch in batches:
        seen += len(batch)
        live.push("feed", batch)
        live.advance("feed", seen)
        answers += sum(int((out.kind == 0).sum()) - int((out.kind == 1).sum()) for out in live.read().batches)
    return answers


def _measured(name: str, make: Any, *against: str, target: float | None = None) -> Measurement:
    return Measurement(
        name, _stream, partial(_run, make), sizes=(_SOME, 2 * _SOME), against=against, target=target
    )


def notes() -> list[str]:
    """Incremental or not as windows grow, shown at once and revised; and overlaps of 1, 10 and 100."""
    pairs = [
        ("sum", RowSum, KeptSum),
        ("median", Median, KeptMedian),
        ("weighted", Weighted, KeptWeighted),
    ]
    lines = []
    batches = _stream(_FEW, Path(), batch=1_000, groups=_KEYS)
    for name, whole, kept in pairs:
        for size in (10, 100, 1_000):
            whole_rate, kept_rate = (
                _rate(partial(_session, m(), _KEYS * size, _KEYS * size, grouped=True, eager=True), batches)
                for m in (whole, kept)
            )
            lines.append(
                f"{name}, windows of {size:,} events of {_KEYS} keys, revised every 10: "
                f"{whole_rate:,.0f} events/s from all events, {kept_rate:,.0f} incremental"
            )
    batches = _stream(_SOME, Path())
    for panes in (1, 10, 100):
        make = partial(_session, SharedSum(), panes * 100, 100)
        seconds, rows = min(_seconds(make, batches) for _ in range(2))
        lines.append(
            f"mergeable sum, size/hop = {panes}: {1e6 * seconds / rows:.1f} µs a row out ({rows:,} rows)"
        )
    return lines


def _rate(make: Any, batches: list[EventBatch]) -> float:
    return _FEW / min(_seconds(make, batches)[0] for _ in range(2))


def _seconds(make: Any, batches: list[EventBatch]) -> tuple[float, int]:
    began = time.process_time()
    rows = _run(make, batches)
    return time.process_time() - began, rows


SUITE = Suite(
    "modules",
    "Users' modules: sums over tumbling windows of 1,000 events, 10-fold overlaps, 1,000 groups",
    (
        _measured("built-in sum", partial(_session, rc.sum("value"))),
        _measured("vectorised UDA", lambda: _session(VectorSum()), "built-in sum"),
        _measured(
            "function of an array",
            lambda: _session(rc.aggregate(np.sum, "value", result="int64")),
            "built-in sum",
        ),
        _measured("per-row Python UDA", lambda: _session(RowSum()), "built-in sum"),
        _measured("built-in sum, overlap 10", partial(_session, rc.sum("value"), WINDOW, WINDOW // 10)),
        _measured(
            "incremental sum, overlap 10",
            lambda: _session(KeptSum(), WINDOW, WINDOW // 10),
            "built-in sum, overlap 10",
            target=300_000,
        ),
        _measured(
            "mergeable sum, overlap 10",
            lambda: _session(SharedSum(), WINDOW, WINDOW // 10),
            "built-in sum, overlap 10",
            target=300_000,
        ),
        _measured(
            "built-in sum, 1,000 groups",
            partial(_session, rc.sum("value"), 100 * WINDOW, 100 * WINDOW, grouped=True),
        ),
        _measured(
            "vectorised UDA, 1,000 groups",
            lambda: _session(VectorSum(), 100 * WINDOW, 100 * WINDOW, grouped=True),
            "built-in sum, 1,000 groups",
        ),
        _measured(
            "incremental sum, 1,000 groups",
            lambda: _session(KeptSum(), 100 * WINDOW, 100 * WINDOW, grouped=True),
            "built-in sum, 1,000 groups",
        ),
    ),
)
