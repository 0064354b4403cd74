"""Finalize on an R3 stream: 20 % disorder, 20 % of the events revised; and with 1 % of the chains broken.

The broken stream has no CTIs but 200 external ones, each just after the last element it counts. How much may
wait is shown apart: every retraction before its event, every external CTI before the one element it counts,
and early retractions of wide rows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from benchmarks.streams import disordered_and_revised
from recension.core.batch import EXTERNAL_CTI, INSERT, RETRACT, EventBatch, Index, concat, null_payload
from recension.core.ticks import FOREVER

_MILLION = 1_000_000
BATCH, SMALL, BROKEN, INTERVALS = 50_000, 1_000, 0.01, 200


def _valid(size: int, _: Path) -> list[EventBatch]:
    return list(disordered_and_revised(size))


def _broken(size: int, _: Path) -> list[EventBatch]:
    """The changes of the stream, some retractions a few hundred rows too early, with external CTIs."""
    whole = concat(list(disordered_and_revised(size)))
    changes = whole.filter(whole.is_data())
    rng = np.random.default_rng(5)
    early = (changes.kind == RETRACT) & (rng.random(len(changes)) < BROKEN / 0.2)
    at = np.arange(len(changes)) - np.where(early, rng.integers(1, 2_000, len(changes)), 0)
    external, row = _external(changes, at)
    order = np.argsort(np.concatenate([at, row]), kind="stable")
    feed = concat([changes, external]).take(order)
    return [feed.slice(start, min(start + BATCH, len(feed))) for start in range(0, len(feed), BATCH)]


def _external(changes: EventBatch, at: Index) -> tuple[EventBatch, Index]:
    """External CTIs over the whole time, each just after the last element it counts."""
    sync = changes.sync()
    finite = sync[sync < FOREVER]
    cuts = np.unique(np.linspace(0, int(finite.max()) + 1, INTERVALS + 1).astype(np.int64))
    interval = np.searchsorted(cuts, sync, "right") - 1
    last = np.zeros(len(cuts) - 1, np.int64)
    np.maximum.at(last, interval, at)
    counts = np.bincount(interval, minlength=len(last))
    size = len(last)
    kind, forever = np.full(size, EXTERNAL_CTI, np.uint8), np.full(size, FOREVER)
    payload = null_payload(size, changes.schema)
    return EventBatch(kind, cuts[:-1], cuts[1:], forever, counts, payload), last


def _all_broken(size: int, _: Path) -> list[EventBatch]:
    """All retractions first, then the events they shorten."""
    at = np.arange(size // 2)
    retractions = _one_kind(RETRACT, at, at + 20, np.zeros(len(at), np.int64), new_ve=at + 10)
    return _cut(retractions) + _cut(_one_kind(INSERT, at, at + 20, np.zeros(len(at), np.int64)))


def _wide_broken(size: int, _: Path) -> list[EventBatch]:
    """A tenth of the elements are retractions a few thousand rows ahead of their event, of twelve columns."""
    events = size * 9 // 10
    vs = np.arange(events)
    early = np.flatnonzero(np.random.default_rng(7).random(events) < 1 / 9)
    inserts = _one_kind(INSERT, vs, vs + 100, np.zeros(events, np.int64))
    first = _one_kind(RETRACT, early, early + 100, np.zeros(len(early), np.int64), new_ve=early + 60)
    order = np.argsort(np.concatenate([vs, early - 3_000]), kind="stable")
    feed = concat([inserts, first]).take(order)
    wide = pa.schema([(f"c{i}", pa.string() if i % 2 else pa.int64()) for i in range(12)])
    x = feed.payload.column(0)
    columns = [x.cast(field.type) for field in wide]
    payload = pa.RecordBatch.from_arrays(columns, schema=wide)
    feed = EventBatch(feed.kind, feed.vs, feed.ve, feed.new_ve, feed.count, payload)
    return [feed.slice(at, min(at + BATCH, len(feed))) for at in range(0, len(feed), BATCH)]


def _all_announced(size: int, _: Path) -> list[EventBatch]:
    """All external CTIs first, then the elements, one for each."""
    at = np.arange(size // 2)
    announced = _one_kind(EXTERNAL_CTI, at, at + 1, np.ones(len(at), np.int64))
    return _cut(announced) + _cut(_one_kind(INSERT, at, at + 20, np.zeros(len(at), np.int64)))


def _one_kind(kind: int, vs: Index, ve: Index, count: Index, new_ve: Index | None = None) -> EventBatch:
    kinds, forever = np.full(len(vs), kind, np.uint8), np.full(len(vs), FOREVER)
    schema = pa.schema([("x", pa.int64())])
    payload = pa.RecordBatch.from_arrays([pa.array(vs)], schema=schema)
    payload = null_payload(len(vs), schema) if kind == EXTERNAL_CTI else payload
    return EventBatch(kinds, vs, ve, forever if new_ve is None else new_ve, count, payload)


def _cut(batch: EventBatch) -> list[EventBatch]:
    return [batch.slice(at, min(at + SMALL, len(batch))) for at in range(0, len(batch), SMALL)]


def _finalize(batches: list[EventBatch]) -> int:
    import recension as rc

    live = rc.session(rc.source("feed", batches[0].schema).finalize())
    events = 0
    for batch in batches:
        live.push("feed", batch)
        for out in live.read().batches:
            gone = (out.kind == RETRACT) & (out.new_ve == out.vs)
            events += int((out.kind == INSERT).sum()) - int(gone.sum())
    return events


def _by_element(batches: list[EventBatch]) -> int:
    """Chains in dictionaries, for streams that are in order already."""
    live: Counter[tuple[int, int, tuple[object, ...]]] = Counter()
    for batch in batches:
        payloads = zip(*(column.to_pylist() for column in batch.payload.columns), strict=True)
        columns = (batch.kind.tolist(), batch.vs.tolist(), batch.ve.tolist(), batch.new_ve.tolist())
        for kind, vs, ve, new_ve, payload in zip(*columns, payloads, strict=True):
            if kind == INSERT:
                live[vs, ve, payload] += 1
            elif kind == RETRACT:
                live[vs, ve, payload] -= 1
                if new_ve > vs:
                    live[vs, new_ve, payload] += 1
    return live.total()


SUITE = Suite(
    "finalize",
    "Finalize with an endless memory on an R3 stream, 20 % disorder, 20 % revised",
    (
        Measurement(
            "a valid stream",
            _valid,
            _finalize,
            sizes=(500_000, _MILLION, 2 * _MILLION),
            against=("plain Python, an element at a time",),
            target=_MILLION,
            repeats=3,
        ),
        Measurement(
            "1 % of the elements too early, external CTIs",
            _broken,
            _finalize,
            sizes=(500_000, _MILLION),
            against=("plain Python, an element at a time",),
            repeats=3,
        ),
        Measurement(
            "half of the elements wait, broken",
            _all_broken,
            _finalize,
            sizes=(50_000, 100_000, 200_000),
            repeats=1,
        ),
        Measurement(
            "a tenth of the elements too early, twelve columns",
            _wide_broken,
            _finalize,
            sizes=(100_000, 300_000),
            repeats=1,
        ),
        Measurement(
            "as many external CTIs wait as elements",
            _all_announced,
            _finalize,
            sizes=(50_000, 100_000, 200_000),
            repeats=1,
        ),
        Measurement("plain Python, an element at a time", _valid, _by_element, sizes=(500_000,), repeats=1),
    ),
)
