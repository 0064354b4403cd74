"""One *why*: an answer that was wrong at noon, and the late lease that put it right.

Found by comparing what a replica had said by noon with what is true, and asking `rc.why` about its feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

import numpy as np
import pyarrow.compute as pc

import recension as rc
from recension.core.batch import CTI, INSERT, EventBatch, concat
from recension.core.events import Event
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.demo.leases import HOUR, OPENS, SOUTH, clock
from recension.demo.plans import LEASES, first_plan
from recension.demo.script import World, now
from recension.demo.trace import Trace

# South is the late one: of a lease it may hear more than an hour after its start.
REPLICA: Final = SOUTH.name
HOURS_BY_NOON: Final = 4
NOON: Final = OPENS + HOURS_BY_NOON * HOUR
# Most answers that lack one device lack one lease; where leases also ended unheard of, the next is asked about.
_TRIES: Final = 10


@dataclass(frozen=True)
class LateLease:
    """What was said at noon about a time before it, what is true, and which lease was missing."""

    at: int
    """The time that is asked about."""
    said: Event
    answer: Event
    lease: Event
    """As it was in the end."""
    row: int
    """The element of the feed that told of it, counted from 1."""
    came: int
    """In which hour, counted from 0."""
    final_by: int | None
    """The CTI that made the answer final, and the hour in which it came; none if none did."""
    final_came: int | None

    def tell(self) -> list[str]:
        """In a few plain sentences."""
        site, devices = self.answer.payload["site"], self.answer.payload["devices"]
        told = [
            f"At noon {REPLICA} said that the {site} had {self.said.payload['devices']:,} devices online at "
            f"{clock(self.at)}; it had {devices:,}.",
            f"Late: the lease of {self.lease.payload['device']}, [{clock(self.lease.vs)}, "
            f"{clock(self.lease.ve)}), which came {_within(self.came)} as element {self.row:,} of the feed.",
        ]
        if self.final_by is not None and self.final_came is not None:
            reached = "the end" if self.final_by == FOREVER else clock(self.final_by)
            told.append(f"The answer became final by the CTI at {reached}, {_within(self.final_came)}.")
        return told


def _within(hour: int) -> str:
    return f"between {clock(OPENS + hour * HOUR)} and {now(hour)}"


def find_late_lease(world: World, trace: Trace, truth: History) -> LateLease | None:
    """The latest answer before noon that one late lease put right; none if noon was right about all."""
    parts = world.feeds[REPLICA]
    feed = concat(parts)
    for said, answer in islice(_lacking_one(_said_by_noon(trace, truth), truth), _TRIES):
        if found := _explain(feed, parts, said, answer):
            return found
    return None


def _said_by_noon(trace: Trace, truth: History) -> History:
    """What the replica had put out before the hour after noon was sent."""
    outputs = [one for one in trace.outputs_of(REPLICA) if one.at < trace.hours[HOURS_BY_NOON]]
    return reconstitute((one.batch for one in outputs), truth.schema)


def _lacking_one(said: History, truth: History) -> Iterator[tuple[Event, Event]]:
    """Answers for times before noon that had a device too few, with the true ones; the latest first."""
    said, truth = said.filter(said.vs < NOON), truth.filter(truth.vs < NOON)
    pairs: list[tuple[Event, Event]] = []
    for site in pc.unique(truth.payload["site"]).to_pylist():
        before, after = (_of_site(history, site) for history in (said, truth))
        starts = np.array([event.vs for event in after], np.int64)
        # Answers of a site do not overlap: the true one at the start of what was said is the last begun.
        for event, at in zip(before, np.searchsorted(starts, [e.vs for e in before], "right"), strict=True):
            true = after[at - 1] if at else None
            if true is not None and event.vs < true.ve:
                if true.payload["devices"] - event.payload["devices"] == 1:
                    pairs.append((event, true))
    pairs.sort(key=lambda pair: (-pair[0].vs, pair[0].payload["site"]))
    return iter(pairs)


def _of_site(history: History, site: str) -> list[Event]:
    mask = np.asarray(pc.equal(history.payload["site"], site).to_numpy(), np.bool_)
    return history.filter(mask).to_events()


def _explain(feed: EventBatch, parts: Sequence[EventBatch], said: Event, answer: Event) -> LateLease | None:
    """The lease, if there was one revision of the number after noon, and a new lease made it."""
    at = said.vs
    why = rc.why(first_plan(), {LEASES: feed}, {"site": answer.payload["site"]}, at=at, marks=False)
    ends = list(accumulate(map(len, parts)))
    life = why.biography
    if life is None or why.answer.payload != answer.payload:
        return None
    late = [
        one
        for one in life.revisions
        if one.cause.row > ends[HOURS_BY_NOON - 1] and _devices(one.before) != _devices(one.after)
    ]
    if len(late) != 1 or _devices(late[0].before) != _devices([said]):
        return None
    row = late[0].cause.row
    told = feed.slice(row - 1, row)
    device = told.payload["device"][0].as_py()
    leases = [lease for lease in why.events(LEASES) if lease.payload["device"] == device]
    if told.kind[0] != INSERT or len(leases) != 1:
        return None
    final = None if life.final is None else life.final.row
    is_cti = final is not None and feed.kind[final - 1] == CTI
    return LateLease(
        at=at,
        said=said,
        answer=why.answer,
        lease=leases[0],
        row=row,
        came=_hour_of(row, ends),
        final_by=int(feed.vs[final - 1]) if final is not None and is_cti else None,
        final_came=_hour_of(final, ends) if final is not None and is_cti else None,
    )


def _devices(events: Sequence[Event]) -> list[int]:
    return [event.payload["devices"] for event in events]


def _hour_of(row: int, ends: Sequence[int]) -> int:
    """The hour in which an element came, by how many have come by the end of each."""
    return int(np.searchsorted(ends, row))
