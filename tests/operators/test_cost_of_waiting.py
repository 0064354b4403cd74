"""What waits costs nothing: a step allocates what it changes, however much is held.

Memory is looked at, not time, since that can be counted. The least of some steps counts: now and then one
pays for merging what many have left.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from recension.core import batch as core_batch
from recension.core.batch import EXTERNAL_CTI, INSERT, RETRACT, EventBatch, Index, take_rows
from recension.core.ticks import FOREVER, Ticks
from recension.operators import finalize as finalize_module
from recension.operators.cleanse import Cleanse
from recension.operators.finalize import Finalize
from recension.operators.state import row_store

SCHEMA = pa.schema([("x", pa.int64())])
FAR, STEPS = 10**6, 6


def rows(kind: int, vs: Ticks, ve: Ticks, new_ve: Ticks | None = None, count: int = 0) -> EventBatch:
    size = len(vs)
    payload = pa.RecordBatch.from_arrays([pa.array(vs)], schema=SCHEMA)
    new = np.full(size, FOREVER) if new_ve is None else new_ve
    return EventBatch(np.full(size, kind, np.uint8), vs, ve, new, np.full(size, count), payload)


def broken(held: int) -> Iterator[Callable[[], object]]:
    finalize, at = Finalize(SCHEMA, FOREVER), np.arange(held)
    finalize.on_batch(0, rows(RETRACT, at, at + 9, at + 5))
    for n in range(STEPS):
        fresh = FAR + np.arange(10 * n, 10 * n + 10)
        yield lambda: finalize.on_batch(0, rows(INSERT, fresh, fresh + 9))  # noqa: B023
        mended = at[10 * n : 10 * n + 10]
        yield lambda: finalize.on_batch(0, rows(INSERT, mended, mended + 9))  # noqa: B023
    assert len(finalize.on_batch(0, rows(INSERT, at[-1:], at[-1:] + 9))) == 1


def announced(held: int) -> Iterator[Callable[[], object]]:
    finalize, at = Finalize(SCHEMA, FOREVER), np.arange(held)
    finalize.on_batch(0, rows(EXTERNAL_CTI, at, at + 1, count=1))
    for n in range(STEPS):
        proven = at[10 * n : 10 * n + 10]
        yield lambda: finalize.on_batch(0, rows(INSERT, proven, proven + 9))  # noqa: B023
        assert finalize.out_cti == 10 * n + 10


def held_back(held: int) -> Iterator[Callable[[], object]]:
    cleanse, at = Cleanse(SCHEMA), np.arange(held)
    cleanse.on_batch(0, rows(INSERT, at, at + 1))
    for n in range(STEPS):
        yield lambda: cleanse.on_cti(0, 10 * n + 11)  # noqa: B023
        assert cleanse.state_rows() == held - 10 * n - 10


def started_together(held: int) -> Iterator[Callable[[], object]]:
    cleanse, at = Cleanse(SCHEMA), np.arange(held)
    cleanse.on_batch(0, from_zero(INSERT, at, at + 1))
    for n in range(STEPS):
        yield lambda: cleanse.on_cti(0, 10 * n + 11)  # noqa: B023
        assert cleanse.state_rows() == held - 10 * n - 10


def ended_one_by_one(held: int) -> Iterator[Callable[[], object]]:
    cleanse, at = Cleanse(SCHEMA), np.arange(held)
    cleanse.on_batch(0, from_zero(INSERT, at, np.full(held, FAR)))
    for n in range(STEPS):
        ended = at[10 * n : 10 * n + 10]
        batch = from_zero(RETRACT, ended, np.full(10, FAR), np.full(10, n + 1))
        yield lambda: (cleanse.on_batch(0, batch), cleanse.on_cti(0, n + 2))  # noqa: B023
        assert cleanse.state_rows() == held - 10 * n - 10


def from_zero(kind: int, x: Ticks, ve: Ticks, new_ve: Ticks | None = None) -> EventBatch:
    return replace(rows(kind, x, ve, new_ve), vs=np.zeros(len(x), np.int64))


def least(steps: Iterator[Callable[[], object]]) -> int:
    peaks = []
    for step in steps:
        tracemalloc.start()
        step()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "waiting", [broken, announced, held_back, started_together, ended_one_by_one], ids=lambda f: f.__name__
)
def test_a_step_allocates_as_much_with_eight_times_as_much_held(
    waiting: Callable[[int], Iterator[Callable[[], object]]],
) -> None:
    few = least(waiting(2_000))
    assert least(waiting(16_000)) < 1.5 * few + 10_000


@pytest.mark.parametrize("size", [100, 1_000])
def test_payloads_of_early_retractions_are_copied_batch_by_batch(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = 0

    def counted(payload: pa.RecordBatch, at: Index) -> pa.RecordBatch:
        nonlocal copies
        copies += 1
        return take_rows(payload, at)

    for module in (core_batch, finalize_module, row_store):
        monkeypatch.setattr(module, "take_rows", counted)
    finalize, at = Finalize(SCHEMA, FOREVER), np.arange(size)
    finalize.on_batch(0, rows(RETRACT, at, at + 9, at + 5))
    finalize.on_batch(0, rows(RETRACT, at, at + 5, at + 7))
    assert len(finalize.on_batch(0, rows(INSERT, at, at + 9))) == size
    assert 0 < copies < 20
