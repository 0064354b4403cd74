"""The story in this process: a session for every replica, and one that merges."""

from __future__ import annotations

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.demo.plans import LEASES, POLICY, known
from recension.demo.trace import MERGED, Trace
from recension.runners.local import Session


class LocalStage:
    """Everyone answers as soon as something is told."""

    engine = "local"

    def __init__(self) -> None:
        self.trace = Trace()
        self._told: dict[str, list[EventBatch]] = {}
        self._replicas: dict[str, tuple[str, Session]] = {}
        self._merge: Session | None = None

    def tell(self, feed: str, part: EventBatch) -> None:
        """To everyone who reads the feed, and to those who will."""
        self._told.setdefault(feed, []).append(part)
        for name, (reads, session) in self._replicas.items():
            if reads == feed:
                self._answer(name, session, part)

    def start(self, name: str, plan: rc.Stream, feed: str, from_time: int) -> None:
        """A session over the feed's source, and one more input of the merge."""
        source = rc.source(name, plan.schema, properties=known())
        if self._merge is None:
            self._merge = rc.session(rc.merge(source, policy=POLICY))
        else:
            self._merge.attach(source, from_time)
        session = rc.session(plan)
        self._replicas[name] = feed, session
        self._answer(name, session, concat(self._told[feed]))

    def kill(self, name: str) -> None:
        """Its session is gone, with all it knew."""
        del self._replicas[name]

    def leave(self, name: str) -> None:
        """What it has settled stays."""
        self._merging.detach(name)

    def state_of(self, name: str) -> str:
        """As the merge says."""
        return self._merging.state_of(name)

    def settle(self) -> None:
        """There is nothing to wait for."""

    def history(self) -> History:
        """The history of the merged stream."""
        merged = self.trace.of(MERGED)
        return reconstitute((said.batch for said in merged), merged[0].batch.schema)

    def batch_answer(self, question: rc.Stream, leases: History) -> History:
        """One run over the table of leases."""
        return rc.run(question, {LEASES: leases.to_arrow()}).history()

    @property
    def _merging(self) -> Session:
        assert self._merge is not None, "nobody has started"
        return self._merge

    def _answer(self, name: str, session: Session, part: EventBatch) -> None:
        session.push(LEASES, part)
        answers = session.read().batch()
        self.trace.hear(name, answers)
        self._merging.push(name, answers)
        self.trace.hear(MERGED, self._merging.read().batch())
