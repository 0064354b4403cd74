"""Modules over windows: for each group, what users' modules say of the events of every window.

Assumes     a valid physical stream; modules that give the same answer of the same events.
Guarantees  the output history is what the modules say of the windows in view (of a closed stream: of all); an
            output CTI is where the first window starts that can still change: ``time_bound``, the input's
            own; ``unrestricted``, none but the last.
State       the events of windows that are not closed; what was shown for them, unless it is computed again;
            the states of incremental modules.
Cost        O(n log n) in the batch, and for each window it affects one call and the events it holds (the
            changes alone, if the module is incremental).
Source      The Extensibility Framework in Microsoft StreamInsight, §III–§V; rulings G1–G11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, EventBatch, Index, empty
from recension.core.ticks import BEGINNING, FOREVER
from recension.modules.module import Stamping
from recension.operators.base import Chunks, Operator, Output
from recension.operators.modules.answering import Answering, OperatorRows
from recension.operators.modules.answers import Rows
from recension.operators.modules.difference import difference
from recension.operators.modules.gathered import Delta, Gathered
from recension.operators.modules.kept_output import KeptOutput
from recension.operators.modules.window_index import WindowIndex, WindowList
from recension.operators.snapshot.events import EventsOfGroups
from recension.operators.state.net_changes import net_changes, plain_inserts

GROUP = "group"
"""The stored column that tells groups apart where payloads are equal."""


@dataclass(frozen=True, slots=True)
class ModulesAsked:
    """What is asked, whatever the windows are.

    ``inputs`` makes the stored columns of payloads, but for `GROUP`, the last of them if it is there.
    ``waits_for``: modules see ends that can still move, to later ones too (``any``) or to earlier ones only
    (``shrink``).
    ``breaks_ties``: ends decide which of two events that begin together comes first. ``insert_only``: nothing
    is ever taken back from the input.
    """

    name: str
    inputs: Callable[[pa.RecordBatch, int], pa.RecordBatch]
    stored: pa.Schema
    keys: Callable[[pa.RecordBatch], pa.RecordBatch] | None
    stamp: Stamping
    waits_for: str | None
    breaks_ties: bool
    recompute: bool
    insert_only: bool


class ModuleWindows(Operator):
    """Modules over windows of one kind, grouped or not."""

    def __init__(self, asked: ModulesAsked, index: WindowIndex, answering: Answering) -> None:
        super().__init__(answering.schema)
        self._asked, self._index, self._answering = asked, index, answering
        self._events = EventsOfGroups(asked.stored, index.place, insert_only=asked.insert_only)
        self._shown = None if asked.recompute else KeptOutput(answering.schema)
        self._in_cti = BEGINNING
        follows = index.is_fixed and asked.waits_for is None and not asked.breaks_ties
        self.promises_alike = follows or asked.stamp in ("time_bound", "unrestricted")

    def on_batch(self, port: int, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return empty(self.schema)
        keys = pa.record_batch([]) if self._asked.keys is None else self._asked.keys(batch.payload)
        group = self._index.number(keys, len(batch))
        starts = batch.vs[batch.kind == INSERT]
        watermark = max(self._index.watermark, int(starts.max(initial=BEGINNING)))
        return self._step(self._stored(batch, group), group, watermark)

    def _stored(self, batch: EventBatch, group: Index) -> EventBatch:
        """The batch with nothing but what modules read."""
        payload = self._asked.inputs(batch.payload, len(batch))
        if GROUP in self._asked.stored.names:
            hashes = pa.array(self._index.group_hash(group))
            payload = pa.RecordBatch.from_arrays([*payload.columns, hashes], schema=self._asked.stored)
        return EventBatch(batch.kind, batch.vs, batch.ve, batch.new_ve, batch.count, payload)

    def on_cti(self, port: int, t: int) -> Output:
        none = self._none()
        shown = self._step(none, np.zeros(0, np.int64), max(self._index.watermark, t))
        self._in_cti = t
        if t == FOREVER:
            self._forget_all()
            return self.promise(t, shown)
        settled = self._index.settle(t, self._earliest_open_end(t))
        if settled.gone is not None:
            self._events.drop(self._index.group_hash(settled.gone[0]), settled.gone[1])
        self._events.expire(settled.past)
        if self._shown is not None:
            self._shown.forget(settled.closed)
        for states in self._answering.states:
            states.forget(settled.closed, settled.first_open)
        self._index.retire()
        promised = {"time_bound": t, "unrestricted": self.out_cti}.get(self._asked.stamp, settled.first_open)
        return self.promise(promised, shown)

    def _none(self) -> EventBatch:
        return empty(self._asked.stored)

    def _earliest_open_end(self, t: int) -> int:
        """Where the first event starts whose end modules see, or decides a tie, and which may still move."""
        tied = self._events.earliest_tied_start(t) if self._asked.breaks_ties else FOREVER
        if self._asked.waits_for is None:
            return tied
        return min(tied, self._events.earliest_ending(t if self._asked.waits_for == "any" else t + 1))

    def _step(self, batch: EventBatch, group: Index, watermark: int) -> EventBatch:
        since = max(self._in_cti, min(self._index.watermark, int(batch.sync().min(initial=FOREVER))))
        affected = self._index.affected(batch, group, watermark)
        if not len(batch) and not len(affected.old) and not len(affected.new):
            affected.keep()
            return self._nothing
        old = self._before(affected.old)
        hashes = self._index.group_hash(group)
        if len(batch):
            self._events.take(batch, hashes)
        new = self._now(affected.new, self._delta(batch, group), self._vanished(affected.old, affected.new))
        affected.keep()
        out = difference(old, new, moves_ends=self._asked.stamp == "time_bound")
        if self._asked.stamp == "time_bound":
            self._require_bound(out, since, [(affected.new, new), (affected.old, old)])
        return out

    def _before(self, windows: WindowList) -> Rows:
        hashes = self._index.group_hash(windows.group)
        if self._shown is not None:
            return self._shown.take(windows, hashes)
        return self._answering.before(self._gathered(windows), self._index.keys_of(windows.group))

    def _now(self, windows: WindowList, delta: Delta | None, gone: list[tuple[int, int]]) -> Rows:
        gathered = self._gathered(windows)
        rows = self._answering.now(gathered, self._index.keys_of(windows.group), delta, gone)
        if self._shown is not None:
            self._shown.put(windows, gathered.group_hash, rows)
        return rows

    def _gathered(self, windows: WindowList) -> Gathered:
        find = partial(self._events.within, self._index.group_hash, windows.group, windows.low, windows.high)
        return Gathered(windows, self._index.group_hash(windows.group), find, by_start=self._index.by_start)

    def _delta(self, batch: EventBatch, group: Index) -> Delta | None:
        if not self._answering.states or not len(batch):
            return None
        changes = plain_inserts(batch) if self._asked.insert_only else net_changes(batch)
        return Delta.of(changes, group, batch.payload)

    def _vanished(self, old: WindowList, new: WindowList) -> list[tuple[int, int]]:
        if not self._answering.states:
            return []
        was, now = (
            zip(self._index.group_hash(w.group).tolist(), w.low.tolist(), strict=True) for w in (old, new)
        )
        return list(set(was) - set(now))

    def _require_bound(self, out: EventBatch, since: int, said: list[tuple[WindowList, Rows]]) -> None:
        """What is promised to be time-bound changes nothing before what makes it change.

        That is the first thing that happened, or a window that came into view.
        """
        if not len(out) or int(out.sync().min()) >= since:
            return
        first = int(np.argmin(out.sync()))
        (change,) = out.slice(first, first + 1).to_elements()
        windows, at = next(
            (windows, at) for windows, rows in said for at in rows.owner[rows.vs == out.vs[first]].tolist()
        )
        assert isinstance(self._answering, OperatorRows)
        hosted = self._answering.hosted
        raise hosted.caller.failure(
            f"it is not time-bound: at {since} it makes the change {change}; use stamp_output('keep')",
            *self._gathered(windows).given_to(hosted)(at),
        )

    def _forget_all(self) -> None:
        self._index.clear()
        self._events.expire(FOREVER)
        if self._shown is not None:
            self._shown.forget(FOREVER)
        for states in self._answering.states:
            states.clear()

    def trace(self) -> tuple[int, ...] | None:
        return (self._index.watermark, self._in_cti)

    def state_rows(self) -> int:
        shown = 0 if self._shown is None else len(self._shown)
        states = sum(len(states) for states in self._answering.states)
        return len(self._index) + len(self._events) + shown + states

    def state_bytes(self) -> int:
        shown = 0 if self._shown is None else self._shown.nbytes()
        return self._index.nbytes() + self._events.nbytes() + shown

    def state_chunks(self) -> Chunks:
        chunks = dict(self._index.to_chunks()) | dict(self._events.to_chunks())
        chunks["in_cti"] = pa.table({"t": [self._in_cti]})
        if self._shown is not None:
            chunks |= dict(self._shown.to_chunks())
        for i, states in enumerate(self._answering.states):
            chunks |= {f"states{i}": states.to_arrow(), f"panes{i}": states.panes_to_arrow()}
        return chunks

    def load_chunks(self, chunks: Chunks) -> None:
        self._index.load(chunks)
        self._events.load(chunks)
        self._in_cti = chunks["in_cti"]["t"][0].as_py()
        if self._shown is not None:
            self._shown.load(chunks)
        for i, states in enumerate(self._answering.states):
            states.load(chunks[f"states{i}"], chunks[f"panes{i}"])
