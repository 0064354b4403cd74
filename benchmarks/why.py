"""Why one answer of a day is what it is, with the inputs checked as a run checks them.

Leases of 5,000 sites over 24 hours, by name, each alive for some minutes; one in ten is corrected, and a CTI
comes every 1,000 elements. The answer is one of an hour of one site. To read and check the inputs is part of
the time; ``checks alone`` is that part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Measurement, Suite
from recension.core.batch import CTI, RETRACT, EventBatch, concat, inserts, null_payload, take_rows
from recension.core.ticks import FOREVER

SITES, DAY, MINUTE = 5_000, 86_400_000_000, 60_000_000
SCHEMA = pa.schema([("user", pa.int64()), ("site", pa.string()), ("bytes", pa.float64())])
SITE, AT = "site 0007", DAY // 2


def _feed(size: int, _: Path) -> EventBatch:
    """A day of leases in order; a correction ends a lease a minute later, and follows soon."""
    rng = np.random.default_rng(11)
    events = max(size * 10 // 11, 1)
    vs = np.sort(rng.integers(0, DAY, events))
    ve = vs + rng.integers(MINUTE, 20 * MINUTE, events)
    names = pa.array([f"site {i:04}" for i in range(SITES)])
    columns = [pa.array(np.arange(events)), names.take(pa.array(rng.integers(0, SITES, events)))]
    payload = pa.RecordBatch.from_arrays([*columns, pa.array(rng.random(events))], schema=SCHEMA)
    leases, parts = inserts(vs, ve, payload), list[EventBatch]()
    for first in range(0, events, 1_000):
        stop = min(first + 1_000, events)
        revised = np.arange(first, stop, 10)
        parts += [leases.slice(first, stop), _corrections(leases, revised), _cti(int(vs[first]))]
    return concat(parts)


def _corrections(leases: EventBatch, rows: np.ndarray[Any, Any]) -> EventBatch:
    kind, none = np.full(len(rows), RETRACT, np.uint8), np.zeros(len(rows), np.int64)
    ve = leases.ve[rows]
    return EventBatch(kind, leases.vs[rows], ve, ve + MINUTE, none, take_rows(leases.payload, rows))


def _cti(t: int) -> EventBatch:
    end, none = np.array([FOREVER]), np.zeros(1, np.int64)
    return EventBatch(np.array([CTI], np.uint8), np.array([t]), end, end, none, null_payload(1, SCHEMA))


def _query() -> Any:
    import recension as rc

    leases = rc.source("leases", SCHEMA)
    counts = (
        leases.group_by("site").hopping(60 * MINUTE, 10 * MINUTE).agg(n=rc.count(), total=rc.sum("bytes"))
    )
    return counts.where(rc.start() <= AT - 50 * MINUTE)


def _why(feed: EventBatch, biography: bool = True) -> int:
    """How many events the answer rests on; at small sizes there may be none."""
    import recension as rc

    try:
        found = rc.why(_query(), {"leases": feed}, {"site": SITE}, at=AT, biography=biography)
    except rc.RecensionError:
        return 0
    return len(found.events())


def _check(feed: EventBatch) -> int:
    from recension.lineage.inputs import read_inputs

    return len(read_inputs(_query().plan, {"leases": feed})["leases"])


def _run(feed: EventBatch) -> int:
    import recension as rc

    return len(rc.run(_query(), {"leases": feed}).history())


SIZES = (1_000_000, 10_000_000)
SUITE = Suite(
    "why",
    "why one answer of a day is what it is: a count by hour of one site among 5,000",
    (
        Measurement("why, with its biography", _feed, _why, SIZES, repeats=3),
        Measurement("checks alone", _feed, _check, SIZES, repeats=3),
        Measurement("the whole query, for comparison", _feed, _run, SIZES[:1], repeats=1),
    ),
)
