"""Modules as a measure: what users' modules say of the events of every window.

Windows of one stretch hold the same events, but a module may tell them apart: each is called by itself.

Assumes     modules that give the same answer of the same events.
Guarantees  an output CTI is where the first window starts that can still change: ``time_bound``, the input's
            own; ``unrestricted``, none but the last.
State       the events of windows that are not closed; what was shown for them, unless it is computed again;
            the states of incremental modules.
Cost        for each window that a batch affects one call and the events it holds (the changes alone, if the
            module is incremental).
Source      The Extensibility Framework in Microsoft StreamInsight, §III–§V; rulings G1–G11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from recension.core.batch import EventBatch, Index, empty, take_rows
from recension.core.rowhash import Hashes, row_hash
from recension.core.ticks import BEGINNING, FOREVER
from recension.core.time_kind import describe_time_in_message, kind_in_messages
from recension.modules.module import Stamping
from recension.operators.base import Chunks
from recension.operators.changes import EventRows, net_changes, plain_inserts, transition
from recension.operators.modules.answers import ModuleAnswers, ModuleRows, OperatorRows
from recension.operators.modules.contents import EventChanges, WindowContents
from recension.operators.modules.hosting import WindowList
from recension.operators.state.event_store import EventStore
from recension.operators.windowed.events import EventsOfGroups
from recension.operators.windowed.index import Closing, Stretches, WindowChange, WindowIndex
from recension.operators.windowed.operator import Measure, ahead

GROUP = "group"
"""The stored column that tells groups apart where payloads are equal."""


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """What the modules need, whatever the windows are.

    ``inputs`` makes the stored columns of payloads, but for `GROUP`, the last of them if it is there.
    ``waits_for``: modules see ends that can still move, to later ones too (``any``) or to earlier ones only
    (``shrink``).
    ``breaks_ties``: ends decide which of two events that begin together comes first. ``insert_only``: nothing
    is ever taken back from the input.
    """

    inputs: Callable[[pa.RecordBatch, int], pa.RecordBatch]
    stored: pa.Schema
    stamp: Stamping
    waits_for: str | None
    breaks_ties: bool
    recompute: bool
    insert_only: bool


class Modules(Measure):
    """Modules over windows of one kind."""

    def __init__(self, spec: ModuleSpec, index: WindowIndex, answers: ModuleAnswers) -> None:
        super().__init__(answers.schema)
        self._spec, self._index, self._answers = spec, index, answers
        self._inputs = ahead(spec.inputs)
        self._events = EventsOfGroups(spec.stored, index.place, insert_only=spec.insert_only)
        self._kept = None if spec.recompute else KeptRows(answers.schema)
        follows = index.is_fixed and spec.waits_for is None and not spec.breaks_ties
        self.shards_share_ctis = follows or spec.stamp in ("time_bound", "unrestricted")

    def arguments(self) -> list[Callable[..., pa.RecordBatch]]:
        return [self._inputs]

    def no_events(self) -> EventBatch:
        return empty(self._spec.stored)

    def prepare(self, batch: EventBatch, group: Index) -> EventBatch:
        payload = self._inputs(batch.payload, len(batch))
        if GROUP in self._spec.stored.names:
            hashes = pa.array(self._index.group_hash(group))
            payload = pa.RecordBatch.from_arrays([*payload.columns, hashes], schema=self._spec.stored)
        return EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)

    def apply(self, change: WindowChange, batch: EventBatch, group: Index) -> EventBatch:
        was = self._windows(change.old, change.old_end)
        now = self._windows(change.new, change.new_end)
        old = self._take_back(was)
        if len(batch):
            self._events.take(batch, self._index.group_hash(group))
        new = self._answer(now, self._changes(batch, group), self._find_gone(was, now))
        is_bound = self._spec.stamp == "time_bound"
        # A row that differs is taken back whole, unless revisions must not reach back (ruling G9).
        out = _changes_of_rows(old, new, moves_ends=is_bound)
        if is_bound:
            self._require_bound(out, self._earliest_cause(batch), [(now, new), (was, old)])
        return out

    def _windows(self, stretches: Stretches, end: Index) -> WindowList:
        """The windows of stretches one by one."""
        w = self._index.expand(stretches.low, end[stretches.slot])
        return WindowList(stretches.group[w.stretch], w.low, w.high, w.start, w.end)

    def _take_back(self, windows: WindowList) -> ModuleRows:
        if self._kept is not None:
            return self._kept.take(windows, self._index.group_hash(windows.group))
        return self._answers.recompute(self._contents(windows), self._index.keys_of(windows.group))

    def _answer(
        self, windows: WindowList, changes: EventChanges | None, gone: list[tuple[int, int]]
    ) -> ModuleRows:
        contents = self._contents(windows)
        rows = self._answers.compute(contents, self._index.keys_of(windows.group), changes, gone)
        if self._kept is not None:
            self._kept.put(windows, contents.group_hash, rows)
        return rows

    def _contents(self, windows: WindowList) -> WindowContents:
        find = partial(
            self._events.find_within, self._index.group_hash, windows.group, windows.low, windows.high
        )
        return WindowContents(
            windows, self._index.group_hash(windows.group), find, by_start=self._index.by_start
        )

    def _changes(self, batch: EventBatch, group: Index) -> EventChanges | None:
        if not self._answers.states or not len(batch):
            return None
        net = plain_inserts(batch) if self._spec.insert_only else net_changes(batch)
        return EventChanges.from_net_changes(net, group, batch.payload)

    def _find_gone(self, old: WindowList, new: WindowList) -> list[tuple[int, int]]:
        if not self._answers.states:
            return []
        was, now = (
            zip(self._index.group_hash(w.group).tolist(), w.low.tolist(), strict=True) for w in (old, new)
        )
        return list(set(was) - set(now))

    def _earliest_cause(self, batch: EventBatch) -> int:
        """The earliest cause of changes: the first element of the batch, or a window that came into view."""
        return min(self._index.watermark, int(batch.sync().min(initial=FOREVER)))

    def _require_bound(
        self, out: EventBatch, since: int, answers: list[tuple[WindowList, ModuleRows]]
    ) -> None:
        """Raise if a module that is declared time-bound changes anything before ``since``."""
        if not len(out) or int(out.sync().min()) >= since:
            return
        first, begun = int(np.argmin(out.sync())), describe_time_in_message(since)
        (change,) = out.slice(first, first + 1).to_elements(kind_in_messages())
        windows, at = next(
            (windows, at) for windows, rows in answers for at in rows.owner[rows.vs == out.vs[first]].tolist()
        )
        assert isinstance(self._answers, OperatorRows)
        hosted = self._answers.hosted
        raise hosted.caller.failure(
            f"it is not time-bound: at {begun} it makes the change {change}; use stamp_output('keep')",
            *self._contents(windows).members_for(hosted)(at),
        )

    def earliest_open_end(self, t: int) -> int:
        tied = self._events.earliest_tie(t) if self._spec.breaks_ties else FOREVER
        if self._spec.waits_for is None:
            return tied
        return min(tied, self._events.earliest_ending(t if self._spec.waits_for == "any" else t + 1))

    def close(self, t: int, closing: Closing) -> int:
        if closing.gone is not None:
            group, *places = closing.gone
            self._events.remove_within(self._index.group_hash(group), *places)
        self._events.expire(closing.past)
        if self._kept is not None:
            self._kept.expire(closing.closed)
        for states in self._answers.states:
            states.expire(closing.closed, closing.first_open)
        return {"time_bound": t, "unrestricted": BEGINNING}.get(self._spec.stamp, closing.first_open)

    def clear(self) -> None:
        self._events.expire(FOREVER)
        if self._kept is not None:
            self._kept.expire(FOREVER)
        for states in self._answers.states:
            states.clear()

    def trace(self) -> tuple[int, ...]:
        return (self._index.watermark,)

    def rows(self) -> int:
        kept = 0 if self._kept is None else self._kept.count_live()
        return len(self._events) + kept + sum(len(states) for states in self._answers.states)

    def nbytes(self) -> int:
        return self._events.nbytes() + (0 if self._kept is None else self._kept.nbytes())

    def snapshot(self) -> Chunks:
        chunks = {**self._events.snapshot()}
        if self._kept is not None:
            chunks |= self._kept.parts("shown")
        for i, states in enumerate(self._answers.states):
            chunks |= states.parts(i)
        return chunks

    def restore(self, chunks: Chunks) -> None:
        self._events.restore(chunks)
        if self._kept is not None:
            self._kept.restore("shown", chunks)
        for i, states in enumerate(self._answers.states):
            states.restore(i, chunks)


def _changes_of_rows(old: ModuleRows, new: ModuleRows, *, moves_ends: bool) -> EventBatch:
    """The changes from the rows shown so far to the new ones."""
    if not len(old.owner) and not len(new.owner):
        return empty(new.payload.schema)
    payload = pa.concat_batches([old.payload, new.payload])
    hashes = row_hash(payload, len(old.owner) + len(new.owner))
    before = EventRows(old.vs, old.ve, hashes[: len(old.owner)])
    after = EventRows(new.vs, new.ve, hashes[len(old.owner) :])
    return transition(before, after, partial(take_rows, payload), moves_ends=moves_ends)


class KeptRows(EventStore):
    """What is shown for each window, by its place on the axis: its group and where it begins.

    A window is dropped when it is closed.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, ("start", "end"))

    def take(self, windows: WindowList, group: Hashes) -> ModuleRows:
        """The rows of these windows, which are no longer kept."""
        asked, at = self.find_overlaps(group, windows.low, windows.low + 1)
        own = np.flatnonzero(self.column("vs", at) == windows.low[asked])
        asked, at = asked[own], at[own]
        start, end = (self.column(name, at) for name in ("start", "end"))
        rows = ModuleRows(asked, start, end, self.payload(at))
        self.remove(at)
        return rows

    def put(self, windows: WindowList, group: Hashes, rows: ModuleRows) -> None:
        """Keep the rows of these windows, except those that are closed already."""
        owner = rows.owner
        open_ = np.flatnonzero(windows.high[owner] > self.expired_until)
        at: Index = owner[open_]
        payload = rows.payload.take(pa.array(open_)) if rows.payload.num_columns else rows.payload
        tag = np.zeros(len(at), np.uint64)
        lifetime = {"start": rows.vs[open_], "end": rows.ve[open_]}
        self.insert(group[at], windows.low[at], windows.high[at], tag, payload, **lifetime)
