"""When each element arrives: a steady rate, and lag, bursts, congestion or a failure on top.

A stream is a queue. Its source makes elements at a constant rate; a delay holds up one element and all
behind it, and when it is over the queue empties as fast as the stream can go. Arrival times are ticks
(microseconds) of the receiver's clock, beside the batches: a stream itself carries no clock.

Source      LMerge technical report, §VI-C.3, §VI-E.1 and §VI-E.2; it gives no unit for the delays of a
            burst: at its 5,000 elements a second only milliseconds leave the stream a chance to catch up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recension.core.batch import EventBatch, concat
from recension.core.ticks import Ticks
from recension.testing.generator.settings import SettingsError

_SECOND = 1_000_000
_Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Burst:
    """Now and then an element is held up for a normally distributed while (ticks), never less than none."""

    probability: float = 0.004
    mean: float = 20_000
    deviation: float = 5_000


@dataclass(frozen=True, slots=True)
class Congestion:
    """Every element made in ``[start, start + length)`` is held up."""

    start: int
    length: int
    mean: float = 1_000
    deviation: float = 250


@dataclass(frozen=True, slots=True)
class Failure:
    """The stream stops after a number of elements; it may come back, and then repeats the last few.

    With repeats it is no longer a valid stream by itself: coping with that is the receiver's job.
    """

    after: int
    down: int | None = None
    repeat: int = 0

    def __post_init__(self) -> None:
        if self.after < 1 or self.repeat < 0 or (self.down or 0) < 0:
            raise SettingsError(
                "a failure comes after at least one element; times and repeats are not negative"
            )


@dataclass(frozen=True, slots=True)
class Profile:
    """How a stream behaves on its way: elements a second, and what goes wrong."""

    rate: float = 5_000.0
    lag: int = 0
    burst: Burst | None = None
    congestion: Congestion | None = None
    failure: Failure | None = None
    catch_up: float = 4.0

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.catch_up < 1 or self.lag < 0:
            raise SettingsError(
                "a profile needs a rate above 0, a catch_up of at least 1 and no negative lag"
            )


class TimedBatch(NamedTuple):
    """Elements and the time each arrives."""

    batch: EventBatch
    arrival: Ticks


def add_arrivals(batches: Iterable[EventBatch], profile: Profile, seed: int = 0) -> Iterator[TimedBatch]:
    """The stream as it arrives; arrival times never fall."""
    rng = np.random.default_rng([seed, 0xBEA7])
    made, free = 0, -np.inf
    interval = _SECOND / profile.rate
    for batch in _apply_failure(batches, profile.failure):
        if not len(batch):
            continue
        source: _Times = np.arange(made, made + len(batch)) * np.float64(interval)
        delay = _delays(profile, source, made, rng)
        # Element i leaves at max(source_i, leave_(i-1) + service) + delay_i; unrolled, a running maximum.
        busy = np.cumsum(delay + interval / profile.catch_up)
        leave = busy + np.maximum(np.maximum.accumulate(source + delay - busy), free)
        yield TimedBatch(batch, leave.astype(np.int64) + profile.lag)
        made, free = made + len(batch), leave[-1]


def _delays(profile: Profile, source: _Times, made: int, rng: np.random.Generator) -> _Times:
    delay = np.zeros(len(source))
    if burst := profile.burst:
        rows = np.flatnonzero(rng.random(len(source)) < burst.probability)
        delay[rows] += np.maximum(0, rng.normal(burst.mean, burst.deviation, len(rows)))
    if jam := profile.congestion:
        rows = np.flatnonzero((source >= jam.start) & (source < jam.start + jam.length))
        delay[rows] += np.maximum(0, rng.normal(jam.mean, jam.deviation, len(rows)))
    if (failure := profile.failure) and failure.down is not None and 0 <= failure.after - made < len(delay):
        delay[failure.after - made] += failure.down
    return delay


def _apply_failure(batches: Iterable[EventBatch], failure: Failure | None) -> Iterator[EventBatch]:
    """The elements that arrive at all, and those that arrive again."""
    if failure is None:
        yield from batches
        return
    left, tail = failure.after, list[EventBatch]()
    for batch in batches:
        if not 0 < left <= len(batch):
            tail = _last_elements(batch, tail, failure.repeat) if left > 0 else []
            left -= len(batch)
            yield batch
            continue
        yield batch.slice(0, left)
        if failure.down is None:
            return
        yield from _last_elements(batch.slice(0, left), tail, failure.repeat)
        yield batch.slice(left, len(batch))
        left = 0


def _last_elements(batch: EventBatch, kept: list[EventBatch], size: int) -> list[EventBatch]:
    """The last ``size`` elements so far."""
    both = concat([*kept, batch])
    return [both.slice(max(0, len(both) - size), len(both))] if size else []
