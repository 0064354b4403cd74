"""Both times at once: when events are true, and from when to when that was believed.

A stream is read version by version. What a version adds and takes away is counted as a whole, so that an end
that moves twice within one version was never believed in between. Of equal events the one that was believed
first is given up first. At any time of belief the rows that hold then are the history as of that time.

Assumes     versions come in the order of their times, and every retraction meets an event.
Guarantees  a row for every copy of an event, as long as it was believed without a break.
Cost        O(n log n) for n elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, concat, empty
from recension.core.errors import RecensionError, SchemaError, StreamError
from recension.core.event_bag import BagChanges, bag_changes
from recension.core.history import History
from recension.core.netting import group_sizes, rank_in_group
from recension.core.rowhash import rows_equal
from recension.core.ticks import Ticks
from recension.core.time_kind import AWARE

FROM: Final = "believed_from"
TO: Final = "believed_to"


def believed_events(versions: Iterable[tuple[int, EventBatch]], schema: pa.Schema) -> History:
    """Every event of every version; ``believed_from`` and ``believed_to`` are columns of its payload.

    A version is its time of belief, in microseconds since 1970, and the elements that it adds to the stream.
    Several batches of one time are one version. What is still believed has no ``believed_to``.
    """
    refuse_belief_columns(schema)
    given = [(at, batch.filter(batch.is_data())) for at, batch in versions]
    events = concat([batch for _, batch in given]) if given else empty(schema)
    at = np.repeat([at for at, _ in given], [len(batch) for _, batch in given]).astype(np.int64)
    changes = bag_changes(events, events.is_data())
    up, down = _steps(changes, at)
    taken = _pair(changes, up, down)
    if taken is None:
        raise StreamError("a retraction of an event that is not there")
    _verify(events, changes.row[up[taken]], changes.row[down])
    ends = np.zeros(len(up), np.int64)
    ends[taken] = at[changes.row[down]]
    is_over = np.zeros(len(up), np.bool_)
    is_over[taken] = True
    return _make_history(events, changes, up, at, ends, is_over)


def refuse_belief_columns(schema: pa.Schema) -> None:
    """Refuse a payload that has a column of our names."""
    for name in (FROM, TO):
        if name in schema.names:
            raise SchemaError(f"column {name}: the name is needed for the times of belief; rename the column")


def _steps(changes: BagChanges, at: Ticks) -> tuple[Index, Index]:
    """The changes that each version makes as a whole, by event and time: those that add, those that take."""
    time = at[changes.row]
    order = np.lexsort((changes.delta, time, changes.key))
    key, when = changes.key[order], time[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (key[1:] != key[:-1]) | (when[1:] != when[:-1])
    group = np.cumsum(is_new) - 1
    _, size = group_sizes(group)
    first = np.cumsum(size) - size
    delta = changes.delta[order]
    net = np.add.reduceat(delta, first) if len(first) else delta
    # Within a version what takes away stands first, what adds last: as many of them as are left stay.
    rank = np.arange(len(order)) - first[group]
    from_end = size[group] - rank
    return order[(delta > 0) & (from_end <= net[group])], order[(delta < 0) & (rank < -net[group])]


def _pair(changes: BagChanges, up: Index, down: Index) -> Index | None:
    """For each step that takes an event away the number of the one that added it; none if one has none."""
    added, removed = changes.key[up], changes.key[down]
    first = np.searchsorted(added, removed)
    found: Index = first + rank_in_group(removed)
    if bool((found >= len(added)).any()) or bool((added[found] != removed).any()):
        return None
    return found


def _verify(events: EventBatch, added: Index, removed: Index) -> None:
    left, right = events.take(added), events.take(removed)
    same = rows_equal(left.payload, right.payload, len(left)) & (left.vs == right.vs)
    if not bool(same.all()):
        raise RecensionError("two different payloads share a 64-bit hash; the history would be wrong")


def _make_history(
    events: EventBatch, changes: BagChanges, up: Index, at: Ticks, ends: Ticks, is_over: Mask
) -> History:
    rows = changes.row[up]
    payload = pa.Table.from_batches([events.take(rows).payload])
    times = {FROM: pa.array(at[rows]).view(AWARE), TO: pa.array(ends, mask=~is_over).view(AWARE)}
    for name, column in times.items():
        payload = payload.append_column(name, column)
    return History(events.vs[rows], changes.end[up], payload)
