"""Events of equal start: put in the order of R1, or made on purpose for R4."""

from __future__ import annotations

import numpy as np

from recension.core.batch import INSERT, Mask
from recension.core.ticks import Ticks
from recension.testing.generator.draft import Draft
from recension.testing.generator.payloads import Payloads
from recension.testing.generator.settings import StreamSettings

_NEARBY = 32


def sort_ties(draft: Draft, payloads: Payloads) -> Draft:
    """Inserts of equal start in (payload, ve) order; assumes starts that never fall."""
    at = np.flatnonzero(draft.kind == INSERT)
    at = at[is_tied(draft.vs[at])]
    number = draft.number[at]
    texts = payloads.text_keys(number)[::-1]
    order = np.lexsort((draft.ve[at], *texts, payloads.values(number), draft.vs[at]))
    rows = np.arange(len(draft))
    rows[at] = at[order]
    return draft.take(rows)


def is_tied(sorted_times: Ticks) -> Mask:
    """Which of the times, in order, are equal to a neighbour."""
    same = sorted_times[1:] == sorted_times[:-1]
    tied: Mask = np.append(False, same) | np.append(same, False)
    return tied


def repeat_earlier(draft: Draft, stable: Ticks, settings: StreamSettings, rng: np.random.Generator) -> Draft:
    """Turn some inserts into copies of one a little earlier: half of them exact, half with another end.

    Best effort: what lies before the last CTI cannot be sent again.
    """
    size = len(draft)
    source = np.maximum(np.arange(size) - rng.integers(1, _NEARBY, size, endpoint=True), 0)
    wanted = (draft.kind == INSERT) & (rng.random(size) < settings.duplicates)
    original = (draft.kind == INSERT) & ~wanted
    copies = wanted & original[source] & (draft.vs[source] >= stable)
    source = np.where(copies, source, np.arange(size))
    other_end = draft.vs[source] + rng.integers(1, 2 * settings.event_duration, size, endpoint=True)
    exact = ~copies | (rng.random(size) < 0.5)
    vs, number = draft.vs[source], draft.number[source]
    return Draft(draft.kind, vs, np.where(exact, draft.ve[source], other_end), draft.new_ve, number)
