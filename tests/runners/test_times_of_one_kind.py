"""One session, one kind of time: ticks, naive or aware; results and messages are in the data's own zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recension as rc
from recension.core.errors import RecensionError, StreamError, TimeError
from recension.gate.files import open_stream
from recension.runners.local import Session

PARIS = ZoneInfo("Europe/Paris")
S, R = rc.source("s", {"x": "int64"}), rc.source("r", {"x": "int64"})
BOTH = S.union(R)
NOON = dt.datetime(2024, 7, 1, 12)
ONE = {"x": 1}


def table(*times: Any, zone: str | None = None) -> pa.Table:
    kind = pa.int64() if isinstance(times[0], int) else pa.timestamp("us", zone)
    return pa.table({"_vs": pa.array(times, kind), "x": [1] * len(times)})


@pytest.mark.parametrize(
    ("times", "shown", "kind"),
    [
        ([5], "5", pa.int64()),
        ([NOON], "2024-07-01 12:00:00", pa.timestamp("us")),
        ([NOON.replace(tzinfo=dt.UTC)], "2024-07-01 12:00:00+00:00", pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=PARIS)], "2024-07-01 12:00:00+02:00", pa.timestamp("us", "Europe/Paris")),
        (["2024-07-01T12:00+02:00"], "2024-07-01 10:00:00+00:00", pa.timestamp("us", "UTC")),
        (
            [NOON.replace(tzinfo=PARIS), NOON.replace(tzinfo=ZoneInfo("Asia/Tokyo"))],
            "2024-07-01 03:00:00+00:00",
            pa.timestamp("us", "UTC"),
        ),
    ],
)
def test_a_result_is_shown_in_the_zone_of_its_data(
    capsys: pytest.CaptureFixture[str], times: list[Any], shown: str, kind: pa.DataType
) -> None:
    out = rc.run(S, {"s": [rc.Insert(ONE, t) for t in times]})
    out.show()
    assert capsys.readouterr().out.splitlines()[1].split("  ")[0] == shown
    assert out.time_type == kind
    assert out.to_arrow().schema.field("_vs").type == kind


def test_a_table_keeps_its_zone_beside_promises_in_another() -> None:
    session = rc.session(S)
    session.advance("s", "2024-06-30T00:00Z")
    session.push("s", table(NOON, zone="Europe/Paris"))
    session.advance("s", "2024-07-02T00:00-05:00")
    assert session.read().time_type == pa.timestamp("us", "Europe/Paris")


OTHERS: list[tuple[str, Callable[[Session], Any]]] = [
    ("r: row 1: insert .*: the times are ticks", lambda s: s.push("r", [rc.Insert(ONE, 5)])),
    ("r: the times are ticks", lambda s: s.push("r", table(5))),
    ("s: the times are timestamps without a zone", lambda s: s.push("s", table(NOON))),
    ("s: advance: the times are timestamps without a zone", lambda s: s.advance("s", "2024-07-02")),
    ("s: advance: the times are timestamps without", lambda s: s.advance("s", dt.date(2024, 7, 2))),
    ("s: advance: the times are ticks", lambda s: s.advance("s", 5)),
    ("hear: the times are ticks", lambda s: s.hear(5)),
    ("hear: True is not a time", lambda s: s.hear(True)),
    ("r: advance: 1.5 is not a time", lambda s: s.advance("r", 1.5)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("reason", "act"), OTHERS)
def test_another_kind_is_refused_and_nothing_changes(reason: str, act: Callable[[Session], Any]) -> None:
    session = rc.session(BOTH)
    session.push("s", [rc.Insert(ONE, NOON.replace(tzinfo=PARIS))])
    with pytest.raises(TimeError, match=f"^{reason}") as why:
        act(session)
    assert "\n" not in str(why.value)
    session.push("r", table(NOON, zone="Asia/Tokyo"))
    session.close()
    assert len(session.read().history()) == 2


def test_elements_of_two_kinds_in_one_push_are_refused_with_their_rows() -> None:
    mixed = [rc.Insert(ONE, 5), rc.Cti(rc.FOREVER), rc.Insert(ONE, NOON)]
    with pytest.raises(TimeError, match=r"s: row 3: insert \[2024-07-01 12:00:00, .* s: row 1: insert \[5, "):
        rc.run(S, {"s": mixed})


def test_a_push_that_is_refused_says_nothing_of_the_kind() -> None:
    session = rc.session(S)
    with pytest.raises(StreamError):
        session.push("s", [rc.Insert(ONE, 5, 3)])
    session.push("s", [rc.Insert(ONE, NOON)])
    assert session.read().time_type == pa.timestamp("us")


def test_the_sources_of_a_run_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(
        TimeError, match="r: the times are timestamps in UTC, but those of s are timestamps with"
    ):
        rc.run(BOTH, {"s": table(NOON), "r": table(NOON, zone="UTC")})
    pq.write_table(table(NOON), tmp_path / "naive.parquet")
    with pytest.raises(
        TimeError, match="r: the times are timestamps without a zone, but those of s are ticks"
    ):
        rc.run(BOTH, {"s": table(5), "r": open_stream(tmp_path / "naive.parquet")})
    assert (
        rc.run(BOTH, {"s": table(NOON, zone="Europe/Paris"), "r": table(NOON, zone="UTC")}).time_type.tz
        == "UTC"
    )


def test_a_start_and_an_end_in_one_table_are_of_one_kind() -> None:
    mixed = table(NOON, zone="UTC").append_column(
        "_ve", pa.array([NOON + dt.timedelta(1)], pa.timestamp("us"))
    )
    with pytest.raises(
        RecensionError, match=r"s: times are all .* _vs is .*tz=UTC\], _ve is timestamp\[us\]"
    ):
        rc.run(S, {"s": mixed})


@pytest.mark.parametrize("until", [5, "2024-08-01", dt.date(2024, 8, 1)])
def test_the_end_of_windows_is_of_the_kind_of_the_data(until: Any) -> None:
    query = S.tumbling("1 day", until=until).agg(n=rc.count())
    with pytest.raises(TimeError, match=r"s: .* but those of windows, until are"):
        rc.run(query, {"s": table(NOON, zone="UTC")})
    aware = S.tumbling("1 day", until="2024-08-01T00:00Z").agg(n=rc.count())
    assert len(rc.run(aware, {"s": table(NOON, zone="UTC")}, close=True).history()) == 31
    assert "until 2024-08-01 00:00:00+00:00" in aware.explain()


def test_equal_ticks_of_two_kinds_make_two_queries() -> None:
    queries = [
        S.tumbling("1d", until=until).agg(n=rc.count()) for until in ("2024-08-01", "2024-08-01T00:00Z")
    ]
    for query, zone in zip(queries, (None, "UTC"), strict=True):
        assert rc.run(query, {"s": table(NOON, zone=zone)}, close=True).time_type.tz == zone


def test_streams_join_a_merge_at_a_time_of_the_same_kind() -> None:
    session = rc.session(rc.merge(S, R))
    session.push("s", [rc.Insert(ONE, NOON)])
    third = rc.source("t", {"x": "int64"})
    with pytest.raises(TimeError, match="attach, from_time: the times are ticks"):
        session.attach(third, from_time=5)
    session.attach(third, from_time=NOON)


def test_a_snapshot_remembers_the_kind() -> None:
    session = rc.session(S)
    session.push("s", table(NOON, zone="Europe/Paris"))
    session.read()
    again = rc.session(S)
    again.restore(session.snapshot())
    with pytest.raises(TimeError, match="timestamps in Europe/Paris"):
        again.advance("s", 5)
    again.advance("s", "2024-08-01T00:00Z")
    assert again.read().time_type == pa.timestamp("us", "Europe/Paris")


LATE = r"breaks an earlier cti: insert \[2024-07-01 14:00:00\+02:00, ∞\)"
KINDS: list[tuple[Any, str]] = [
    ([rc.Cti("2024-08-01T00:00Z"), rc.Insert(ONE, NOON.replace(tzinfo=PARIS))], r"10:00:00\+00:00, ∞\)"),
    ([rc.Insert(ONE, "2024-07-02", "2024-07-01")], r"\[2024-07-02 00:00:00, 2024-07-01 00:00:00\)"),
    ([rc.Retract(ONE, "2024-07-02", rc.FOREVER, "2024-07-03")], r"∞\) -> 2024-07-03 00:00:00 {"),
]


@pytest.mark.parametrize(("elements", "said"), KINDS)
def test_messages_show_times_as_the_user_has_them(elements: list[Any], said: str) -> None:
    with pytest.raises(StreamError, match=said):
        rc.run(S, {"s": elements})


def test_messages_of_closes_and_tables_show_times_too(tmp_path: Path) -> None:
    session = rc.session(S)
    session.push("s", table(NOON, zone="Europe/Paris"))
    session.advance("s", "2024-08-01T00:00Z")
    with pytest.raises(StreamError, match=LATE):
        session.push("s", table(NOON, zone="Europe/Paris"))
    closes = pa.table({"_kind": ["close"], "_ve": pa.array([NOON], pa.timestamp("us", "UTC")), "x": [1]})
    with pytest.raises(StreamError, match=r"not open.* at 2024-07-01 12:00:00.00:00"):
        rc.run(S, {"s": closes})
    pq.write_table(closes, tmp_path / "closes.parquet")
    with pytest.raises(StreamError, match=r"not open.* at 2024-07-01 12:00:00.00:00"):
        list(open_stream(tmp_path / "closes.parquet"))


def test_messages_of_operators_show_times_as_the_user_has_them() -> None:
    twice = [rc.Insert({"x": value}, NOON, NOON + dt.timedelta(1)) for value in (1, 2)]
    with pytest.raises(RecensionError, match="one group at 2024-07-01 12:00:00"):
        rc.run(S.edges(), {"s": twice}, close=True)

    def fails(values: Any) -> int:
        raise ValueError("no")

    failing = S.tumbling("1 day").agg(n=rc.aggregate(fails, "x", result="int64"))
    with pytest.raises(RecensionError, match=r"\[2024-07-01 00:00:00, 2024-07-02 00:00:00\)"):
        rc.run(failing, {"s": [rc.Insert(ONE, NOON, NOON + dt.timedelta(hours=1))]}, close=True)


def test_durations_in_words_make_windows() -> None:
    pd = pytest.importorskip("pandas")
    same = [S.tumbling(size).agg(n=rc.count()).plan for size in ("10 minutes", "10m", pd.Timedelta("10min"))]
    assert same[0] is same[1] is same[2]
    wrongs: list[Any] = [1.5, True, "1 month"]
    for wrong in wrongs:
        with pytest.raises(TimeError):
            S.tumbling("1h", offset=wrong)
