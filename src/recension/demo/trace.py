"""What every stream put out, and when: all numbers and figures are made of this."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch
from recension.core.ticks import BEGINNING

MERGED: Final = "merged"


@dataclass(frozen=True)
class StreamOutput:
    """What one stream put out in one go."""

    stream: str
    at: float
    """Seconds since the run began."""
    batch: EventBatch

    @property
    def inserts(self) -> int:
        """New answers."""
        return int((self.batch.kind == INSERT).sum())

    @property
    def revisions(self) -> int:
        """Answers taken back or corrected."""
        return int((self.batch.kind == RETRACT).sum())

    @property
    def cti(self) -> int:
        """Its last CTI: up to when answers are final."""
        return int(self.batch.vs[self.batch.kind == CTI].max(initial=BEGINNING))


@dataclass(frozen=True)
class Milestone:
    """Something that happened to a stream."""

    stream: str
    at: float
    text: str
    is_end: bool = False
    """Is the stream gone from then on?"""


@dataclass
class Trace:
    """A run as it was seen from outside."""

    began: float = 0.0
    outputs: list[StreamOutput] = field(default_factory=list)
    milestones: list[Milestone] = field(default_factory=list)
    elements_fed: dict[str, int] = field(default_factory=dict)
    """How many elements each feed has sent."""
    hours: list[float] = field(default_factory=list)
    """When each hour of the day came."""

    def begin(self) -> None:
        """The first feed is about to send."""
        self.began = time.time()

    def now(self) -> float:
        """Seconds since it began."""
        return time.time() - self.began

    def add_output(self, stream: str, batch: EventBatch, at: float | None = None) -> None:
        """A stream has put out something, now or at a time that is known."""
        self.outputs.append(StreamOutput(stream, self.now() if at is None else at - self.began, batch))

    def add_milestone(self, stream: str, text: str, *, is_end: bool = False) -> None:
        """Something happens now."""
        self.milestones.append(Milestone(stream, self.now(), text, is_end))

    @property
    def streams(self) -> list[str]:
        """The inputs of the merge, as they came."""
        return list(dict.fromkeys(mark.stream for mark in self.milestones))

    def outputs_of(self, stream: str) -> list[StreamOutput]:
        """What one stream put out, in its order."""
        return [output for output in self.outputs if output.stream == stream]

    def lifetime_of(self, stream: str) -> tuple[float, float]:
        """From when to when a stream was there; the merged one always."""
        marks = [mark for mark in self.milestones if mark.stream == stream]
        begins = marks[0].at if marks else 0.0
        return begins, next((mark.at for mark in marks if mark.is_end), self.end())

    def end(self) -> float:
        """When the last output came."""
        return max((output.at for output in self.outputs), default=0.0)


def last_cti(outputs: Iterable[StreamOutput]) -> int:
    """Up to when the answers of a stream are final."""
    return max((output.cti for output in outputs), default=BEGINNING)
