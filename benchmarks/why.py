"""Why one answer of a day is what it is, off a file of the day.

Leases of up to 5,000 sites over 24 hours, by name, each alive for some minutes; one in ten is corrected, and
a CTI comes every 1,000 elements. The answer is one of an hour of one site. Of the file only what the answer
reaches is read and checked; of elements in memory, as `rc.why` is given them, all are checked.
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
SITE, AT = "site 0000", DAY // 2


def _feed(size: int, _: Path) -> EventBatch:
    """A day of leases in order; a correction ends a lease a minute later, and follows soon."""
    rng = np.random.default_rng(11)
    events = max(size * 10 // 11, 1)
    vs = np.sort(rng.integers(0, DAY, events))
    ve = vs + rng.integers(MINUTE, 20 * MINUTE, events)
    sites = max(min(SITES, size // 200), 1)
    names = pa.array([f"site {i:04}" for i in range(sites)])
    columns = [pa.array(np.arange(events)), names.take(pa.array(rng.integers(0, sites, events)))]
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


def _file(size: int, directory: Path) -> Path:
    return directory / f"leases-{size}.parquet"


def _write(size: int, directory: Path) -> None:
    from recension.core.formats import write_stream

    feed, rows = _feed(size, directory), 1 << 16
    batches = (feed.slice(at, min(at + rows, len(feed))) for at in range(0, len(feed), rows))
    write_stream(_file(size, directory), batches, SCHEMA)


def _open(path: Path) -> Any:
    from recension.gate.files import open_stream

    return open_stream(path, schema=SCHEMA)


def _why_off_file(path: Path) -> int:
    """How many events the answer rests on, as ``recension why`` finds them."""
    from recension.lineage import explain_answer

    return len(explain_answer(_query().plan, {"leases": _open(path)}, {"site": SITE}, AT).events())


def _read(path: Path) -> int:
    return sum(map(len, _open(path)))


def _why(feed: EventBatch) -> int:
    import recension as rc

    return len(rc.why(_query(), {"leases": feed}, {"site": SITE}, at=AT).events())


def _run(feed: EventBatch) -> int:
    import recension as rc

    return len(rc.run(_query(), {"leases": feed}).history())


SIZES = (1_000_000, 10_000_000)
SUITE = Suite(
    "why",
    "why one answer of a day is what it is: a count by hour of one site among up to 5,000",
    (
        Measurement("why, off a Parquet file", _file, _why_off_file, SIZES, setup=_write, repeats=3),
        Measurement("why, elements in memory", _feed, _why, SIZES[:1], repeats=3),
        Measurement("the file read and checked, for comparison", _file, _read, SIZES, repeats=1),
        Measurement("the whole query, for comparison", _feed, _run, SIZES[:1], repeats=1),
    ),
)
