"""Keyed sources: what is refused and why, what is counted, and what is kept."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import RecensionError, SchemaError, StreamError
from recension.operators.keyed import CONFLICT, FORGOTTEN, NO_KEY, NO_VERSION

JOB = {"job": "int64", "site": "string"}


def jobs(**options: Any) -> rc.Stream:
    return rc.source("jobs", JOB, key="job", **({"version": "seq"} | options))


def orders(**options: Any) -> rc.Stream:
    return rc.changes("orders", {"id": "int64", "state": "string"}, "id", **({"version": "lsn"} | options))


def row(job: int | None, site: str, seq: int | None, start: int, end: int = rc.FOREVER) -> rc.Insert:
    return rc.Insert({"job": job, "site": site, "seq": seq}, start, end)


def change(number: int, state: str, lsn: int, start: int) -> rc.Insert:
    return rc.Insert({"id": number, "state": state, "lsn": lsn}, start)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row(7, "CERN", 1, 0), row(7, "FNAL", 1, 0)], f"{CONFLICT}: job 7, seq 1, from 0"),
        ([row(7, "CERN", 1, 0), row(7, "CERN", 1, 0, 9)], f"{CONFLICT}: job 7, seq 1, from 0"),
        ([row(7, "CERN", None, 0)], f"{NO_VERSION}: job 7, seq None, from 0"),
        ([row(None, "CERN", 1, 0)], f"{NO_KEY}: job None, seq 1, from 0"),
        (
            [row(7, "CERN", 1, 0), rc.Cti(10), row(7, "FNAL", 2, 0)],
            "jobs: breaks an earlier cti: job 7, seq 2, from 0; on_violation='drop' .* 'adjust' lets",
        ),
        ([row(7, "CERN", 1, 0, 5), rc.Cti(10), row(7, "CERN", 2, 0)], "breaks an earlier cti: job 7, seq 2"),
        (
            [rc.Retract({"job": 7, "site": "CERN", "seq": 1}, 0, 5, 3)],
            "the source is keyed: it takes rows and ctis",
        ),
        (
            [row(7, "CERN", 1, 9, 8)],
            "jobs: an event that ends before it has begun: job 7, seq 1, from 9, until 8; on_violation=",
        ),
        ([row(7, "CERN", 1, 0), rc.Cti(10), row(7, "CERN", 2, 0, 0)], "breaks an earlier cti: job 7, seq 2"),
    ],
)
@pytest.mark.parametrize("size", [1, 9])
def test_what_may_not_be_is_refused(rows: list[Any], reason: str, size: int) -> None:
    with pytest.raises(StreamError, match=reason):
        rc.run(jobs(), {"jobs": rows}, batch_size=size)


def test_changes_that_may_not_be_are_refused() -> None:
    with pytest.raises(StreamError, match=f"{CONFLICT}: id 1, lsn 1, from 5"):
        rc.run(orders(), {"orders": [change(1, "new", 1, 5), change(1, "paid", 1, 5)]})
    with pytest.raises(StreamError, match="breaks an earlier cti: id 1, lsn 2, from 7"):
        rc.run(orders(), {"orders": [change(1, "new", 1, 5), rc.Cti(10), change(1, "paid", 2, 7)]})


def test_what_is_dropped_is_counted_and_given_back() -> None:
    session = rc.session(jobs(on_violation="drop", forget=0))
    session.push(
        "jobs", [row(7, "CERN", 1, 0, 4), row(7, "FNAL", 1, 0, 4), row(8, "CERN", None, 0), rc.Cti(6)]
    )
    session.push("jobs", [row(7, "CERN", 2, 8, 9), row(9, "CERN", 1, 2, 9)])
    counts = session.counts()["records by job, version seq, forget after 0"]
    assert counts == {CONFLICT: 1, NO_VERSION: 1, FORGOTTEN: 1, "breaks an earlier cti": 1}
    (dropped,) = session.read().dropped.values()
    assert sorted(reason for reason, _ in dropped) == sorted(counts)


def test_what_is_moved_is_counted() -> None:
    session = rc.session(jobs(on_violation="adjust"))
    session.push("jobs", [row(7, "CERN", 1, 0), rc.Cti(6), row(7, "FNAL", 2, 0), row(7, "FNAL", 3, 0, 9)])
    assert session.counts()["records by job, version seq"] == {"moved to the last cti": 1}
    assert [str(e) for e in session.history().to_events()] == [
        "[0, 6) {'job': 7, 'site': 'CERN'}",
        "[6, 9) {'job': 7, 'site': 'FNAL'}",
    ]


def test_of_changes_the_cti_leaves_the_one_that_holds() -> None:
    session = rc.session(orders())
    session.push("orders", [change(i % 3, "new", i, i) for i in range(300)])
    assert session.metrics()[-1].state_rows == 300
    session.advance("orders", 1_000)
    assert session.metrics()[-1].state_rows == 3


def test_records_are_kept_until_they_are_forgotten() -> None:
    kept, forgetting = rc.session(jobs()), rc.session(jobs(forget=50))
    for session in (kept, forgetting):
        session.push("jobs", [row(i, "CERN", 1, i, i + 1) for i in range(300)])
        session.advance("jobs", 200)
    assert kept.metrics()[-1].state_rows == forgetting.metrics()[-1].state_rows == 300
    # Payloads that can no longer change go at once, records of forgotten keys become a hash.
    tables = {name: part for name, part in forgetting.snapshot().items() if "operators" in name}
    rows = next(table for name, table in tables.items() if name.endswith("keyed/rows"))
    points = next(table for name, table in tables.items() if name.endswith("points"))
    assert rows.num_rows == 101
    assert points.num_rows == 151


def test_of_a_log_deletes_are_kept_with_their_versions() -> None:
    """By version, what came before a delete may begin after the CTI that has passed it."""
    log = orders(order="version", deleted="gone")
    session = rc.session(log)

    def entry(lsn: int, start: int, *, gone: bool = False) -> rc.Insert:
        return rc.Insert({"id": 1, "state": "new", "lsn": lsn, "gone": gone}, start)

    session.push("orders", [entry(3, 1), entry(5, 5, gone=True)])
    session.advance("orders", 10)
    session.push("orders", [entry(5, 5, gone=True)])
    state = session.snapshot()
    with pytest.raises(StreamError, match="orders: breaks an earlier cti: id 1, lsn 4, from 12"):
        session.push("orders", [entry(4, 12)])
    session = rc.session(log)
    session.restore(state)
    session.push("orders", [entry(6, 12)])
    assert [(e.vs, e.ve) for e in session.history().to_events()] == [(1, 5), (12, rc.FOREVER)]


def test_a_deleted_change_that_was_forgotten_is_not_recognised() -> None:
    session = rc.session(orders(deleted="gone"))
    gone = rc.Insert({"id": 1, "state": None, "lsn": 2, "gone": True}, 5)
    session.push("orders", [rc.Insert({"id": 1, "state": "new", "lsn": 1, "gone": False}, 1), gone, gone])
    session.advance("orders", 10)
    with pytest.raises(StreamError, match="breaks an earlier cti: id 1, lsn 2, from 5"):
        session.push("orders", [gone])


@pytest.mark.parametrize("policy", ["raise", "drop", "adjust"])
@pytest.mark.parametrize("end", [3, 5])
def test_the_interval_of_a_row_that_deletes_does_not_matter(policy: Any, end: int) -> None:
    query = rc.source(
        "jobs", JOB, "began", "finished", key="job", version="seq", deleted="gone", on_violation=policy
    )
    table = pa.table(
        {
            "job": [7, 7],
            "site": ["CERN", None],
            "began": [5, 5],
            "finished": pa.array([None, end], pa.int64()),
            "seq": [1, 2],
            "gone": [False, True],
        }
    )
    session = rc.session(query)
    session.push("jobs", table)
    assert session.history().to_events() == []
    assert not any(counts for counts in session.counts().values())


def test_errors_name_the_columns_of_the_user() -> None:
    query = rc.source("jobs", JOB, "began", "finished", key="job", version="seq")
    table = pa.table({"job": [7], "site": ["CERN"], "began": [5], "finished": [3], "seq": [1]})
    with pytest.raises(StreamError, match=r"jobs: an event that ends .*: job 7, seq 1, began 5, until 3"):
        rc.run(query, {"jobs": table})
    frame = pd.DataFrame({"job": [7, 8], "site": "CERN", "began": 1, "finished": [2, None], "seq": 1})
    with pytest.raises(StreamError, match=r"column finished is double; .*: astype\('Int64'\)"):
        rc.run(query, {"jobs": frame})


def test_versions_may_be_dates_and_not_above_what_int64_holds() -> None:
    days = pa.table({"_vs": [0, 0], "job": [7, 7], "site": ["a", "b"], "seq": pa.array([9, 8], pa.date32())})
    (event,) = rc.run(jobs(version={"seq": "date32"}), {"jobs": days}).history().to_events()
    assert event.payload["site"] == "a"
    large = days.set_column(3, "seq", pa.array([1, 2**63], pa.uint64()))
    with pytest.raises(StreamError, match=r"jobs: a version above .*: job 7, seq 9223372036854775808"):
        rc.run(jobs(version={"seq": "uint64"}), {"jobs": large})


def test_versions_may_be_times_and_columns_of_the_payload() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 1, 1],
            "state": ["new", "paid", "sent"],
            "ts": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-02"]),
            "changed": pd.to_datetime(["2026-01-01", "2026-01-04", "2026-01-03"]),
        }
    )
    found = rc.changes(
        "orders",
        {"id": "int64", "state": "string"},
        key="id",
        start="ts",
        version={"changed": "timestamp[ns]"},
    )
    assert [e.payload["state"] for e in rc.run(found, {"orders": frame}).history().to_events()] == [
        "new",
        "paid",
    ]
    shown = rc.changes("orders", {"id": "int64", "changed": "timestamp[us]"}, "id", "ts", "changed")
    assert rc.run(shown, {"orders": frame}).history().to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: rc.source("s", JOB, version="seq"), r"version= needs a key="),
        (lambda: rc.source("s", JOB, key="jbo"), "jbo"),
        (lambda: rc.source("s", JOB, key=[]), "key= names at least one column"),
        (lambda: rc.source("s", JOB, key="job", external_ctis=True), "it takes rows"),
        (lambda: rc.source("s", JOB, key="job", forget=-1), "a duration from 0"),
        (
            lambda: rc.changes("s", JOB, "job", version={"seq": "string"}),
            "version='seq' is a column of type string",
        ),
        (lambda: rc.changes("s", JOB, "job", deleted="site"), "deleted='site' is a column of type string"),
        (lambda: rc.changes("s", JOB, "job", order="version"), "order='version' needs a version="),
        (lambda: rc.changes("s", JOB, "job", order="lsn"), "order is 'start' or 'version'"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(make: Any, reason: str) -> None:
    with pytest.raises((RecensionError, SchemaError), match=reason):
        make()


def test_a_level_of_consistency_stands_above_the_keys() -> None:
    plan = orders().group_by("state").agg(n=rc.count()).consistency(rc.STRONG)
    table = pa.table({"_vs": [5, 1], "_ve": [None, None], "id": [1, 1], "state": ["b", "a"], "lsn": [2, 1]})
    typed = table.set_column(1, "_ve", pa.nulls(2, pa.int64()))
    assert [str(e) for e in rc.run(plan, {"orders": typed}).history().to_events()] == [
        "[1, 5) {'state': 'a', 'n': 1}",
        "[5, ∞) {'state': 'b', 'n': 1}",
    ]


def test_a_row_at_the_cti_is_in_time_beside_one_that_is_late() -> None:
    log = orders(order="version", on_violation="drop")
    came = [change(1, "new", 1, 3), rc.Cti(5), change(1, "paid", 2, 4), change(1, "sent", 3, 5)]
    for size in (1, 4):
        session = rc.session(log)
        session.push("orders", came[:2])
        for at in range(2, 4, size):
            session.push("orders", came[at : at + size])
        found = [(e.payload["state"], e.vs, e.ve) for e in session.history().to_events()]
        assert found == [("new", 3, 5), ("sent", 5, rc.FOREVER)]


def test_a_record_that_ends_at_the_cti_may_still_be_lengthened() -> None:
    jobs = rc.source("jobs", {"job": "int64"}, key="job", version="seq")
    live = rc.session(jobs)
    live.push("jobs", pa.table({"_vs": [1], "_ve": [5], "job": [7], "seq": [1]}))
    live.advance("jobs", 5)
    live.push("jobs", pa.table({"_vs": [1], "_ve": [9], "job": [7], "seq": [2]}))
    assert [str(event) for event in live.history().to_events()] == ["[1, 9) {'job': 7}"]
