"""Arrival profiles: lag, bursts, congestion and failures, as arrival times beside the batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from recension.core.batch import CTI, EventBatch, concat
from recension.core.ticks import FOREVER, Ticks
from recension.testing.generator import (
    Burst,
    Congestion,
    Failure,
    Profile,
    SettingsError,
    StreamSettings,
    add_arrivals,
    generate,
)

SECOND = 1_000_000
SIZE = 100_000


def stream() -> Iterator[EventBatch]:
    return generate(StreamSettings.of(size=SIZE))


def arrivals(profile: Profile, seed: int = 0) -> Ticks:
    return np.concatenate([arrival for _, arrival in add_arrivals(stream(), profile, seed)])


def rate(times: Ticks, start: float, end: float) -> float:
    """Elements a second that arrive between two times, in seconds."""
    return float(((times >= start * SECOND) & (times < end * SECOND)).sum() / (end - start))


PROFILES = [
    Profile(),
    Profile(rate=100.0, lag=5 * SECOND),
    Profile(burst=Burst()),
    Profile(congestion=Congestion(4 * SECOND, 3 * SECOND)),
    Profile(failure=Failure(40_000, down=SECOND, repeat=500)),
    Profile(
        lag=7, burst=Burst(0.5), congestion=Congestion(0, SECOND), failure=Failure(1, down=SECOND, repeat=9)
    ),
]


@pytest.mark.parametrize("profile", PROFILES)
def test_one_arrival_per_element_and_never_earlier_than_the_one_before(profile: Profile) -> None:
    parts = list(add_arrivals(stream(), profile))
    assert all(len(batch) == len(arrival) > 0 for batch, arrival in parts)
    times = np.concatenate([arrival for _, arrival in parts])
    assert (np.diff(times) >= 0).all()
    assert times[0] >= profile.lag


def test_a_steady_stream_keeps_its_rate() -> None:
    times = arrivals(Profile(rate=5_000))
    assert np.array_equal(np.diff(times), np.full(SIZE - 1, 200))


def test_lag_moves_everything_by_the_same_time() -> None:
    assert np.array_equal(arrivals(Profile(lag=3 * SECOND)), arrivals(Profile()) + 3 * SECOND)


def test_bursts_hold_up_and_catch_up() -> None:
    times, steady = arrivals(Profile(burst=Burst())), arrivals(Profile())
    gaps = np.diff(times)
    held = gaps > 5_000
    assert np.isclose(held.mean(), 0.004, rtol=0.3)
    assert np.isclose(gaps[held].mean(), 20_000, rtol=0.05)
    assert (gaps < 100).any(), "after a delay the queue empties faster than it fills"
    assert (times >= steady).all()
    assert np.isclose(times[-1], steady[-1], rtol=0.01), "the delays do not add up"


def test_congestion_slows_a_period_and_is_made_up_for() -> None:
    times = arrivals(Profile(congestion=Congestion(5 * SECOND, SECOND)))
    assert np.isclose(rate(times, 1, 5), 5_000, rtol=0.01)
    assert rate(times, 5.1, 6) < 1_500
    after = max(rate(times, at, at + 0.25) for at in np.arange(6, 16, 0.25))
    assert after > 10_000
    assert np.isclose(rate(times, 17, 19), 5_000, rtol=0.01)


def test_a_failed_stream_stops_without_a_word() -> None:
    parts = list(add_arrivals(stream(), Profile(failure=Failure(60_001))))
    whole = concat([batch for batch, _ in parts])
    assert len(whole) == 60_001
    assert whole.vs[whole.kind == CTI].max() < FOREVER


@pytest.mark.parametrize("after", [1, 32_768, 60_001, SIZE])
def test_a_restarted_stream_repeats_its_last_elements(after: int) -> None:
    parts = list(add_arrivals(stream(), Profile(failure=Failure(after, down=2 * SECOND, repeat=300))))
    whole, plain = concat([batch for batch, _ in parts]), concat(list(stream()))
    again = min(300, after)
    expected = np.concatenate([plain.vs[:after], plain.vs[after - again :]])
    assert np.array_equal(whole.vs, expected)
    times = np.concatenate([arrival for _, arrival in parts])
    assert times[after] - times[after - 1] >= 2 * SECOND


def test_a_failure_after_the_end_never_happens() -> None:
    assert len(arrivals(Profile(failure=Failure(SIZE + 1)))) == SIZE


def test_profiles_are_reproducible() -> None:
    profile = Profile(burst=Burst())
    assert np.array_equal(arrivals(profile, 5), arrivals(profile, 5))
    assert not np.array_equal(arrivals(profile, 5), arrivals(profile, 6))


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"lag": -1}, {"catch_up": 0.5}])
def test_profiles_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        Profile(**wrong)  # type: ignore[arg-type]


def test_failures_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingsError):
        Failure(0)
