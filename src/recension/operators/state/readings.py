"""Readings of groups, each with its payload, by group and time.

At any time a group has one reading at most. Of the past, the last reading of each group is kept: what was
read then is still valid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, Mask, take_rows
from recension.core.errors import StreamError
from recension.core.ticks import FOREVER, Ticks
from recension.core.time_kind import describe_time_in_message
from recension.operators.changes import net_changes
from recension.operators.state.block_table import sort_keys
from recension.operators.state.end_points import KeptMoments, PointsWithPayloads, align_moments
from recension.operators.state.leaf_table import LeafExtract


@dataclass(frozen=True, slots=True)
class ReadingAxis:
    """Readings before and after a batch, by (group, time), those next to each change among them.

    ``old_row`` and ``new_row`` number payloads, -1 where there is no reading; ``is_context`` marks the last
    of a stretch, of which the next reading is not known and does not change.
    """

    group: Index
    time: Ticks
    old_row: Index
    new_row: Index
    is_context: Mask

    def ends(self, row: Index) -> Ticks:
        """Where each reading that has a row ends: at the next of its group; its own time where none is."""
        ends, at = self.time.copy(), np.flatnonzero(row >= 0)
        following = np.append(self.time[at[1:]], FOREVER)
        is_last = np.append(self.group[at[1:]] != self.group[at[:-1]], True)
        ends[at] = np.where(is_last, np.int64(FOREVER), following)[: len(at)]
        return ends


class Readings(PointsWithPayloads, KeptMoments):
    """Moments with payloads, one a group and time."""

    def __init__(self, schema: pa.Schema, key_schema: pa.Schema, keyed_by: str) -> None:
        """``keyed_by`` says, in errors, where the groups were named."""
        self._keyed_by = keyed_by
        super().__init__({"row": np.int64}, key_schema, schema, "readings")

    def apply(self, batch: EventBatch, group: Index) -> ReadingAxis:
        """Take in a batch of readings that come and go; those whose end alone moves stay as they are."""
        comes, goes = find_come_and_gone(batch)
        changed = np.concatenate([goes, comes])
        order = np.argsort(sort_keys([group[changed]], [batch.vs[changed]])[0], kind="stable")
        key_group, key_time = group[changed][order], batch.vs[changed][order]
        extract = self._table.extract(key_group, key_time, key_time)
        rows = self._store.append(take_rows(batch.payload, comes), len(comes))
        added = np.concatenate([np.full(len(goes), -1), np.ones(len(comes), np.int64)])[order]
        row = np.concatenate([np.full(len(goes), -1), rows])[order]
        axis = _merge_changes(extract, key_group, key_time, added, row, self._keyed_by)
        self._write(axis, extract)
        return axis

    def _write(self, axis: ReadingAxis, extract: LeafExtract) -> None:
        stays = (axis.new_row >= 0) & ~axis.is_context
        columns = {"group": axis.group[stays], "time": axis.time[stays], "row": axis.new_row[stays]}
        born, gone = (axis.old_row < 0) & (axis.new_row >= 0), (axis.old_row >= 0) & (axis.new_row < 0)
        self.replace(
            extract, columns, (axis.group[born], axis.time[born]), (axis.group[gone], axis.time[gone])
        )
        self._unnamed.append(axis.old_row[(axis.old_row >= 0) & (axis.old_row != axis.new_row)])

    def _forget_past(self, t: int) -> None:
        self._unnamed.append(self.forget_all_but_last(t, 1, ("row",))["row"])


def find_come_and_gone(batch: EventBatch) -> tuple[Index, Index]:
    """The elements whose readings are there after the batch and were not before, and the other way round."""
    if not bool(batch.kind.any()):
        return np.arange(len(batch)), np.zeros(0, np.int64)
    net = net_changes(batch)
    was, now = net.old != net.vs, net.new != net.vs
    return net.row[now & ~was], net.row[was & ~now]


def _merge_changes(
    extract: LeafExtract, group: Index, time: Ticks, added: Index, row: Index, keyed_by: str
) -> ReadingAxis:
    """Lay sorted changes over the readings kept so far."""
    groups, times, at_kept, at_changes = align_moments(extract.columns, group, time)
    old_row, is_context = np.full(len(times), -1), np.zeros(len(times), np.bool_)
    old_row[at_kept], is_context[at_kept] = extract.columns["row"], extract.follower
    count = (old_row >= 0).astype(np.int64)
    np.add.at(count, at_changes, added)
    _check(count, times, keyed_by)
    new_row = np.where(count == 0, -1, old_row)
    came = added > 0
    new_row[at_changes[came]] = row[came]
    return ReadingAxis(groups, times, old_row, new_row, is_context)


def _check(count: Index, times: Ticks, keyed_by: str) -> None:
    if bool((count > 1).any()):
        moment = describe_time_in_message(int(times[np.argmax(count > 1)]))
        raise StreamError(f"two readings of one group at {moment}: name what tells them apart in {keyed_by}")
    if bool((count < 0).any()):
        moment = describe_time_in_message(int(times[np.argmax(count < 0)]))
        raise StreamError(f"a reading at {moment} was retracted that had never been inserted")
