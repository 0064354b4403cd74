"""Who said what, and when: all that the story and its figures are made of."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch
from recension.core.ticks import BEGINNING

MERGED: Final = "merged"


@dataclass(frozen=True)
class Said:
    """What one stream said in one go."""

    stream: str
    at: float
    """Seconds since the first feed was heard."""
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
    def promise(self) -> int:
        """Up to when answers are final, by this alone."""
        return int(self.batch.vs[self.batch.kind == CTI].max(initial=BEGINNING))


@dataclass(frozen=True)
class Mark:
    """Something that happened to a stream."""

    stream: str
    at: float
    words: str
    is_end: bool = False
    """Is the stream gone from then on?"""


@dataclass
class Trace:
    """A run as it was seen from outside."""

    began: float = 0.0
    said: list[Said] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)
    """How many elements each feed has told."""
    hours: list[float] = field(default_factory=list)
    """When each hour of the day came."""

    def begin(self) -> None:
        """The first feed is about to be heard."""
        self.began = time.time()

    def now(self) -> float:
        """Seconds since it began."""
        return time.time() - self.began

    def hear(self, stream: str, batch: EventBatch, at: float | None = None) -> None:
        """Something was said, just now or at a time that is known."""
        self.said.append(Said(stream, self.now() if at is None else at - self.began, batch))

    def mark(self, stream: str, words: str, *, is_end: bool = False) -> None:
        """Something happens now."""
        self.marks.append(Mark(stream, self.now(), words, is_end))

    @property
    def streams(self) -> list[str]:
        """The inputs of the merge, as they came."""
        return list(dict.fromkeys(mark.stream for mark in self.marks))

    def of(self, stream: str) -> list[Said]:
        """What one stream said, in its order."""
        return [said for said in self.said if said.stream == stream]

    def life(self, stream: str) -> tuple[float, float]:
        """From when to when a stream was there; the merged one always."""
        marks = [mark for mark in self.marks if mark.stream == stream]
        begins = marks[0].at if marks else 0.0
        return begins, next((mark.at for mark in marks if mark.is_end), self.end())

    def end(self) -> float:
        """When the last word was spoken."""
        return max((said.at for said in self.said), default=0.0)


def final_up_to(said: Iterable[Said]) -> int:
    """Up to when the answers of a stream are final."""
    return max((one.promise for one in said), default=BEGINNING)
