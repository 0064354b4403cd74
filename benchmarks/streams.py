"""The streams the benchmarks work on: 20 % disorder, 20 % of the events revised, a 16-byte text."""

from __future__ import annotations

from collections.abc import Iterator

from recension.core.batch import EventBatch
from recension.testing.generator import StreamSettings, generate

TEXT = 16


def disordered_and_revised(size: int) -> Iterator[EventBatch]:
    """Exactly ``size`` elements, retractions and CTIs included."""
    left = size
    settings = StreamSettings.of(size=size, disorder=0.2, revisions=0.2, string_size=TEXT, close=False)
    for batch in generate(settings):
        yield batch.slice(0, min(left, len(batch)))
        left -= min(left, len(batch))
        if not left:
            return
