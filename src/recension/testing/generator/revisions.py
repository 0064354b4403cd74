"""Revisions: the elements one replica sends for a run of events of the history.

An event is sent as it is, or first with a wrong end (too long, too short, or none) that one to three
retractions put right. Beside some of them an event is sent that never was, and removed again. Each element
gets a *due* time, the application time at which this replica learns of it.

#   history          [==============)
#   sent       due   [=====)                    insert with a wrong end
#                       due   [==================)    retract to another
#                              due   [==============) retract to the true end
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recension.core.batch import Index, Mask
from recension.core.ticks import FOREVER, Ticks
from recension.testing.generator.draft import Draft, concat_drafts, insert_drafts, retract_drafts, scramble
from recension.testing.generator.settings import StreamSettings

_LONGEST = 3
_LENGTHS = (0.6, 0.3, 0.1)
_PHANTOMS = 0.1
_ENDLESS_FOR_ONE_OF = 16


@dataclass(frozen=True, slots=True, eq=False)
class DueDraft:
    """Elements with the application time at which each is sent."""

    draft: Draft
    due: Ticks

    def take(self, rows: Index) -> DueDraft:
        """The given rows, in the given order."""
        return DueDraft(self.draft.take(rows), self.due[rows])


def join(parts: list[DueDraft]) -> DueDraft:
    """One from several."""
    return DueDraft(concat_drafts([p.draft for p in parts]), np.concatenate([p.due for p in parts]))


def send_events(events: Draft, settings: StreamSettings, rng: np.random.Generator, replica: int) -> DueDraft:
    """What this replica sends for the events, in no particular order."""
    size = len(events)
    late = rng.random(size) < settings.disorder
    due = events.vs + np.where(
        late, settings.max_gap + rng.integers(1, settings.reach, size, endpoint=True), 0
    )
    if not settings.revisions:
        return DueDraft(events, due)
    revised = rng.random(size) < settings.revisions
    rows, plain = np.flatnonzero(revised), np.flatnonzero(~revised)
    parts = [
        DueDraft(events.take(plain), due[plain]),
        *_chains(events.take(rows), due[rows], settings, rng, replica),
        *_phantoms(events.take(rows[rng.random(len(rows)) < _PHANTOMS]), settings, rng),
    ]
    return join(parts)


def _chains(
    events: Draft, due: Ticks, settings: StreamSettings, rng: np.random.Generator, replica: int
) -> list[DueDraft]:
    """An insert with the first wrong end, and for each wrong end the retraction to the next."""
    length = rng.choice(np.arange(1, _LONGEST + 1), len(events), p=_LENGTHS)
    ends = _wrong_ends(events, length, settings, rng, replica)
    first = np.choose(_LONGEST - length, ends[:-1])
    parts = [DueDraft(insert_drafts(events.vs, first, events.number), due)]
    for at in range(_LONGEST):
        rows = np.flatnonzero(length >= _LONGEST - at)
        before, after = ends[at][rows], ends[at + 1][rows]
        # Learned at some time between the last element of the chain and a while after it took effect.
        room = np.maximum(np.minimum(before, after) - due[rows], 0) + settings.reach
        due = due.copy()
        due[rows] += 1 + (rng.random(len(rows)) * room).astype(np.int64)
        step = retract_drafts(events.vs[rows], before, after, events.number[rows])
        parts.append(DueDraft(step, due[rows]))
    return parts


def _wrong_ends(
    events: Draft, length: Index, settings: StreamSettings, rng: np.random.Generator, replica: int
) -> list[Ticks]:
    """The ends a chain goes through, the true one last; each differs from the next."""
    ends = [events.ve]
    for at in reversed(range(_LONGEST)):
        longer = events.ve + rng.integers(1, settings.event_duration, len(events), endpoint=True)
        shorter = events.vs + 1 + (rng.random(len(events)) * (events.ve - events.vs - 1)).astype(np.int64)
        end = np.where(rng.random(len(events)) < 0.5, longer, shorter)
        end += end == ends[0]
        is_first = length == _LONGEST - at
        ends.insert(0, np.where(is_first & _may_be_endless(events.number, replica), FOREVER, end))
    return ends


def _may_be_endless(number: Index, replica: int) -> Mask:
    """Spread over the replicas, so that no two send the same endless insert."""
    lot = scramble(number.view(np.uint64), 64) % np.uint64(_ENDLESS_FOR_ONE_OF)
    chosen: Mask = lot == np.uint64(replica % _ENDLESS_FOR_ONE_OF)
    return chosen


def _phantoms(events: Draft, settings: StreamSettings, rng: np.random.Generator) -> list[DueDraft]:
    """Inserts that are taken back: the event's payload at a wrong start, or a payload that never was."""
    size = len(events)
    vs = events.vs + rng.integers(1, settings.reach, size, endpoint=True)
    ve = vs + rng.integers(1, settings.event_duration, size, endpoint=True)
    number = events.number + np.where(rng.random(size) < 0.5, settings.size, 0)
    removed = vs + rng.integers(1, settings.reach, size, endpoint=True)
    return [
        DueDraft(insert_drafts(vs, ve, number), vs),
        DueDraft(retract_drafts(vs, ve, vs, number), removed),
    ]
