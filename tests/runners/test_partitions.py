"""Sources with partitions on the local engine: pushes, promises, refusals, what is shown of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension import Cti, Insert, Retract, col
from recension.core.errors import RecensionError, StreamError
from recension.core.validity import LATE, Policy
from recension.gate.repeats import REPEATED
from recension.runners.local import Session

FOREVER = 2**63 - 1
FEED = rc.source("feed", {"v": "int64"}, partition="p", order="o")
BY_HAND = rc.source("feed", {"v": "int64"}, partition="p")


def insert(vs: int, ve: int = FOREVER, v: int = 1) -> Insert:
    return Insert({"v": v}, vs, ve)


def table(rows: list[tuple[Any, ...]], **more: Any) -> pa.Table:
    """Rows of (kind, vs, ve, v, p, o)."""
    names = ("_kind", "_vs", "_ve", "v", "p", "o")
    types = (pa.string(), *(pa.int64(),) * 5)
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.table(dict(zip(names, columns, strict=True)) | more)


TWO = table(
    [
        ("insert", 12, 15, 1, 0, 1),
        ("cti", 10, None, None, 0, 2),
        ("insert", 3, 4, 2, 1, 8),
        ("cti", 5, None, None, 1, 9),
    ]
)


def read(session: Session, query: str | None = None) -> list[Any]:
    return list(session.read(query).elements())


def rows_of(result: rc.Result) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in result.history().to_arrow().to_pylist())


def test_all_partitions_of_a_table_are_known_before_a_cti_counts() -> None:
    session = rc.session(FEED)
    session.push("feed", TWO)
    assert read(session) == [insert(12, 15), insert(3, 4, 2), Cti(5)]
    session.push("feed", TWO.slice(3).set_column(1, "_vs", pa.array([11])).set_column(5, "o", pa.array([10])))
    assert read(session) == [Cti(10)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_run_takes_a_partitioned_input_as_a_whole(size: int) -> None:
    shuffled = TWO.take(pa.array([3, 1, 2, 0]))
    result = rc.run(FEED, {"feed": shuffled}, batch_size=size)
    assert sorted(map(str, result.elements())) == sorted(map(str, [insert(12, 15), insert(3, 4, 2), Cti(5)]))
    assert result.elements()[-1] == Cti(5)
    frame = TWO.to_pandas().astype({"v": "Int64", "_ve": "Int64"})
    assert rows_of(rc.run(FEED, {"feed": frame})) == rows_of(result)
    by_name = rc.run(BY_HAND, {"feed": {0: [insert(12), Cti(10)], 1: [insert(3)]}}, close=True)
    assert by_name.elements() == [insert(12), insert(3), Cti(FOREVER)]


def test_elements_are_pushed_by_partition() -> None:
    session = rc.session(BY_HAND)
    session.push("feed", [insert(12), Cti(10)], partition=0)
    assert read(session) == [insert(12), Cti(10)], "only one has spoken, and so it decides"
    session.push("feed", [insert(10), insert(11), Cti(20)], partition=["1", "0", "1"])
    assert read(session) == [insert(10), insert(11)]
    session.advance("feed", 15, partition=0)
    assert read(session) == [Cti(15)]
    session.advance("feed", 18)
    assert read(session) == [Cti(18)]
    session.advance("feed", FOREVER, partition=0)
    assert read(session) == [Cti(20)], "what has ended holds nobody back"
    session.close()
    assert read(session) == [Cti(FOREVER)]
    assert session.is_closed("feed")


def test_frames_of_one_partition_need_no_column() -> None:
    session = rc.session(rc.source("feed", {"v": "int64"}, start="t", partition="p", order="o"))
    session.push("feed", pd.DataFrame({"t": [1, 2], "v": [1, 2], "o": [2, 1]}), partition="a")
    session.push("feed", pd.DataFrame({"t": [9], "v": [9], "o": [1], "p": ["b"]}))
    assert [e.payload["v"] for e in read(session)] == [2, 1, 9]
    with pytest.raises(RecensionError, match="is for data without the column 'p'"):
        session.push("feed", pd.DataFrame({"t": [9], "v": [9], "o": [3], "p": ["b"]}), partition="b")


def test_columns_of_the_schema_are_payload_as_well() -> None:
    both = rc.source("feed", {"v": "int64", "p": "int64"}, start="t", partition="p", order="o")
    rows = pa.table({"t": [1], "v": [1], "p": [7], "o": [1]})
    assert rows_of(rc.run(both, {"feed": rows})) == [(1, 2, 1, 7)]


@pytest.mark.parametrize(
    ("push", "message"),
    [
        (lambda s: s.push("feed", [insert(1)]), "it has partitions: push"),
        (lambda s: s.push("feed", [insert(1)], partition=None), "it has partitions: push"),
        (lambda s: s.push("feed", [insert(1)], partition=(1, 2)), "a partition is a value of p"),
        (lambda s: s.push("feed", [insert(1)], partition=[1, 2]), "1 elements, but partitions of 2"),
        (lambda s: s.push("feed", [insert(1)], partition=1.5), "a text or a whole number"),
        (lambda s: s.push("feed", [rc.ExternalCti(0, 8, 4)], partition=1), "an external cti counts"),
        (lambda s: s.push("feed", TWO.drop_columns("o")), "no column o"),
        (lambda s: s.push("feed", TWO.drop_columns("p")), "no column p"),
        (lambda s: s.push("feed", TWO.set_column(4, "p", pa.array([0, None, 1, 1]))), "row 2: p is null"),
        (lambda s: s.push("feed", TWO.set_column(5, "o", pa.array([0, None, 1, 1]))), "row 2: o is null"),
        (lambda s: s.push("feed", TWO.set_column(5, "o", pa.array([1, 1, 1, 2]))), "order 1 twice"),
        (lambda s: s.push("other", [insert(1)], partition=1), "it has no partitions: declare"),
    ],
)
def test_refusals(push: Any, message: str) -> None:
    session = rc.session(FEED, other=rc.source("other", {"v": "int64"}))
    with pytest.raises(RecensionError, match=message):
        push(session)
    session.push("feed", TWO)
    assert read(session, "query")[-1] == Cti(5), "what is refused leaves no trace"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "o"}, "order= is about partitions, and needs partition="),
        ({"partitions": 3}, "needs partition="),
        ({"idle": "5m"}, "needs partition="),
        ({"run": "r"}, "needs sequence="),
        ({"partition": "p", "external_ctis": True}, "leave one of them out"),
        ({"partition": "p", "partitions": 0}, "a number from 1"),
        ({"partition": "p", "idle": 0}, "1 microsecond or more"),
        ({"partition": "p", "idle": "soon"}, "source: idle: "),
        ({"partition": []}, "at least one column"),
        ({"partition": ["p", "p"]}, "named twice"),
    ],
)
def test_declarations_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecensionError, match=message):
        rc.source("feed", {"v": "int64"}, **options)


def test_a_refused_push_leaves_no_trace() -> None:
    session = rc.session(FEED)
    session.push("feed", TWO)
    before = session.snapshot()
    bad = table([("insert", 30, 40, 1, 7, 1), ("cti", 50, None, None, 0, 3), ("insert", 4, 9, 2, 1, 10)])
    with pytest.raises(StreamError, match="row 7: partition 1: breaks an earlier cti"):
        session.push("feed", bad)
    after = session.snapshot()
    assert after.keys() == before.keys()
    assert all(after[name].equals(before[name]) for name in before)


def test_policies_go_by_partition() -> None:
    def run(policy: Policy) -> Session:
        feed = rc.source("feed", {"v": "int64"}, partition="p", on_violation=policy)
        session = rc.session(feed)
        session.push("feed", {0: [insert(1, 20), Cti(10)], 1: [insert(1, 20), Cti(5)]})
        session.push("feed", {0: [insert(7, 30, 2)], 1: [insert(7, 30, 2)]})
        return session

    dropping = run("drop")
    assert read(dropping)[-1] == insert(7, 30, 2)
    (metrics,) = dropping.metrics()
    assert {p.name: p.dropped for p in metrics.partitions} == {"0": {LATE: 1}, "1": {}}
    assert metrics.held_back_by == "1"
    moving = run("adjust")
    assert read(moving)[-2:] == [insert(10, 30, 2), insert(7, 30, 2)]
    # What corrects it finds it where it was moved, in its own partition.
    moving.push("feed", [Retract({"v": 2}, 7, 30, 25)], partition=0)
    moving.push("feed", [Retract({"v": 2}, 7, 30, 26)], partition=1)
    assert read(moving) == [Retract({"v": 2}, 10, 30, 25), Retract({"v": 2}, 7, 30, 26)]


def test_opens_and_closes_are_of_one_partition() -> None:
    def rows(*given: tuple[str, int | None, int | None, int]) -> pa.Table:
        return table([(kind, vs, ve, 1, p, i) for i, (kind, vs, ve, p) in enumerate(given, start=1)])

    session = rc.session(BY_HAND)
    session.push("feed", rows(("open", 1, None, 0), ("open", 2, None, 1), ("close", None, 5, 0)))
    assert read(session) == [insert(1), insert(2), Retract({"v": 1}, 1, FOREVER, 5)]
    with pytest.raises(StreamError, match="row 4: partition 2: closes an event that is not open"):
        session.push("feed", rows(("close", None, 7, 2)))
    session.push("feed", rows(("close", None, 7, 1)))
    assert read(session) == [Retract({"v": 1}, 2, FOREVER, 7)]


def test_silence_by_the_clock() -> None:
    now = 0
    feed = rc.source("feed", {"v": "int64"}, partition="p", partitions=3, idle="5m", on_violation="drop")
    session = rc.session(feed, clock=lambda: now)
    session.push("feed", {0: [Cti(10)], 1: [Cti(5)]})
    assert (read(session), session.metrics()[0].held_back_by) == ([], "1 more to speak")
    now = 299_000_000
    session.push("feed", [Cti(20)], partition=0)
    assert read(session) == []
    now = 300_000_000
    assert read(session) == [Cti(20)]
    session.push("feed", [insert(7), insert(20)], partition=1)
    assert read(session) == [insert(20)]
    assert session.metrics()[0].partitions[1].dropped == {LATE: 1}
    assert "partition 1: cti 5, latest start 20, 1 × breaks an earlier cti" in session.explain()


def test_advance_time_goes_by_partition() -> None:
    session = rc.session(BY_HAND.advance_time(5), raw=BY_HAND)
    session.push("feed", {0: [insert(90), insert(100)], 1: [insert(12), insert(20)]})
    assert read(session, "query")[-1] == Cti(15)
    assert read(session, "raw") == [insert(90), insert(100), insert(12), insert(20)]
    session.push("feed", [insert(14), insert(16)], partition=1)
    assert read(session, "query") == [insert(16)]
    assert read(session, "raw") == [insert(14), insert(16)]
    restored = rc.session(BY_HAND.advance_time(5), raw=BY_HAND)
    restored.restore(session.snapshot())
    restored.push("feed", [insert(40)], partition=1)
    assert read(restored, "query") == [insert(40), Cti(35)]
    assert [m.dropped for m in restored.metrics()] == [0, 1]
    restored.close()
    assert read(restored, "query") == [Cti(FOREVER)]


def test_advance_time_after_so_many_events_of_each_partition() -> None:
    session = rc.session(BY_HAND.advance_time(0, events=2))
    session.push("feed", {0: [insert(9)], 1: [insert(5)]})
    session.push("feed", {0: [insert(10)], 1: [insert(7), insert(8)]})
    assert read(session)[-1] == Cti(7)


def test_advance_time_stands_on_the_source_itself() -> None:
    with pytest.raises(RecensionError, match="put advance_time directly on the source, before 'where v > 1'"):
        BY_HAND.where(col("v") > 1).advance_time(3)


def test_properties_hold_within_a_partition_only() -> None:
    known = rc.Properties(is_strictly_increasing=True, constant_duration=3)
    feeds = [rc.source(name, {"v": "int64"}, partition="p", properties=known) for name in ("a", "b")]
    assert feeds[0].properties == rc.Properties(is_insert_only=True, constant_duration=3)
    assert "R4" in rc.merge(*feeds).explain()
    alone = [rc.source(name, {"v": "int64"}, properties=known) for name in ("a", "b")]
    assert "R0" in rc.merge(*alone).explain()


NUMBERED = {"_run": pa.string(), "_batch": pa.int64(), "_seq": pa.int64()}


def numbered(rows: list[tuple[int, str, int, int]], **more: Any) -> pa.Table:
    """Inserts of (start, run, batch, seq)."""
    columns = {"t": pa.array([row[0] for row in rows], pa.int64()), "v": pa.array([1] * len(rows))}
    for i, (name, kind) in enumerate(NUMBERED.items(), start=1):
        columns[name] = pa.array([row[i] for row in rows], kind)
    return pa.table(columns | more)


def test_what_a_producer_sends_again_is_skipped() -> None:
    session = rc.session(rc.source("feed", {"v": "int64"}, start="t"))
    session.push("feed", numbered([(1, "a", 0, 0), (2, "a", 0, 1)]))
    session.push("feed", numbered([(2, "a", 0, 1), (3, "a", 1, 0), (1, "b", 0, 0)]))
    assert [e.vs for e in read(session)] == [1, 2, 3, 1]
    assert session.counts()["feed"][REPEATED] == 1
    assert session.metrics()[0].dropped == 0
    restored = rc.session(rc.source("feed", {"v": "int64"}, start="t"))
    restored.restore(session.snapshot())
    restored.push("feed", numbered([(3, "a", 1, 0), (1, "b", 0, 0), (9, "b", 0, 1)]))
    assert [e.vs for e in read(restored)] == [9]
    assert restored.counts()["feed"][REPEATED] == 3


def test_named_columns_number_elements() -> None:
    feed = rc.source("feed", {"v": "int64"}, start="t", partition="p", run="who", sequence="n")
    session = rc.session(feed)
    rows = pa.table({"t": [1, 2, 3], "v": [1, 1, 1], "p": [0, 1, 0], "who": ["x"] * 3, "n": [1, 1, 2]})
    session.push("feed", rows)
    session.push("feed", rows)
    assert len(read(session)) == 3
    assert {p.name: p.dropped for p in session.metrics()[0].partitions} == {
        "0": {REPEATED: 2},
        "1": {REPEATED: 1},
    }


def test_keyed_sources_have_partitions_too() -> None:
    jobs = rc.source("jobs", {"job": "int64"}, key="job", version="n", partition="p", order="o")
    rows = pa.table(
        {
            "_kind": ["insert", "cti", "insert", "cti", "insert"],
            "_vs": pa.array([3, 8, 1, 4, 3]),
            "_ve": pa.array([None, None, 6, None, 7], pa.int64()),
            "job": [7, None, 8, None, 7],
            "n": [1, None, 1, None, 2],
            "p": [0, 0, 1, 1, 0],
            "o": [1, 3, 1, 2, 2],
        }
    )
    result = rc.run(jobs, {"jobs": rows})
    assert result.elements()[-1] == Cti(4)
    assert rows_of(result) == [(1, 6, 8), (3, 7, 7)]


def test_a_finite_run_ignores_silence() -> None:
    ticks = iter(range(0, 10**9, 1_000))
    feed = rc.source("feed", {"v": "int64"}, partition="p", partitions=3, idle=1)
    given_back = rc.run(feed, {"feed": {0: [Cti(10)], 1: [Cti(5)]}}, clock=lambda: next(ticks))
    assert given_back.elements() == []


def test_an_empty_table_is_closed() -> None:
    empty = pa.table({"t": [1], "v": [1], "p": [1], "o": [1]}).slice(1)
    feed = rc.source("feed", {"v": "int64"}, start="t", partition="p", order="o")
    assert rc.run(feed, {"feed": empty}).elements() == [Cti(FOREVER)]


def test_a_dictionary_may_have_a_name_twice() -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "a", "b"]))
    session = rc.session(rc.source("feed", {"v": "int64"}, start="t", partition="p"))
    session.push("feed", pa.table({"t": [1, 2, 3], "v": [1, 2, 3], "p": names}))
    assert [p.name for p in session.metrics()[0].partitions] == ["a", "b"]


def test_silence_moves_what_goes_by_partition() -> None:
    now = 0
    feed = rc.source("feed", {"v": "int64"}, partition="p", idle=100)
    session = rc.session(feed.advance_time(0), clock=lambda: now)
    session.push("feed", {0: [insert(50)], 1: [insert(5)]})
    now = 50
    session.push("feed", [insert(60)], partition=0)
    assert read(session)[-1] == insert(60)
    now = 100
    session.tick()
    assert read(session) == [Cti(60)]


def test_partitions_that_are_expected_hold_back_advance_time_too() -> None:
    """As a service says it, which counts the partitions of a topic."""
    session = rc.session(BY_HAND.advance_time(5))
    session.expect_partitions("feed", 2)
    session.push("feed", [insert(90), insert(100)], partition=0)
    assert read(session) == [insert(90), insert(100)]
    session.push("feed", [insert(12)], partition=1)
    assert read(session) == [insert(12), Cti(7)]


def test_what_is_left_out_keeps_a_partition_alive_for_advance_time_too() -> None:
    now = 0
    how: dict[str, Any] = {"start": "t", "partition": "p", "sequence": "n", "on_violation": "drop"}
    feed = rc.source("feed", {"v": "int64"}, idle=100, partitions=3, **how)
    session = rc.session(feed.advance_time(0), clock=lambda: now)

    def push(*rows: tuple[int, int, int]) -> None:
        t, p, n = ([row[i] for row in rows] for i in range(3))
        session.push("feed", pa.table({"t": t, "v": t, "p": p, "n": n}))

    push((50, 0, 0), (5, 1, 0))
    session.push("feed", [Retract({"v": 9}, 1, 9, 5)], partition=2)
    assert [p.name for p in session.metrics()[1].partitions] == ["0", "1", "2"]
    now = 60
    push((60, 0, 1), (5, 1, 0))
    now = 110
    assert read(session)[-1] == Cti(5)
    assert session.metrics()[1].held_back_by == "1"
