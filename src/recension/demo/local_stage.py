"""The story in this process: a session for every replica, and one that merges."""

from __future__ import annotations

import recension as rc
from recension.core.batch import EventBatch, concat
from recension.core.history import History
from recension.core.reconstitution import reconstitute
from recension.demo.plans import LEASES, POLICY, common_properties
from recension.demo.trace import MERGED, Trace
from recension.runners.local import Session


class LocalStage:
    """Every replica answers as soon as it is fed."""

    engine = "local"

    def __init__(self) -> None:
        self.trace = Trace()
        self._fed: dict[str, list[EventBatch]] = {}
        self._replicas: dict[str, tuple[str, Session]] = {}
        self._merge: Session | None = None

    def push(self, feed: str, part: EventBatch) -> None:
        """To everyone who reads the feed, and to those who will."""
        self._fed.setdefault(feed, []).append(part)
        for name, (reads, session) in self._replicas.items():
            if reads == feed:
                self._answer(name, session, part)

    def start(self, name: str, plan: rc.Stream, feed: str, from_time: int) -> None:
        """A session over the feed's source, and one more input of the merge."""
        source = rc.source(name, plan.schema, properties=common_properties())
        if self._merge is None:
            self._merge = rc.session(rc.merge(source, policy=POLICY))
        else:
            self._merge.attach(source, from_time)
        session = rc.session(plan)
        self._replicas[name] = feed, session
        self._answer(name, session, concat(self._fed[feed]))

    def kill(self, name: str) -> None:
        """Its session is gone, with all it knew."""
        del self._replicas[name]

    def detach(self, name: str) -> None:
        """What is final by it stays."""
        self._merging.detach(name)

    def input_state(self, name: str) -> str:
        """As the merge says."""
        return self._merging.state_of(name)

    def wait(self) -> None:
        """There is nothing to wait for."""

    def history(self) -> History:
        """The history of the merged stream."""
        merged = self.trace.outputs_of(MERGED)
        return reconstitute((output.batch for output in merged), merged[0].batch.schema)

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
        self.trace.add_output(name, answers)
        self._merging.push(name, answers)
        self.trace.add_output(MERGED, self._merging.read().batch())
