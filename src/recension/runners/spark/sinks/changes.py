"""What a micro-batch does to a history: events that are added, and events that are no longer there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import CTI, RETRACT, EventBatch, Index
from recension.core.errors import StreamError
from recension.core.history import History
from recension.core.netting import group_sizes
from recension.core.orphans import Known, Steps, find_orphans, steps_of
from recension.core.rowhash import Hashes
from recension.core.ticks import BEGINNING
from recension.core.validity import UNKNOWN, Checker
from recension.runners.spark.sinks.micro_batch import MicroBatch


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect: events to add; identities to remove, each so many times; and the last CTI."""

    added: History
    removed: Hashes
    times: Index
    cti: int


def changes_of(batch: MicroBatch, live: Known, cti: int) -> Changes:
    """The net effect of a micro-batch on a history that was final up to ``cti``."""
    events = _valid(batch, cti)
    cti = max(cti, int(events.vs[events.kind == CTI].max(initial=BEGINNING)))
    if not bool((events.kind == RETRACT).any()):
        data = events.filter(events.is_data())
        return Changes(_history(data, data.ve), np.zeros(0, np.uint64), np.zeros(0, np.int64), cti)
    steps = steps_of(events, events.is_data())
    orphans = find_orphans(steps, live, len(events))
    if bool(orphans.any()):
        at = int(np.argmax(orphans))
        raise StreamError(
            f"{batch.name}: {UNKNOWN}: {events.slice(at, at + 1).to_elements(batch.layout.kind)[0]}"
        )
    added, removed, times = _netted(steps)
    return Changes(_history(events.take(steps.row[added]), steps.end[added]), removed, times, cti)


def _valid(batch: MicroBatch, cti: int) -> EventBatch:
    """The elements, or an error that names the first which no valid stream may hold."""
    checker = Checker(orphans=False)
    checker.restore({"frontier": pa.table({"frontier": [cti], "settled": [BEGINNING]})})
    try:
        return checker.check(batch.events(), kind=batch.layout.kind)
    except StreamError as why:
        raise StreamError(f"{batch.name}: {why.reason}") from None


def _netted(steps: Steps) -> tuple[Index, Hashes, Index]:
    """The steps up that stand, and the identities of which more were taken away than announced."""
    order = np.lexsort((steps.step, steps.key))
    group, size = group_sizes(steps.key[order])
    first = np.cumsum(size) - size
    net = np.add.reduceat(steps.step[order], first)
    # The steps up stand last in their group.
    from_end = (first + size)[group] - np.arange(len(order))
    added: Index = order[from_end <= net[group]]
    return added, steps.key[order][first[net < 0]], -net[net < 0]


def _history(events: EventBatch, ends: Index) -> History:
    return History(events.vs, ends, pa.Table.from_batches([events.payload]))
