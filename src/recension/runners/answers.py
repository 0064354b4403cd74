"""What the queries of a session gave: what was not read yet, and what is true now.

The history of an answer is kept as it comes and put together when somebody asks; now and then what has
cancelled out is removed, so that memory grows with the history and not with the stream. A history that has
more events than the limit is no longer kept: that is logged, and asking for it is an error that says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from os import urandom
from typing import Final, TypeAlias

import pyarrow as pa

from recension.core.batch import EventBatch, concat, inserts, null_payload
from recension.core.errors import RecensionError, StreamError, suggest_name
from recension.core.history import History
from recension.core.reconstitution import HistoryBuilder
from recension.core.wall_clock import Clock
from recension.gate.readings import Position
from recension.operators.base import Chunks
from recension.operators.state.chunks import take_prefix
from recension.plan.node import Node
from recension.runners.beliefs import Beliefs

HISTORY_LIMIT: Final = 1 << 20
# In bytes. To cancel elements takes up to a third of the time in which they were computed: it is put off.
_COMPACT_AT: Final = 1 << 26
_GATHER_AT: Final = 1 << 18
# Small batches are joined: a million of one element each would take far more memory than their elements.
_MOST_BATCHES: Final = 256

# By source or operator, elements that were dropped, with the reason.
Dropped: TypeAlias = dict[str, list[tuple[str, EventBatch]]]

log = logging.getLogger("recension")


class QueryAnswers:
    """What every query of a session gave. What is staged can be read once the whole step has gone well."""

    def __init__(
        self, queries: Mapping[str, Node], history_limit: int | None, clock: Clock, keep: int = 0
    ) -> None:
        # The clock is looked at only by those who want to know what was believed when.
        self._clock: Clock = clock if keep else lambda: 0
        now = self._clock()
        self._by_query = {
            name: Answer(name, node.schema, history_limit, Beliefs(name, node.schema, keep, now))
            for name, node in queries.items()
        }
        self._staged: dict[str, list[EventBatch]] = {}

    def __getitem__(self, query: str) -> Answer:
        return self._by_query[query]

    def query_name(self, name: str | None) -> str:
        """The name of a query, which may be left out if it is the only one."""
        names = list(self._by_query)
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            listed = ", ".join(names)
            raise RecensionError(
                f"the session runs {listed}: say which query, for example read({names[0]!r})"
            )
        if name not in names:
            raise RecensionError(
                f"no query {name!r}{suggest_name(name, names)}; the session runs {', '.join(names)}"
            )
        return name

    def stage(self, query: str, batches: Iterable[EventBatch]) -> None:
        """More of an answer, which cannot be read yet."""
        self._staged.setdefault(query, []).extend(batches)

    def publish(self) -> None:
        """Everything that was staged can be read now."""
        staged, self._staged = self._staged, {}
        now = self._clock() if staged else 0
        for query, batches in staged.items():
            self._by_query[query].add(batches, now)

    def add_dropped(self, dropped: Dropped) -> None:
        """Elements that were dropped are kept for every query until it is read."""
        for where, elements in dropped.items():
            for answer in self._by_query.values() if elements else ():
                answer.dropped.setdefault(where, []).extend(elements)

    def snapshot(self) -> dict[str, pa.Table]:
        """The histories that are kept."""
        return {
            f"{name}/{chunk}": table
            for name, answer in self._by_query.items()
            for chunk, table in answer.snapshot().items()
        }

    def restore(self, chunks: Chunks) -> None:
        """Become the answers whose snapshot this is, with everything read."""
        self._staged = {}
        for name, answer in self._by_query.items():
            answer.restore(take_prefix(f"{name}", chunks), self._clock())


class Answer:
    """What one query gave."""

    def __init__(self, name: str, schema: pa.Schema, limit: int | None, beliefs: Beliefs) -> None:
        self.position = Position(0, _new_id())
        self._beliefs = beliefs
        self.dropped: Dropped = {}
        self._unread: list[EventBatch] = []
        self._history = RunningHistory(name, schema, limit)

    def add(self, batches: Sequence[EventBatch], now: int = 0) -> None:
        """More of it."""
        for batch in batches:
            self._unread.append(batch)
            self._history.add(batch)
        self._beliefs.add(batches, now)

    def take_unread(self) -> list[EventBatch]:
        """What came since the last call."""
        unread, self._unread = self._unread, []
        if unread:
            self.position = Position(self.position.number + 1, _new_id())
        return unread

    def take_dropped(self) -> Dropped:
        """The elements dropped since the last call."""
        dropped, self.dropped = self.dropped, {}
        return dropped

    def history(self, as_of: int | None = None) -> History:
        """What is true now, or was believed at some time."""
        current = self._history.build()
        return current if as_of is None else self._beliefs.history(as_of, current)

    def snapshot(self) -> dict[str, pa.Table]:
        """How far it was read, and the history, if it is kept, as tables."""
        # What was not read is lost: it counts as a reading that nobody has.
        position = self.position._replace(number=self.position.number + bool(self._unread))
        history = {"history": self.history().to_arrow()} if self._history.is_kept() else {}
        return {"position": pa.Table.from_pylist([position._asdict()]), **history, **self._beliefs.snapshot()}

    def restore(self, chunks: Chunks, now: int = 0) -> None:
        """Become the answer whose snapshot this is, with everything read."""
        self._unread, self.dropped = [], {}
        # What `snapshot_state` gives does not say: then it is a new series, whose beginning nobody has.
        saved = chunks["position"].to_pylist() if "position" in chunks else []
        self.position = Position(**saved[0]) if saved else Position(1, _new_id())
        self._history.restore(chunks.get("history"))
        self._beliefs.restore(take_prefix("beliefs", chunks), now)


def _new_id() -> str:
    return urandom(16).hex()


class RunningHistory:
    """The history of an answer that goes on."""

    def __init__(self, name: str, schema: pa.Schema, limit: int | None) -> None:
        self._name, self._schema, self._limit = name, schema, limit
        self._not_kept: str | None = "rc.session(..., history_limit=0) says so" if limit == 0 else None
        self._start()

    def _start(self) -> None:
        self._gather_at = _GATHER_AT if self._limit is None else min(_GATHER_AT, self._limit)
        self._builder = HistoryBuilder(self._schema, _COMPACT_AT)
        self._recent: list[EventBatch] = []
        self._rows = 0

    def add(self, batch: EventBatch) -> None:
        """More elements of the stream."""
        if self._not_kept is not None:
            return
        self._recent.append(batch)
        self._rows += len(batch)
        if len(self._recent) >= _MOST_BATCHES or self._rows >= self._gather_at:
            self._gather()

    def _gather(self) -> None:
        """Put the recent batches to the others; an error is kept for whoever asks for the history."""
        recent, self._recent, self._rows = self._recent, [], 0
        try:
            for batch in [concat(recent)] if len(recent) >= _MOST_BATCHES else recent:
                self._builder.add(batch)
        except StreamError as why:
            self._give_up(f"the output is not a valid stream ({why.reason})")
            return
        if self._limit is not None and len(self._builder) > self._limit:
            self._give_up(
                f"it has more than {self._limit:,} events: rc.session(..., history_limit=N) keeps more, "
                "None all of them"
            )

    def _give_up(self, reason: str) -> None:
        self._not_kept = reason
        self._start()
        log.warning("the history of %s is no longer kept for session.history(): %s", self._name, reason)

    def is_kept(self) -> bool:
        """Is it kept, with what came last?"""
        if self._not_kept is None:
            self._gather()
        return self._not_kept is None

    def build(self) -> History:
        """What is true now."""
        if self.is_kept():
            return self._builder.build()
        raise RecensionError(
            f"the history of {self._name!r} is not kept: {self._not_kept}; or add up what session.read() "
            "gives"
        )

    def restore(self, table: pa.Table | None) -> None:
        """Go on from the history in a snapshot, if it has one."""
        self._start()
        if self._limit == 0:
            return
        self._not_kept = "the snapshot that was restored has none" if table is None else None
        if table is not None:
            history = History.from_arrow(table)
            batches = history.payload.combine_chunks().to_batches()
            payload = batches[0] if batches else null_payload(0, history.payload.schema)
            self._builder.add(inserts(history.vs, history.ve, payload))
