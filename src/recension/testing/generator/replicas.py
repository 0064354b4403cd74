"""Test streams: one by itself, and replicas, which are physically different streams of one history.

All replicas draw the same events; each then sends them in its own order, with its own second thoughts and
its own CTIs. In R0 and R1 only the CTIs can differ, in R2 also the order of ties.

State       the elements learned of but not yet due: those of events that are still alive, at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from recension.core.batch import INSERT, EventBatch, Mask
from recension.core.ticks import BEGINNING, FOREVER, Ticks
from recension.testing.generator.draft import (
    Draft,
    GeneratedPayloads,
    concat_drafts,
    cti_drafts,
    empty_draft,
    rows_at_once,
)
from recension.testing.generator.revisions import DueDraft, join, send_events
from recension.testing.generator.settings import SettingsError, StreamSettings
from recension.testing.generator.skeleton import chunks, is_tied

_IN_ORDER: Final = ("R0", "R1", "R2")


def generate(settings: StreamSettings) -> Iterator[EventBatch]:
    """One stream, batch by batch; with revisions it is the first replica of its history."""
    if settings.revisions:
        yield from replica(settings, 1)
        return
    payloads = GeneratedPayloads(settings.seed, settings.string_size)
    rows = rows_at_once(settings.string_size)
    for chunk in chunks(settings):
        yield from chunk.draft.batches(payloads, rows)
    if settings.close:
        yield from cti_drafts(np.array([FOREVER])).batches(payloads, 1)


def replicas(settings: StreamSettings, count: int) -> list[Iterator[EventBatch]]:
    """``count`` streams with the same history."""
    if count < 1:
        raise SettingsError(f"the number of replicas must be at least 1, not {count}")
    return [replica(settings, number) for number in range(1, count + 1)]


def replica(settings: StreamSettings, number: int) -> Iterator[EventBatch]:
    """One of the streams of the history that the settings describe."""
    payloads = GeneratedPayloads(settings.seed, settings.string_size)
    rows = rows_at_once(settings.string_size)
    punctuation = Punctuation(settings)
    waiting: list[DueDraft] = []
    for index, (events, until) in enumerate(_frames(settings)):
        rng = np.random.default_rng([settings.seed, number, index])
        pool = join([*waiting, send_events(events, settings, rng, number)])
        is_due = pool.due < until
        later = pool.take(np.flatnonzero(~is_due))
        draft = _order_by_due(pool.take(np.flatnonzero(is_due)), settings, rng)
        ahead = min(until, int(later.draft.sync().min(initial=FOREVER)))
        yield from punctuation.add(draft, ahead, rng).batches(payloads, rows)
        waiting = [later]
    if settings.close:
        yield from cti_drafts(np.array([FOREVER])).batches(payloads, 1)


def _frames(settings: StreamSettings) -> Iterator[tuple[Draft, int]]:
    """The events of the history in runs, each with a time that nothing in later runs starts before."""
    for chunk in chunks(replace(settings, disorder=0.0, revisions=0.0)):
        # The first gap of a chunk is at least one tick.
        yield chunk.draft.take(np.flatnonzero(chunk.draft.kind == INSERT)), chunk.clock + 1
    yield empty_draft(), FOREVER


def _order_by_due(ready: DueDraft, settings: StreamSettings, rng: np.random.Generator) -> Draft:
    """By due time; elements due at once come in any order, unless the case wants one order for all."""
    order = np.argsort(ready.due, kind="stable")
    if settings.case not in ("R0", "R1"):
        due = ready.due[order]
        at = np.flatnonzero(is_tied(due))
        order[at] = order[at][np.lexsort((rng.random(len(at)), due[at]))]
    return ready.draft.take(order)


class Punctuation:
    """Puts CTIs into a stream run by run, looking ahead at what is still to come.

    The latest valid CTI after an element is the earliest change among all later ones. That limit rises in
    steps, since a single late element holds it for a long time. The CTIs that fall on one step share the
    climb to it, so that each of them says something new and the last may touch the limit itself.

    #   limit        ________|‾‾‾‾‾‾‾‾|‾‾
    #   CTIs             .    .   :   '         rising within each step
    """

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
        position = np.concatenate([np.arange(len(draft)) * 2, after * 2 + 1])
        return both.take(np.argsort(position, kind="stable"))

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
