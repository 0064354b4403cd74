"""The test-stream generator: one stream of each class, replicas, and straight into a Parquet file."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Measurement, Suite
from benchmarks.streams import TEXT
from recension.core.batch import from_elements
from recension.core.events import Cti, Element, Insert
from recension.testing.generator import CASES, Case, StreamSettings, generate, replica

_SIZE = 1_000_000
_PLAIN = "plain Python"


def _settings(case: Case) -> Callable[[int, Path], StreamSettings]:
    return lambda size, _: StreamSettings.of(case, size=size, string_size=TEXT)


def _count(settings: StreamSettings) -> int:
    return sum(len(batch) for batch in generate(settings))


def _replica_settings(size: int, _: Path) -> StreamSettings:
    return StreamSettings.of(size=size, revisions=0.2, string_size=TEXT)


def _replica(settings: StreamSettings) -> int:
    return sum(len(batch) for batch in replica(settings, 2))


def _file(size: int, folder: Path) -> tuple[StreamSettings, Path]:
    return StreamSettings.of(size=size, string_size=TEXT), folder / "stream.parquet"


def _to_parquet(where: tuple[StreamSettings, Path]) -> int:
    from recension.core.formats import write_stream
    from recension.testing.generator.settings import SCHEMA

    settings, path = where
    write_stream(path, generate(settings), SCHEMA)
    return settings.size


def _plainly(settings: StreamSettings) -> int:
    """The same stream with the standard library's random numbers, put into batches at the end."""
    rng, clock, stable = random.Random(settings.seed), 0, 0
    elements: list[Element] = []
    for _ in range(settings.size):
        clock += rng.randint(0, settings.max_gap)
        if rng.random() < settings.stable_freq:
            stable = clock
            elements.append(Cti(clock))
            continue
        vs = (
            rng.randint(max(stable, clock - settings.reach), clock)
            if rng.random() < settings.disorder
            else clock
        )
        text = "".join(rng.choices(string.ascii_lowercase, k=settings.string_size))
        payload = {"value": rng.randint(0, 400), "text": text}
        elements.append(Insert(payload, vs, vs + settings.event_duration))
    from recension.testing.generator.settings import SCHEMA

    return len(from_elements(elements, SCHEMA))


SUITE = Suite(
    "generate",
    "Test streams: payload = number + 16-byte text",
    (
        *(
            Measurement(
                f"a stream of class {case}", _settings(case), _count, sizes=(_SIZE,), against=(_PLAIN,)
            )
            for case in CASES
        ),
        Measurement("a replica, 20 % of events revised", _replica_settings, _replica, sizes=(_SIZE,)),
        Measurement(
            "R3 to a Parquet file",
            _file,
            _to_parquet,
            sizes=(_SIZE, 2 * _SIZE, 4 * _SIZE),
            against=(_PLAIN,),
            target=200_000,
        ),
        Measurement(_PLAIN, _settings("R3"), _plainly, sizes=(_SIZE,), repeats=1),
    ),
)
