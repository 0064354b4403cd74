"""One *why*: an answer that was wrong at noon, and the late lease that put it right.

Found by comparing what a replica had said by noon with what is true, and asking `rc.why` about its feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import recension as rc
from recension.core.batch import CTI, INSERT, EventBatch, Index, concat
from recension.core.events import Event
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.core.ticks import FOREVER
from recension.demo.leases import HOUR, OPENS, SCHEMA, SOUTH, as_history, clock
from recension.demo.plans import LEASES, first_plan
from recension.demo.script import World, now
from recension.demo.trace import Trace

# South is the late one: of a lease it may hear more than an hour after its start.
REPLICA: Final = SOUTH.name
HOURS_BY_NOON: Final = 4
NOON: Final = OPENS + HOURS_BY_NOON * HOUR
# An offer that comes and goes after noon spoils the story; then the next answer is asked about.
_TRIES: Final = 3


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
            f"{clock(self.lease.ve)}), which came {_within(self.came)} (row {self.row:,}).",
        ]
        if self.final_by is not None and self.final_came is not None:
            reached = "the end" if self.final_by == FOREVER else clock(self.final_by)
            told.append(f"The answer became final by the CTI at {reached}, {_within(self.final_came)}.")
        return told


def _within(hour: int) -> str:
    return f"between {clock(OPENS + hour * HOUR)} and {now(hour)}"


def find_late_lease(world: World, trace: Trace, truth: History) -> LateLease | None:
    """The latest answer before noon that one late lease put right; none if no answer was wrong that way."""
    parts = world.feeds[REPLICA]
    known, happened = reconstitute(parts[:HOURS_BY_NOON], SCHEMA), as_history(world.leases)
    pairs = _lacking_one(_said_by_noon(trace, truth), truth)
    alone = (pair for pair in pairs if _is_one_lease(known, happened, *pair))
    for said, answer in islice(alone, _TRIES):
        if found := _explain(parts, known, said, answer):
            return found
    return None


def _is_one_lease(known: History, happened: History, said: Event, answer: Event) -> bool:
    """Is one lease the only difference between those known at noon and those that were?"""
    at, site = said.vs, answer.payload["site"]
    before, after = (
        {lease.payload["device"] for lease in _of_site(leases.at(at), site)} for leases in (known, happened)
    )
    return before < after and len(after - before) == 1


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
            if true is not None and event.vs < true.ve and _devices([true])[0] == _devices([event])[0] + 1:
                pairs.append((event, true))
    pairs.sort(key=lambda pair: (-pair[0].vs, pair[0].payload["site"]))
    return iter(pairs)


def _of_site(history: History, site: str) -> list[Event]:
    mask = np.asarray(pc.equal(history.payload["site"], site).to_numpy(), np.bool_)
    return history.filter(mask).to_events()


def _explain(parts: Sequence[EventBatch], known: History, said: Event, answer: Event) -> LateLease | None:
    """The lease, if there was one revision of the number after noon, and a new lease made it."""
    feed, ends, at = concat(parts), list(accumulate(map(len, parts))), said.vs
    rows = _slice(feed, ends[HOURS_BY_NOON - 1], known, answer)
    part = feed.take(rows)
    why = rc.why(first_plan(), {LEASES: part}, {"site": answer.payload["site"]}, at=at, marks=False)
    life = why.biography
    if life is None or why.answer != answer:
        return None
    late = [
        one
        for one in life.revisions
        if rows[one.cause.row - 1] >= ends[HOURS_BY_NOON - 1] and _devices(one.before) != _devices(one.after)
    ]
    if len(late) != 1 or _devices(late[0].before) != _devices([said]):
        return None
    row = int(rows[late[0].cause.row - 1]) + 1
    told = feed.slice(row - 1, row)
    device = told.payload["device"][0].as_py()
    leases = [lease for lease in why.events(LEASES) if lease.payload["device"] == device]
    if told.kind[0] != INSERT or len(leases) != 1:
        return None
    final = None if life.final is None else int(rows[life.final.row - 1]) + 1
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


def _slice(feed: EventBatch, noon: int, known: History, answer: Event) -> Index:
    """The rows that can matter to an answer after noon: all of a lease, or nothing.

    A lease that was known to be over before the answer began does not, and to replay it would take long.
    """
    site = answer.payload["site"]
    near = _of_site(known.filter((known.vs <= answer.ve) & (known.ve >= answer.vs)), site)
    is_late = (np.arange(len(feed)) >= noon) & (feed.vs <= answer.ve) & feed.is_data()
    late = feed.payload["device"].filter(pa.array(is_late)).to_pylist()
    devices = pa.array({*late, *(lease.payload["device"] for lease in near)}, pa.string())
    matters = pc.and_(pc.is_in(feed.payload["device"], devices), pc.equal(feed.payload["site"], site))
    keep = np.asarray(pc.fill_null(matters, False).to_numpy(zero_copy_only=False), np.bool_)
    return np.flatnonzero(keep & feed.is_data() | (feed.kind == CTI))


def _devices(events: Sequence[Event]) -> list[int]:
    return [event.payload["devices"] for event in events]


def _hour_of(row: int, ends: Sequence[int]) -> int:
    """The hour in which an element came, by how many have come by the end of each."""
    return int(np.searchsorted(ends, row))
