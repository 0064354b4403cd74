"""One test stream: the LMerge paper's, or, with revisions, a physical stream of its history."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recension.core.batch import EventBatch
from recension.core.ticks import FOREVER
from recension.testing.generator.draft import cti_drafts, rows_at_once
from recension.testing.generator.payloads import Payloads
from recension.testing.generator.replicas import replica
from recension.testing.generator.settings import StreamSettings
from recension.testing.generator.skeleton import chunks


def generate(settings: StreamSettings) -> Iterator[EventBatch]:
    """One stream, batch by batch; with revisions it is the first replica of its history."""
    if settings.revisions:
        yield from replica(settings, 1)
        return
    payloads = Payloads(settings.seed, settings.string_size)
    rows = rows_at_once(settings.string_size)
    for chunk in chunks(settings):
        yield from chunk.draft.batches(payloads, rows)
    if settings.close:
        yield from cti_drafts(np.array([FOREVER])).batches(payloads, 1)
