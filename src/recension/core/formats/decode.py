"""Rows of a file into stream elements, and the rows no element can be made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import CTI, EXTERNAL_CTI, RETRACT, EventBatch, Mask, take_rows
from recension.core.errors import FormatError
from recension.core.formats.columns import Layout
from recension.core.formats.rows import UNKNOWN, RowColumns
from recension.core.openclose import CLOSE, OPEN
from recension.core.ticks import FOREVER
from recension.core.validity import Policy

UNKNOWN_KIND: Final = "unknown kind"
NO_START: Final = "no start"
OPEN_WITH_END: Final = "an open row with an end"
NO_COUNT: Final = "an external_cti without a count"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Elements, which of the rows they were made of, and the rows left out, by reason."""

    batch: EventBatch
    kept: Mask
    dropped: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)


class Decoder:
    """Decodes the rows of files that agree on a payload.

    Rows that make no element are an error, or with another policy than ``raise`` are left out, counted
    by reason and kept in ``dropped``: there is nothing in them that could be adjusted.
    """

    def __init__(self, payload: pa.Schema, policy: Policy) -> None:
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, pa.RecordBatch]] = []
        self._payload, self._policy = payload, policy

    def decode(self, rows: pa.RecordBatch, layout: Layout, file: str, first_row: int) -> Decoded:
        """The elements of a run of rows whose first is number ``first_row`` of ``file``."""
        decoded = self.judge(rows, layout, file, first_row)
        self.note(decoded)
        return decoded

    def note(self, decoded: Decoded) -> None:
        """Count and keep what was left out."""
        for reason, rows in decoded.dropped:
            self.counts[reason] += len(rows)
            self.dropped.append((reason, rows))

    def judge(self, rows: pa.RecordBatch, layout: Layout, file: str, first_row: int) -> Decoded:
        """What `decode` gives, without counting anything yet."""
        read = RowColumns(rows, layout, file, first_row)
        kind, vs, ve = read.kinds(), read.starts(), read.ends()
        count, has_count = read.counts()
        faults: list[tuple[str, Mask]] = []
        if bool((kind > CTI).any()):
            faults.append((UNKNOWN_KIND, kind == UNKNOWN))
            faults.append((OPEN_WITH_END, (kind == OPEN) & (ve != FOREVER)))
            faults.append((NO_COUNT, (kind == EXTERNAL_CTI) & ~has_count))
        if (unstarted := read.unstarted()) is not None:
            faults.append((NO_START, unstarted & (kind != CTI) & (kind != CLOSE)))
        kept, dropped = self._settle(faults, read)
        batch = EventBatch(kind, vs, ve, read.new_ends(), count, read.payload(self._payload))
        return Decoded(_normal(batch).filter(kept), kept, dropped)

    def _settle(
        self, faults: list[tuple[str, Mask]], read: RowColumns
    ) -> tuple[Mask, list[tuple[str, pa.RecordBatch]]]:
        kept, dropped = np.ones(len(read), np.bool_), list[tuple[str, pa.RecordBatch]]()
        found = [(reason, bad) for reason, bad in faults if bool(bad.any())]
        if found and self._policy == "raise":
            reason, bad = min(found, key=lambda fault: int(np.argmax(fault[1])))
            at = int(np.argmax(bad))
            raise FormatError(_described(reason, at, read), file=read.file, row=read.first_row + at)
        for reason, bad in found:
            dropped.append((reason, read.rows.filter(pa.array(bad & kept))))
            kept &= ~bad
        return kept, dropped


def _described(reason: str, at: int, read: RowColumns) -> str:
    if reason == UNKNOWN_KIND:
        kind = read.kind_text(at)
        return "_kind is null" if kind is None else f"{reason} {kind!r}"
    return f"{read.layout.times.vs} is null" if reason == NO_START else reason


def _normal(batch: EventBatch) -> EventBatch:
    """What an element's kind does not use takes its fixed value, whatever the file says there."""
    is_cti, is_external = batch.kind == CTI, batch.kind == EXTERNAL_CTI
    return EventBatch(
        batch.kind,
        batch.vs,
        np.where(is_cti, FOREVER, batch.ve),
        np.where(batch.kind == RETRACT, batch.new_ve, FOREVER),
        np.where(is_external, batch.count, 0),
        _without(batch.payload, is_cti | is_external),
    )


def _without(payload: pa.RecordBatch, rows: Mask) -> pa.RecordBatch:
    """The payload with nulls in the given rows; the payload itself if they are null already."""
    at = np.flatnonzero(rows)
    if not len(at) or all(c.null_count == len(at) for c in take_rows(payload, at).columns):
        return payload
    mask = pa.array(rows)
    columns = [pc.if_else(mask, pa.scalar(None, c.type), c) for c in payload.columns]
    return pa.RecordBatch.from_arrays(columns, schema=payload.schema)
