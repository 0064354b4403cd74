"""Clip: an event ends when the first matching event of another stream starts within its lifetime.

Assumes     each input is a valid physical stream; in a step port 0 comes before port 1.
Guarantees  after every batch the output history is the left history, every event cut off at the first
            start of a matching event strictly inside its lifetime; an output CTI is the least of the input
            CTIs. The output lengthens where the event that clipped it is taken back.
State       left events with the lifetimes shown, and the starts of the other stream, until both CTIs have
            passed the end shown, or the start.
Cost        O((n + m) log s) for n inputs, m outputs and s rows of state.
Source      the guide; rulings A1, A2 for the tests against CTIs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recension.core.batch import EventBatch, Index, Mask, concat, empty, take_rows
from recension.core.netting import cancel, distinct
from recension.core.rowhash import combine
from recension.core.ticks import BEGINNING, Ticks
from recension.operators.base import Output
from recension.operators.changes import changes, identity
from recension.operators.matching import RIGHT, JoinSide, SideChanges, SidedOperator, last_final_end
from recension.operators.state.event_store import EventStore
from recension.operators.state.start_index import StartIndex


class Clip(SidedOperator):
    """Left events until the next start of the right input under the same keys."""

    def __init__(self, left: JoinSide, right: JoinSide) -> None:
        # Indexed by the lifetime shown; ``end`` is the event's own end.
        self._left = EventStore(left.schema, extras=("end",))
        self._starts = StartIndex()
        super().__init__(left.schema, (left, right), left=self._left, starts=self._starts)

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        has_keys = self._sides[port].has_keys(batch)
        arriving = self._sides[port].net_changes_of(batch.filter(has_keys))
        if port == RIGHT:
            return self._apply_right(arriving)
        # Left events with a null among their keys are never clipped: they pass.
        output = [self._apply_left(arriving), batch.filter(~has_keys)]
        return concat([part for part in output if len(part)] or [empty(self.schema)])

    def _apply_left(self, arriving: SideChanges) -> EventBatch:
        change = arriving.change
        shown, live = self._take_out(arriving)
        new = change.new.copy()
        goes_on = (live & (change.new > change.vs)).nonzero()[0]
        vs, end = change.vs[goes_on], change.new[goes_on]
        new[goes_on] = self._starts.find_next(arriving.group[goes_on], vs, end)
        tag = identity(change.hash[goes_on], vs, end)
        payload = take_rows(arriving.payload, goes_on)
        self._left.insert(arriving.group[goes_on], vs, new[goes_on], tag, payload, end=end)
        differs = (live & (shown != new)).nonzero()[0]
        return changes(change.vs[differs], shown[differs], new[differs], take_rows(arriving.payload, differs))

    def _take_out(self, arriving: SideChanges) -> tuple[Ticks, Mask]:
        """The end shown of each event so far, and whether it can still change.

        An event that is no longer in state was clipped before both CTIs. It stays as it is shown, whatever
        becomes of its own end.
        """
        change = arriving.change
        shown, live = change.vs.copy(), np.ones(len(change), np.bool_)
        known = (change.old != change.vs).nonzero()[0]
        found = self._left.find(identity(change.hash[known], change.vs[known], change.old[known]))
        live[known] = found >= 0
        known, found = known[found >= 0], found[found >= 0]
        shown[known] = self._left.column("ve", found)
        self._left.remove(found)
        return shown, live

    def _apply_right(self, arriving: SideChanges) -> EventBatch:
        """Only starts that appear or vanish matter: the left events they fall into look for the next one."""
        group, vs, change = arriving.group, arriving.change.vs, arriving.change
        come, gone = (change.old == vs).nonzero()[0], (change.new == vs).nonzero()[0]
        stays, _, by = cancel(combine(group[come], vs[come]), combine(group[gone], vs[gone]))
        come, gone = come[stays], np.delete(gone, by)
        self._starts.remove_at(group[gone], vs[gone])
        self._starts.insert(group[come], vs[come])
        # A new start s clips what is shown on both sides of s; an old one had clipped what is shown up to s.
        rows = np.concatenate([come, gone])
        lo = np.concatenate([vs[come], np.maximum(vs[gone], BEGINNING + 1) - 1])
        _, at = self._left.find_overlaps(group[rows], lo, vs[rows])
        return self._look_again(distinct(at))

    def _look_again(self, at: Index) -> EventBatch:
        names = ("group", "vs", "ve", "tag", "end", "row")
        group, vs, shown, tag, end, row = (self._left.column(name, at) for name in names)
        new = self._starts.find_next(group, vs, end)
        differs = (new != shown).nonzero()[0]
        output = changes(vs[differs], shown[differs], new[differs], self._left.payload(at[differs]))
        self._left.remove(at[differs], rows_stay=True)
        self._left.add(
            group[differs], vs[differs], new[differs], tag[differs], end=end[differs], row=row[differs]
        )
        return output

    def on_feedback(self, t: int, shrinks: Sequence[bool]) -> list[int | None]:
        """Lifetimes are only cut; what cuts them may have ended long ago."""
        return [t, None]

    def on_cti(self, port: int, t: int) -> Output:
        both = self.note_cti(port, t)
        # What is shown up to t itself may still grow: its end may move, or the start that clipped it go.
        self._left.expire(last_final_end(both))
        self._starts.expire(both)
        return self.emit(both)
