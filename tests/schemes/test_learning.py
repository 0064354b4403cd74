"""Probabilities learned from batches: right on average, the same in any batches, remembered and forgotten."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recension.operators.extents.calibration import readings
from recension.operators.schemes.learning import Estimate, Probabilities
from recension.operators.schemes.plan import Drift

SCHEMA = pa.schema([("v", pa.int64())])

Row = tuple[int, int, int]
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 2)), max_size=25)


def learner(half_life: float = float("inf")) -> Probabilities:
    return Probabilities(SCHEMA, half_life=half_life)


def shown(to: Probabilities, batch: list[Row]) -> None:
    group, time, value = np.array(batch, np.int64).reshape(-1, 3).T
    to.observe(group.astype(np.uint64), time, pa.record_batch([pa.array(value)], schema=SCHEMA))


@given(rows)
def test_one_tuple_at_a_time_counts_what_comes_after_the_latest(arriving: list[Row]) -> None:
    """The plainest way: a dictionary of the latest of each group."""
    learned, latest = learner(), dict[int, tuple[int, int]]()
    late = compared = merged = 0
    for group, time, value in arriving:
        shown(learned, [(group, time, value)])
        if group in latest and time < latest[group][0]:
            late += 1
            continue
        compared += 1
        merged += group in latest and latest[group][1] == value
        latest[group] = (time, value)
    found = learned.estimate()
    assert (found.arrived, found.compared) == (len(arriving), compared)
    assert found.oop == pytest.approx(late / len(arriving) if arriving else 0)
    assert found.cp == pytest.approx(merged / compared if compared else 0)


@given(rows, st.integers(1, 25))
def test_disorder_is_the_same_in_any_batches(arriving: list[Row], size: int) -> None:
    one, other = learner(), learner()
    for start in range(0, len(arriving), size):
        shown(one, arriving[start : start + size])
    shown(other, arriving)
    assert one.estimate().oop == other.estimate().oop
    in_order = sorted(set(arriving), key=lambda row: row[1])
    one, other = learner(), learner()
    for start in range(0, len(in_order), size):
        shown(one, in_order[start : start + size])
    shown(other, in_order)
    assert one.estimate() == other.estimate()


@given(rows, rows)
def test_a_snapshot_goes_on_as_the_original(first: list[Row], then: list[Row]) -> None:
    original, restored = learner(10), learner(10)
    shown(original, first)
    restored.restore(original.snapshot())
    for each in (original, restored):
        shown(each, then)
    assert restored.estimate() == original.estimate()
    assert restored.snapshot() == original.snapshot()


def test_probabilities_are_found_and_followed() -> None:
    learned, size = learner(2_000), 20_000
    for part, (cp, oop) in enumerate([(0.8, 0.0), (0.3, 0.5), (0.9, 1.0)]):
        times, groups, values = readings(size, cp, oop, groups=3)
        for start in range(0, size, 1_000):
            rows = slice(start, start + 1_000)
            batch = pa.record_batch([pa.array(values[rows])], schema=SCHEMA)
            learned.observe(groups[rows].astype(np.uint64), times[rows] + part * size, batch)
        assert learned.estimate().cp == pytest.approx(cp, abs=0.04)
        assert learned.estimate().oop == pytest.approx(oop, abs=0.04)
    assert len(learned) == 3
    learned.forget_before(3 * size)
    assert len(learned) == 0


def test_an_equivalence_of_the_users_own() -> None:
    def rising(one: pa.RecordBatch, other: pa.RecordBatch) -> np.ndarray:
        return np.asarray(other.column(0).to_numpy() > one.column(0).to_numpy())

    learned = Probabilities(SCHEMA, rising)
    shown(learned, [(0, 1, 1), (0, 2, 2), (0, 3, 5), (0, 4, 0), (0, 5, 1)])
    assert learned.estimate().cp == 3 / 5


def estimate(cp: float, oop: float, size: float) -> Estimate:
    return Estimate(cp, oop, size, size)


def test_drift_is_more_than_chance() -> None:
    drift = Drift(tolerance=0.05)
    planned = [estimate(0.5, 0.0, 10_000), estimate(0.9, 0.1, 10_000)]
    assert not drift.has_drifted(planned, planned)
    assert not drift.has_drifted(planned, [estimate(0.54, 0.0, 10_000), planned[1]])
    assert drift.has_drifted(planned, [estimate(0.56, 0.0, 10_000), planned[1]])
    assert drift.has_drifted(planned, [planned[0], estimate(0.9, 0.3, 10_000)])
    # In so few tuples it may be chance.
    assert not drift.has_drifted(planned, [estimate(0.56, 0.0, 50), planned[1]])
    # A plan made of nothing is made again as soon as a little is known.
    unknown = [estimate(0.0, 0.0, 0)] * 2
    assert drift.has_drifted(unknown, planned)
    assert not drift.has_drifted(unknown, [estimate(1.0, 0.0, 5)] * 2)
