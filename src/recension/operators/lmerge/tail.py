"""The last events that a merge in order has shown, and what an input has at the same starts.

An input that comes behind brings what was shown already. Of what it has from the tail's second start on
(of the first some may be missing), up to where the output has come, every event must be in the tail, and
every event of the tail that its starts enclose must be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from recension.core.batch import EventBatch, Index, Mask, concat
from recension.core.netting import rank_in_group
from recension.core.rowhash import Hashes, combine, row_hash
from recension.operators.lmerge.contradictions import describe_event

MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Tail:
    """Events in order of start; all that were shown with a start beyond ``after``."""

    events: EventBatch
    after: int

    def extended(self, shown: EventBatch) -> Tail:
        """With what is shown now; only the last events are kept."""
        if not len(shown):
            return self
        if len(shown) > MOST:
            kept = shown.slice(len(shown) - MOST, len(shown))
            return Tail(kept, int(kept.vs[0]))
        events = concat([self.events, shown]) if len(self.events) else shown
        if len(events) <= MOST:
            return Tail(events, self.after)
        kept = events.slice(len(events) - MOST, len(events))
        return Tail(kept, max(self.after, int(kept.vs[0])))

    def extended_to(self, shown: EventBatch, before: int) -> Tail:
        """With those shown now that start no later than ``before``."""
        new = shown.slice(0, int(np.searchsorted(shown.vs, before, side="right")))
        return Tail(concat([self.events, new]), self.after) if len(new) else self


@dataclass(frozen=True, slots=True)
class Finding:
    """Events of one side that the other does not have."""

    events: EventBatch
    rows: Index
    verb: str

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.rows)

    def describe(self) -> str:
        """The first of them."""
        row = int(self.rows[0])
        event = describe_event(self.events.payload, row, int(self.events.vs[row]), int(self.events.ve[row]))
        return f"{self.verb} {event}, which the output {'does not have' if self.verb == 'has' else 'has'}"


def compare(
    tail: Tail, batch: EventBatch, lower: int, before: int, least_end: int, *, repeats: bool
) -> Iterator[Finding]:
    """What an input's batch and the tail do not have in common, from ``lower`` (exclusive) to ``before``.

    With ``repeats`` equal events are one.
    """
    upper = min(before, int(batch.vs[-1]))
    ours, theirs = _between(tail.events, lower, upper), _between(batch, lower, upper)
    if _are_alike(ours, theirs):
        return
    own, other = _identities(ours, repeats), _identities(theirs, repeats)
    extra = ~_are_in(other, own) & (theirs.ve >= least_end)
    if bool(extra.any()):
        yield Finding(theirs, np.flatnonzero(extra), "has")
    # More with the last start of the batch may come.
    due = (ours.vs < batch.vs[-1]) & (ours.ve >= least_end)
    lacking = due & ~_are_in(own, other)
    if bool(lacking.any()):
        yield Finding(ours, np.flatnonzero(lacking), "lacks")


def compare_ties(tail: Tail, vs: int, count: int, least_end: int) -> Iterator[Finding]:
    """An input has gone beyond a start of which it has sent so many events."""
    ours = _between(tail.events, vs - 1, vs)
    rows = np.flatnonzero(ours.ve >= least_end)
    if len(rows) > count:
        yield Finding(
            ours, rows[count:], f"has {count} of the {len(rows)} events that start at {vs}, such as"
        )


def _between(events: EventBatch, lower: int, upper: int) -> EventBatch:
    first, last = (int(np.searchsorted(events.vs, t, side="right")) for t in (lower, upper))
    return events.slice(first, max(first, last))


def _are_alike(ours: EventBatch, theirs: EventBatch) -> bool:
    return (
        len(ours) == len(theirs)
        and bool((ours.vs == theirs.vs).all())
        and bool((ours.ve == theirs.ve).all())
        and bool(ours.payload.equals(theirs.payload))
    )


def _identities(events: EventBatch, repeats: bool) -> Hashes:
    """A hash of each event, with its number among equal ones if they are several."""
    whole = combine(combine(row_hash(events.payload, len(events)), events.vs), events.ve)
    if repeats or not len(whole):
        return whole
    order = np.argsort(whole, kind="stable")
    rank = np.empty(len(whole), np.int64)
    rank[order] = rank_in_group(np.cumsum(np.append(False, whole[order][1:] != whole[order][:-1])))
    return combine(whole, rank)


def _are_in(some: Hashes, others: Hashes) -> Mask:
    found: Mask = np.isin(some, others)
    return found
