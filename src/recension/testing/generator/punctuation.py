"""CTIs for elements already in order, placed by looking ahead at what is still to come.

The latest valid CTI after an element is the earliest change among all later ones. That limit rises in
steps, since a single late element holds it for a long time; the CTIs that fall on one step share the climb
to it, so that each of them says something new and the last may touch the limit itself.

#   limit        ________|‾‾‾‾‾‾‾‾|‾‾
#   CTIs             .    .   :   '         rising within each step
"""

from __future__ import annotations

from typing import Final

import numpy as np

from recension.core.batch import Mask
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.testing.generator.draft import Draft, concat_drafts, cti_drafts
from recension.testing.generator.settings import StreamSettings

_IN_ORDER: Final = ("R0", "R1", "R2")


class Punctuation:
    """Puts CTIs into a stream run by run."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._last = BEGINNING

    def add(self, draft: Draft, ahead: int, rng: np.random.Generator) -> Draft:
        """The run with CTIs in it; no element after the run changes anything before ``ahead``."""
        sync = draft.sync()
        limit = np.minimum.accumulate(np.append(sync, ahead)[::-1])[::-1][1:]
        frequency = self._settings.stable_freq
        chance = frequency / (1 - frequency) if frequency < 0.5 else 1.0
        after = np.flatnonzero((rng.random(len(draft)) < chance) & (limit < FOREVER))
        times = self._climb(limit[after], rng)
        if self._settings.case in _IN_ORDER:
            # A CTI is an element too: it must not fall behind the event before it.
            times = np.maximum(times, sync[after])
        advances = self._advances(times)
        after, times = after[advances], times[advances]
        self._last = int(times.max(initial=self._last))
        both = concat_drafts([draft, cti_drafts(times)])
        place = np.concatenate([np.arange(len(draft)) * 2, after * 2 + 1])
        return both.take(np.argsort(place, kind="stable"))

    def _climb(self, limit: Ticks, rng: np.random.Generator) -> Ticks:
        """A time at most ``limit`` for each CTI; those with one limit rise from the limit before to it."""
        if not len(limit):
            return limit
        first = np.flatnonzero(np.append(True, limit[1:] != limit[:-1]))
        among = np.diff(np.append(first, len(limit)))
        foot = np.maximum(self._last, np.minimum(limit[0], self._settings.start))
        height = np.diff(np.append(foot, limit[first]))
        rank = np.arange(len(limit)) - np.repeat(first, among)
        missing = (
            np.repeat(among, among)
            - rank
            - 1
            + np.where(rng.random(len(limit)) < 0.5, rng.random(len(limit)), 0)
        )
        below = missing / np.repeat(among, among) * np.repeat(height, among)
        times: Ticks = limit - below.astype(np.int64)
        return times

    def _advances(self, times: Ticks) -> Mask:
        before = np.maximum.accumulate(np.append(self._last, times))[:-1]
        rises: Mask = times > before
        return rises
