"""Where the story is played: replicas that read feeds, and a merge that reads the replicas."""

from __future__ import annotations

from typing import Protocol

from recension.api.stream import Stream
from recension.core.batch import EventBatch
from recension.core.history import History
from recension.demo.trace import Trace


class Stage(Protocol):
    """What the script asks for."""

    engine: str
    trace: Trace

    def tell(self, feed: str, part: EventBatch) -> None:
        """A feed says something more."""

    def start(self, name: str, plan: Stream, feed: str, from_time: int) -> None:
        """A replica begins to read a feed, from its first word, and the merge to read the replica."""

    def kill(self, name: str) -> None:
        """A replica is dead at once, whatever it was doing."""

    def leave(self, name: str) -> None:
        """The merge lets a replica go."""

    def state_of(self, name: str) -> str:
        """Does the merge take a replica as joining, joined, leaving or left?"""

    def settle(self) -> None:
        """Wait until all who live have answered what they were told, and the merge has read it."""

    def history(self) -> History:
        """The answers that the merge has left."""

    def batch_answer(self, question: Stream, leases: History) -> History:
        """The same question, asked once everything is known."""
