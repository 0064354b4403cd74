"""Replicas: physically different streams of one history, each valid by itself.

All replicas draw the same events; each then sends them in its own order, with its own second thoughts and
its own CTIs. A CTI is placed by looking ahead: at most the earliest time that any element still to be sent
changes. In R0 and R1 only the CTIs can differ, in R2 also the order of ties.

State       the elements learned of but not yet due: those of events that are still alive, at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recension.core.batch import INSERT, EventBatch
from recension.core.ticks import FOREVER
from recension.testing.generator.draft import Draft, cti_drafts, empty_draft, rows_at_once
from recension.testing.generator.payloads import Payloads
from recension.testing.generator.punctuation import Punctuation
from recension.testing.generator.revisions import DueDraft, join, sent
from recension.testing.generator.settings import SettingsError, StreamSettings
from recension.testing.generator.skeleton import chunks
from recension.testing.generator.ties import is_tied


def replicas(settings: StreamSettings, count: int) -> list[Iterator[EventBatch]]:
    """``count`` streams with the same history."""
    if count < 1:
        raise SettingsError(f"the number of replicas must be at least 1, not {count}")
    return [replica(settings, number) for number in range(1, count + 1)]


def replica(settings: StreamSettings, number: int) -> Iterator[EventBatch]:
    """One of the streams of the history that the settings describe."""
    payloads = Payloads(settings.seed, settings.string_size)
    rows = rows_at_once(settings.string_size)
    punctuation = Punctuation(settings)
    waiting: list[DueDraft] = []
    for index, (events, until) in enumerate(_frames(settings)):
        rng = np.random.default_rng([settings.seed, number, index])
        pool = join([*waiting, sent(events, settings, rng, number)])
        is_due = pool.due < until
        later = pool.take(np.flatnonzero(~is_due))
        draft = _in_order(pool.take(np.flatnonzero(is_due)), settings, rng)
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


def _in_order(ready: DueDraft, settings: StreamSettings, rng: np.random.Generator) -> Draft:
    """By due time; elements due at once come in any order, unless the case wants one order for all."""
    order = np.argsort(ready.due, kind="stable")
    if settings.case not in ("R0", "R1"):
        due = ready.due[order]
        at = np.flatnonzero(is_tied(due))
        order[at] = order[at][np.lexsort((rng.random(len(at)), due[at]))]
    return ready.draft.take(order)
