"""Calls of a session at the edges: refused ones leave no trace, and the session says what is wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import recension as rc
from recension import col

SCHEMA = {"k": "string"}
s, r, t = (rc.source(name, SCHEMA) for name in "srt")
A = {"k": "a"}
NOON = dt.datetime(2024, 7, 1, 12)
PARIS = ZoneInfo("Europe/Paris")


def test_names_of_queries_do_not_clash() -> None:
    with pytest.raises(rc.RecensionError, match="a query without a name is called 'query', and so is ano"):
        rc.session(s, query=s.where(col("k") == "a"))
    with pytest.raises(rc.RecensionError, match="'query 1'"):
        rc.session(s, s.distinct(), **{"query 1": s})  # type: ignore[arg-type]
    assert rc.session(s, other=s.distinct()).history("other").schema == s.plan.schema


text, number = col("k").str, rc.source("n", {"x": "float64"})
ALIKE = {
    "slice": (s.where(text.slice(0, 3) == "a"), s.where(text.slice(3) == "a")),
    "round": (number.select(y=col("x").round(0)), number.select(y=col("x").round(1))),
    "zfill": (s.where(text.zfill(0) == "a"), s.where(text.zfill(1) == "a")),
    "replace": (s.where(text.replace_all("", "x") == "a"), s.where(text.replace_all("x", "") == "a")),
}


@pytest.mark.parametrize("name", ALIKE)
def test_queries_that_look_alike_are_two_queries(name: str) -> None:
    """Once such pairs printed alike, and one took the snapshot of the other for its own."""
    one, other = ALIKE[name]
    with pytest.raises(rc.RecensionError, match="the snapshot is of another query"):
        rc.session(other).restore(rc.session(one).snapshot())


def test_a_session_has_a_query() -> None:
    with pytest.raises(rc.RecensionError, match="session: give it at least one query"):
        rc.session()


@pytest.mark.parametrize("wrong", ["3", 1.5, True, -1])
def test_sizes_are_numbers(wrong: Any) -> None:
    with pytest.raises(rc.RecensionError, match="batch_size is a number of elements from 1, not "):
        rc.session(s, batch_size=wrong)
    with pytest.raises(rc.RecensionError, match="batch_size is a number of elements from 1, not "):
        rc.run(s, {"s": []}, batch_size=wrong)
    with pytest.raises(rc.RecensionError, match="history_limit is a number of events from 0, or None, not "):
        rc.session(s, history_limit=wrong)


def test_promises_are_no_rows() -> None:
    live = rc.session(s)
    live.push("s", [rc.Insert(A, 1, 5), rc.Cti(2)])
    live.advance("s", 3)
    assert live.rows_seen("s") == 2
    with pytest.raises(rc.RecensionError, match="s: row 3: "):
        live.push("s", [rc.Insert(A, 1, 5)])
    live.close()
    assert live.rows_seen("s") == 2


def test_a_restored_session_knows_no_more_of_times_than_its_snapshot() -> None:
    live = rc.session(s)
    snapshot = live.snapshot()
    live.advance("s", 5)
    live.restore(snapshot)
    live.push("s", [rc.Insert(A, NOON)])
    assert live.read().time_type == pa.timestamp("us")


def test_zones_after_a_restore_are_those_of_the_data() -> None:
    live, other = rc.session(s), rc.session(s)
    live.advance("s", "2024-06-30T00:00Z")
    other.restore(live.snapshot())
    for session in (live, other):
        session.push("s", [rc.Insert(A, NOON.replace(tzinfo=PARIS))])
        assert session.read().time_type == pa.timestamp("us", "Europe/Paris")
        with pytest.raises(rc.RecensionError, match="but those of s: advance are timestamps in Europe/Paris"):
            session.advance("s", 5)


REFUSED: list[Callable[[Any], Any]] = [
    lambda live: live.attach(rc.source("other", {"x": "int64"}), from_time=5),
    lambda live: live.attach(t.tumbling(3, until=9).agg(n=rc.count()), from_time=rc.FOREVER),
    lambda live: live.advance("nobody", 5),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_refused_says_nothing_of_the_kind_of_times(refused: Callable[[Any], Any]) -> None:
    live = rc.session(rc.merge(s, r))
    with pytest.raises(rc.RecensionError):
        refused(live)
    live.push("s", [rc.Insert(A, NOON)])
    with pytest.raises(rc.RecensionError, match="attach, from_time: the times are ticks"):
        live.attach(t, from_time=5)
    live.attach(t, from_time=NOON)


def test_a_refused_end_says_nothing_of_the_kind_of_times() -> None:
    live = rc.session(rc.merge(s, r))
    mixed = t.tumbling("1 day", until=NOON).agg(n=rc.count()).select(k=rc.lit("x"))
    with pytest.raises(rc.RecensionError, match="windows, until: the times are timestamps"):
        live.attach(mixed, from_time=5)
    live.push("s", [rc.Insert(A, NOON)])


WINDOWS = {
    "windows": s.tumbling(3).agg(n=rc.count()),
    "by group": s.group_by("k").hopping(4, 2).agg(n=rc.count(), speculate="eager"),
    "filtered": s.where(col("k") != "b").tumbling(3).agg(n=rc.count()),
    "in groups": s.group_by("k").apply(lambda g: g.tumbling(3).agg(n=rc.count())),
    "module": s.tumbling(3).agg(n=rc.aggregate(len, "k", result="int64")),
}
END = rc.Cti(rc.FOREVER)


@pytest.mark.parametrize("query", WINDOWS.values(), ids=WINDOWS)
def test_an_end_that_cannot_be_is_refused_with_its_data(query: rc.Stream) -> None:
    live = rc.session(query)
    with pytest.raises(rc.RecensionError, match="an event that never ends"):
        live.push("s", [rc.Insert(A, 1), END])
    assert live.rows_seen("s") == 0
    live.push("s", [rc.Insert(A, 1)])
    with pytest.raises(rc.RecensionError, match="an event that never ends"):
        live.push("s", [rc.Insert(A, 2, 4), END])
    live.push("s", [rc.Insert({"k": "c"}, 3), rc.Retract({"k": "c"}, 3, rc.FOREVER, 5)])
    live.push("s", [rc.Retract(A, 1, rc.FOREVER, 4), END])
    assert len(live.history())


def test_an_end_that_can_be_is_taken_with_its_data() -> None:
    live = rc.session(WINDOWS["filtered"])
    live.push("s", [rc.Insert({"k": "b"}, 1), rc.Insert(A, 1), rc.Retract(A, 1, rc.FOREVER, 2), END])
    live = rc.session(s.tumbling(3, until=9).agg(n=rc.count()))
    live.push("s", [rc.Insert(A, 1), END])
    assert len(live.history()) == 3
    lenient = rc.source("s", SCHEMA, on_violation="drop")
    live = rc.session(lenient.tumbling(3).agg(n=rc.count()))
    live.push("s", [rc.Cti(5), rc.Insert(A, 1), END])
    assert live.counts()["s"].total() == 1


def timed_table(start: pa.Array) -> pa.Table:
    return pa.table({"_kind": ["insert"], "_vs": start, "k": ["a"]})


TICKS, NAIVE, AWARE = (
    pa.array([0], kind) for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
)


@pytest.mark.parametrize(("first", "then"), [(TICKS, NAIVE), (NAIVE, AWARE), (AWARE, TICKS)])
def test_tables_of_several_kinds_of_time_do_not_mix(first: pa.Array, then: pa.Array) -> None:
    session = rc.session(s)
    session.push("s", timed_table(first))
    with pytest.raises(rc.RecensionError, match="the times are"):
        session.push("s", timed_table(then))


@pytest.mark.parametrize(
    ("zone", "expected"), [(None, "1970-01-01 00:00:00 "), ("Europe/Paris", "1970-01-01 01:00:00+01:00 ")]
)
def test_times_are_shown_in_the_zone_of_the_data(
    zone: str | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rc.run(s, {"s": timed_table(pa.array([0], pa.timestamp("us", zone)))}).show()
    assert capsys.readouterr().out.splitlines()[1].startswith(expected)


def test_what_is_shifted_out_of_time_is_dropped_and_counted() -> None:
    session = rc.session(s.shift(10))
    last = rc.FOREVER - 8
    lost = [rc.Insert(A, last, last + 3), rc.Insert(A, last)]
    session.push("s", [rc.Insert(A, 5, 9), *lost, rc.Insert(A, last - 12, last + 3)])
    result = session.read()
    assert [(event.vs, event.ve) for event in result.history().to_events()] == [
        (15, 19),
        (last - 2, rc.FOREVER),
    ]
    ((reason, dropped),) = result.dropped["shift by 10"]
    assert reason == "moved beyond the ends of time"
    assert dropped.to_elements() == lost
    session.push("s", [rc.Retract(A, last, last + 3, last), rc.Insert(A, 5, 9)])
    assert session.counts()["shift by 10"] == {reason: 2}


@pytest.mark.parametrize("speculate", ["eager", "ordered", "perfect"])
@pytest.mark.parametrize("case", ["R0", "R2", "R3", "R3-", "R4"])
def test_an_end_that_windows_above_a_merge_cannot_take_changes_nothing(case: Any, speculate: Any) -> None:
    windows = rc.merge(s, r, case=case).tumbling(5)
    session = rc.session(windows.agg(n=rc.count(), speculate=speculate))
    for source in "sr":
        session.push(source, [rc.Insert(A, 2)])
    session.advance("s", 3)
    before = session.history().to_events()
    ends: list[Callable[[], None]] = [lambda: session.advance("s", rc.FOREVER), session.close]
    for end in ends:
        with pytest.raises(rc.RecensionError, match="name a last start with until="):
            end()
    session.push("r", [rc.Cti(3)])
    assert session.history().to_events() == before


@pytest.mark.parametrize("case", ["R3", "R3-", "R4"])
def test_a_merge_of_events_that_end_may_end(case: Any) -> None:
    session = rc.session(rc.merge(s, r, case=case).tumbling(5).agg(n=rc.count(), speculate="eager"))
    session.push("s", [rc.Insert(A, 2), rc.Retract(A, 2, rc.FOREVER, 4)])
    session.push("r", [rc.Insert(A, 2)])
    session.advance("s", rc.FOREVER)
    assert [(event.vs, event.ve) for event in session.history().to_events()] == [(0, 5)]
