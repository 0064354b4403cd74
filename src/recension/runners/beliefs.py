"""What an answer was believed to be at an earlier time.

Assumes     elements are given as they can be read, with the time of the session's clock.
Guarantees  the history as of a time is that of all elements up to then, as far back as is kept.
State       the elements of the last ``keep`` microseconds, with their times.
Cost        nothing for what is forgotten; a question costs the elements since the time asked about.

What has come since is undone: every element has an opposite, and the history of now with the opposites of
what came later is the history of then. So nothing but the last elements is kept, whatever keeps the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise, takewhile

import numpy as np
import pyarrow as pa

from recension.core.batch import INSERT, RETRACT, EventBatch, concat, empty, inserts, new_end, null_payload
from recension.core.errors import RecensionError
from recension.core.formats.versions import describe_clock
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder
from recension.core.ticks import FOREVER
from recension.operators.base import Chunks

_COLUMNS = ("kind", "vs", "ve", "new_ve")


class Beliefs:
    """The last elements of one answer."""

    def __init__(self, name: str, schema: pa.Schema, keep: int, now: int) -> None:
        self._name, self._schema, self._keep = name, schema, keep
        self._last: deque[tuple[int, EventBatch]] = deque()
        # What was believed before this is not known any more; times of belief never go back.
        self._since = self._now = now

    def add(self, batches: Sequence[EventBatch], now: int) -> None:
        """Elements that can be read from now on."""
        if not self._keep:
            return
        self._now = max(self._now, now)
        data = [batch.filter(batch.is_data()) for batch in batches]
        self._last.extend((self._now, batch) for batch in data if len(batch))
        while self._last and self._last[0][0] <= self._now - self._keep:
            self._since, _ = self._last.popleft()

    def history(self, as_of: int, current: History) -> History:
        """What was believed at a time, given what is true now."""
        if not self._keep:
            raise RecensionError(
                "as_of: the session keeps only the present answer; rc.session(..., keep='1h') keeps earlier "
                "ones"
            )
        if as_of < self._since:
            raise RecensionError(
                f"the answer of {self._name!r} at {describe_clock(as_of)} is no longer kept: the earliest "
                f"time is {describe_clock(self._since)}; rc.session(..., keep=) sets the earliest as_of"
            )
        later = list(takewhile(lambda entry: entry[0] > as_of, reversed(self._last)))
        builder = HistoryBuilder(self._schema)
        builder.add(insert_all(current))
        for _, batch in later:
            builder.add(undo(batch))
        return builder.build()

    def snapshot(self) -> dict[str, pa.Table]:
        """The elements that are kept, with their times."""
        if not self._keep:
            return {}
        since = pa.table({"since": [self._since], "now": [self._now]})
        events = concat([batch for _, batch in self._last]) if self._last else empty(self._schema)
        at = np.repeat([at for at, _ in self._last], [len(batch) for _, batch in self._last])
        control = {name: pa.array(getattr(events, name)) for name in _COLUMNS}
        rows = pa.table({"at": pa.array(at.astype(np.int64)), **control})
        payload = pa.Table.from_batches([events.payload])
        return {"beliefs/since": since, "beliefs/elements": rows, "beliefs/payload": payload}

    def restore(self, chunks: Chunks, now: int) -> None:
        """Go on from a snapshot; where it has no beliefs, nothing earlier than now is known."""
        self._last.clear()
        self._since = self._now = now
        if not self._keep or not chunks:
            return
        since, rows, payload = (chunks[name] for name in ("since", "elements", "payload"))
        self._since, self._now = since["since"][0].as_py(), since["now"][0].as_py()
        at = rows["at"].to_numpy()
        columns = {name: rows[name].to_numpy() for name in _COLUMNS}
        columns["kind"] = columns["kind"].astype(np.uint8)
        parts = payload.combine_chunks().to_batches()
        events = EventBatch(
            **columns,
            count=np.zeros(len(at), np.int64),
            payload=parts[0] if parts else null_payload(0, self._schema),
        )
        edges = [*np.flatnonzero(np.diff(at, prepend=-1)).tolist(), len(at)]
        for start, stop in pairwise(edges):
            self._last.append((int(at[start]), events.slice(start, stop)))


def insert_all(history: History) -> EventBatch:
    """A history as inserts."""
    batches = history.payload.combine_chunks().to_batches()
    payload = batches[0] if batches else null_payload(0, history.payload.schema)
    return inserts(history.vs, history.ve, payload)


def undo(batch: EventBatch) -> EventBatch:
    """The opposite of each insert and retraction: what ended there before ends there again."""
    is_insert = batch.kind == INSERT
    is_removal = (batch.kind == RETRACT) & (batch.new_ve == batch.vs)
    kind = np.where(is_removal, INSERT, RETRACT).astype(np.uint8)
    before = np.where(is_insert, batch.vs, batch.ve)
    return EventBatch(
        kind,
        batch.vs,
        np.where(is_removal, batch.ve, new_end(batch)),
        np.where(is_removal, FOREVER, before),
        batch.count,
        batch.payload,
    )
