"""What the queries of a session gave: what was not read yet, and what is true now.

The history of an answer is kept as it comes and put together when somebody asks; now and then what has
cancelled out is dropped, so that memory grows with the history and not with the stream. A history that has
more events than the limit is no longer kept: that is logged, and asking for it is an error that says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from recension.core.batch import EventBatch, concat, inserts, null_payload
from recension.core.errors import RecensionError, StreamError
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder

HISTORY_LIMIT: Final = 1 << 20
_COMPACT_AT: Final = 1 << 18
# Small batches are joined: a million of one element each would take far more memory than their elements.
_MOST_BATCHES: Final = 256

log = logging.getLogger("recension")


class Answer:
    """What one query gave."""

    def __init__(self, name: str, schema: pa.Schema, limit: int | None) -> None:
        self.was_read = False
        self._unread: list[EventBatch] = []
        self._history = RunningHistory(name, schema, limit)

    def add(self, batches: Iterable[EventBatch]) -> None:
        """More of it."""
        for batch in batches:
            self._unread.append(batch)
            self._history.add(batch)

    def take_unread(self) -> list[EventBatch]:
        """What came since the last time of asking."""
        unread, self._unread = self._unread, []
        self.was_read |= bool(unread)
        return unread

    def history(self) -> History:
        """What is true now."""
        return self._history.build()

    def snapshot(self) -> dict[str, pa.Table]:
        """The history, if it is kept, as a table."""
        return {"history": self.history().to_arrow()} if self._history.is_kept() else {}

    def restore(self, chunks: dict[str, pa.Table]) -> None:
        """Become the answer of a session whose snapshot this is, with everything read."""
        self._unread, self.was_read = [], True
        self._history.restart(chunks.get("history"))


class RunningHistory:
    """The history of an answer that goes on."""

    def __init__(self, name: str, schema: pa.Schema, limit: int | None) -> None:
        self._name, self._schema, self._limit = name, schema, limit
        self.why_not: str | None = "rc.session(..., history_limit=0) says so" if limit == 0 else None
        self._start()

    def _start(self) -> None:
        self._compact_at = _COMPACT_AT if self._limit is None else min(_COMPACT_AT, self._limit)
        self._builder = HistoryBuilder(self._schema, self._compact_at)
        self._recent: list[EventBatch] = []
        self._rows = 0

    def add(self, batch: EventBatch) -> None:
        """More elements of the stream."""
        if self.why_not is not None:
            return
        self._recent.append(batch)
        self._rows += len(batch)
        if len(self._recent) >= _MOST_BATCHES or self._rows >= self._compact_at:
            self._gather()

    def _gather(self) -> None:
        """Put the recent batches to the others; whatever is wrong with them is said to who asks."""
        recent, self._recent, self._rows = self._recent, [], 0
        try:
            for batch in [concat(recent)] if len(recent) >= _MOST_BATCHES else recent:
                self._builder.add(batch)
        except StreamError as why:
            self._give_up(f"the output is not a valid stream ({why.reason})")
            return
        # The builder lets it double before it looks what is left: so much means that more than half stands.
        if self._limit is not None and len(self._builder) > 2 * self._limit:
            self._give_up(
                f"it has more than {self._limit:,} events: rc.session(..., history_limit=N) keeps more, "
                "None all of them"
            )

    def _give_up(self, reason: str) -> None:
        self.why_not = reason
        self._start()
        log.warning("the history of %s is no longer kept for session.history(): %s", self._name, reason)

    def is_kept(self) -> bool:
        """Is it kept, with what came last?"""
        if self.why_not is None:
            self._gather()
        return self.why_not is None

    def build(self) -> History:
        """What is true now."""
        if self.is_kept():
            return self._builder.build()
        raise RecensionError(
            f"the history of {self._name!r} is not kept: {self.why_not}; or add up what session.read() gives"
        )

    def restart(self, table: pa.Table | None) -> None:
        """Go on from the history in a snapshot."""
        self._start()
        if self._limit == 0:
            return
        self.why_not = "the snapshot that was restored has none" if table is None else None
        if table is not None:
            history = History.from_arrow(table)
            self._builder.add(inserts(history.vs, history.ve, _one_batch(history.payload)))


def _one_batch(payload: pa.Table) -> pa.RecordBatch:
    batches = payload.combine_chunks().to_batches()
    return batches[0] if batches else null_payload(0, payload.schema)
