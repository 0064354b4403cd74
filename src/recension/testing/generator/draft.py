"""Elements whose payload is still only a number: what the generator works on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from recension.core.batch import CTI, INSERT, RETRACT, EventBatch, Index, Kinds
from recension.core.ticks import FOREVER, Ticks
from recension.testing.generator.payloads import Payloads

_ROWS = 1 << 15
_TEXT_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Elements in arrival order, payloads by number (see `Payloads`)."""

    kind: Kinds
    vs: Ticks
    ve: Ticks
    new_ve: Ticks
    number: Index

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: Index | slice) -> Draft:
        """The given rows, in the given order."""
        return Draft(*(getattr(self, f.name)[rows] for f in fields(self)))

    def sync(self) -> Ticks:
        """The earliest time each element changes."""
        return np.where(self.kind == RETRACT, np.minimum(self.ve, self.new_ve), self.vs)

    def batches(self, payloads: Payloads, rows: int) -> Iterator[EventBatch]:
        """The elements with their payloads, at most ``rows`` at a time."""
        for at in range(0, len(self), rows):
            part = self.take(slice(at, at + rows))
            payload = payloads.of(part.number, part.kind == CTI)
            yield EventBatch(part.kind, part.vs, part.ve, part.new_ve, np.zeros(len(part), np.int64), payload)


def insert_drafts(vs: Ticks, ve: Ticks, number: Index) -> Draft:
    """Inserts."""
    return Draft(np.full(len(vs), INSERT, np.uint8), vs, ve, np.full(len(vs), FOREVER), number)


def retract_drafts(vs: Ticks, ve: Ticks, new_ve: Ticks, number: Index) -> Draft:
    """Retractions."""
    return Draft(np.full(len(vs), RETRACT, np.uint8), vs, ve, new_ve, number)


def cti_drafts(times: Ticks) -> Draft:
    """CTIs."""
    forever = np.full(len(times), FOREVER)
    return Draft(np.full(len(times), CTI, np.uint8), times, forever, forever, np.zeros(len(times), np.int64))


def concat_drafts(parts: Sequence[Draft]) -> Draft:
    """One draft from several."""
    return Draft(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Draft)))


def empty_draft() -> Draft:
    """No elements."""
    return cti_drafts(np.zeros(0, np.int64))


def rows_at_once(string_size: int) -> int:
    """How many rows the generator makes in one go: enough to be fast, few enough to bound memory."""
    return max(64, min(_ROWS, _TEXT_BYTES // max(1, string_size)))
