"""The local engine: sessions, inputs of all kinds, sharing, metrics, snapshots."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.core.batch import from_elements
from recension.core.events import Element
from recension.testing import assert_equivalent

events = rc.source("events", {"who": "string", "n": "int64"})
ANN, BOB = {"who": "ann", "n": 1}, {"who": "bob", "n": 2}
FEED: list[Element] = [rc.Insert(ANN, 0, 10), rc.Insert(BOB, 5, 20), rc.Retract(ANN, 0, 10, 7), rc.Cti(30)]
COUNTED = [rc.Event({"c": 1}, 0, 5), rc.Event({"c": 2}, 5, 7), rc.Event({"c": 1}, 7, 20)]
counted = events.agg(c=rc.count())

TABLE = pa.table(
    {
        "_kind": ["insert", "insert", "retract", "cti"],
        "_vs": [0, 5, 0, 30],
        "_ve": [10, 20, 10, None],
        "_new_ve": [None, None, 7, None],
        "who": ["ann", "bob", "ann", None],
        "n": [1, 2, 1, None],
    }
)


@pytest.mark.parametrize(
    "data",
    [
        FEED,
        from_elements(FEED, events.schema),
        TABLE,
        TABLE.combine_chunks().to_batches()[0],
        TABLE.to_pandas().astype(dict.fromkeys(("_ve", "_new_ve", "n"), "Int64")),
    ],
    ids=["elements", "batch", "table", "record batch", "pandas"],
)
@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_inputs_of_all_kinds(data: object, batch_size: int) -> None:
    assert_equivalent(rc.run(counted, {"events": data}, batch_size=batch_size), COUNTED)


def test_a_plain_table_is_closed_and_may_name_its_times() -> None:
    source = rc.source("t", {"x": "int64"}, start="at", end="until")
    table = pa.table({"at": [0, 2], "until": [4, 9], "x": [1, 2]})
    out = rc.run(source.agg(s=rc.sum("x")), {"t": table})
    assert_equivalent(out, [rc.Event({"s": s}, a, b) for s, a, b in ((1, 0, 2), (3, 2, 4), (2, 4, 9))])
    assert out.elements()[-1] == rc.Cti(rc.FOREVER)


def test_timestamps_stay_timestamps() -> None:
    source = rc.source("t", {"x": "int64"}, start="at")
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-01-01", "2024-01-02"]), "x": [1, 2]})
    out = rc.run(source.set_duration("1d").agg(n=rc.count()), {"t": frame})
    assert pa.types.is_timestamp(out.to_arrow().schema.field("_vs").type)


def test_an_input_that_just_stops_is_not_closed() -> None:
    assert rc.run(counted, {"events": FEED[:1]}).elements() == []
    closed = rc.run(counted, {"events": FEED[:1]}, close=True).elements()
    assert closed == [rc.Insert({"c": 1}, 0, 10), rc.Cti(rc.FOREVER)]


def test_queries_of_a_session_share_what_they_have_in_common() -> None:
    shared = events.where(rc.col("n") > 0).set_duration(5)
    session = rc.session(a=shared.agg(c=rc.count()), b=shared.group_by("who").agg(c=rc.count()))
    session.push("events", FEED)
    names = [m.name for m in session.metrics()]
    assert len([name for name in names if "set duration" in name]) == 1


def test_a_source_nobody_knows() -> None:
    session = rc.session(counted)
    with pytest.raises(
        rc.RecensionError, match=r"no source 'event' \(did you mean 'events'\?\); the queries read events"
    ):
        session.push("event", FEED)
    with pytest.raises(rc.RecensionError, match="no input for source 'events'"):
        rc.run(counted, {})


def test_bad_elements_are_named_by_source_and_row() -> None:
    session = rc.session(counted)
    session.push("events", [rc.Insert(ANN, 0, 10), rc.Cti(5)])
    with pytest.raises(rc.StreamError, match=r"events: row 3: breaks an earlier cti"):
        session.push("events", [rc.Insert(BOB, 3, 4)])
    with pytest.raises(rc.StreamError, match=r"row 4: no column 'whom'"):
        rc.session(counted).push("events", [*FEED[:3], rc.Insert({"whom": "x"}, 1, 2)])
    with pytest.raises(rc.RecensionError, match="cannot read a int as a stream"):
        session.push("events", 3)


def test_dropped_elements_are_counted_and_kept() -> None:
    source = rc.source("events", {"who": "string"}, on_violation="drop")
    session = rc.session(source.agg(c=rc.count()))
    session.push("events", [rc.Cti(5), rc.Insert({"who": "x"}, 3, 4), rc.Insert({"who": "y"}, 5, 6)])
    assert session.counts()["events"]["breaks an earlier cti"] == 1
    ((reason, dropped),) = session.read().dropped["events"]
    assert reason == "breaks an earlier cti"
    assert dropped.to_elements() == [rc.Insert({"who": "x"}, 3, 4)]
    assert session.metrics()[0].dropped == 1


def test_a_declared_property_that_does_not_hold_is_an_error() -> None:
    source = rc.source(
        "events", {"who": "string", "n": "int64"}, properties=rc.Properties(is_insert_only=True)
    )
    with pytest.raises(rc.StreamError, match="row 3: a retraction, but the source is declared insert-only"):
        rc.run(source.agg(c=rc.count()), {"events": FEED})


def test_metrics_tell_what_each_operator_did() -> None:
    session = rc.session(events.agg(c=rc.count(), speculate="eager"))
    session.push("events", FEED[:3])
    source, *_, aggregate = session.metrics()
    assert (source.events_out, source.retractions_out) == (3, 1)
    assert (aggregate.events_in, aggregate.retractions_in, aggregate.events_out) == (3, 1, 3)
    assert aggregate.state_rows == 4
    assert aggregate.state_bytes > 0
    session.close()
    assert session.metrics()[-1].state_rows == 0
    assert session.metrics()[-1].cti == rc.FOREVER


@pytest.mark.parametrize("cut", range(len(FEED) + 1))
def test_a_restored_session_goes_on_as_if_nothing_had_happened(cut: int) -> None:
    first, second = rc.session(counted), rc.session(counted)
    first.push("events", FEED[:cut])
    before = first.read().elements()
    second.restore(first.snapshot())
    second.push("events", FEED[cut:])
    assert before + second.read().elements() == _one_by_one(cut)
    with pytest.raises(rc.StreamError, match="breaks an earlier cti"):
        second.push("events", [rc.Insert(ANN, 29, 40)])


def _one_by_one(cut: int) -> list[object]:
    session = rc.session(counted)
    session.push("events", FEED[:cut])
    session.push("events", FEED[cut:])
    return list(session.read().elements())


def test_a_snapshot_of_another_query_is_refused() -> None:
    other = rc.session(events.where(rc.col("n") > 0).agg(c=rc.count()).shift(1))
    with pytest.raises(rc.RecensionError, match="another query"):
        other.restore(rc.session(counted).snapshot())


def test_results_in_other_forms(capsys: pytest.CaptureFixture[str]) -> None:
    out = rc.run(counted, {"events": FEED})
    assert out.to_arrow().column_names == ["_kind", "_vs", "_ve", "_new_ve", "_count", "c"]
    assert len(out.to_pandas()) == len(out.elements())
    out.show(rows=1)
    assert capsys.readouterr().out == "_vs  _ve  c\n0    5    1\n… and 2 more\n"


def test_functions_of_the_users_own() -> None:
    doubled = events.map(lambda row: {"m": row["n"] * 2}, {"m": "int64"}, per_row=True)
    assert_equivalent(rc.run(doubled, {"events": FEED[:1]}), [rc.Event({"m": 2}, 0, 10)])
    broken = events.map(lambda row: {"m": row["x"]}, {"m": "int64"}, per_row=True)
    with pytest.raises(rc.RecensionError, match="KeyError: 'x'"):
        rc.run(broken, {"events": FEED[:1]})


SOURCE = rc.source("s", {"x": "int64"})


@pytest.mark.parametrize("late", ["finalize", "advance_time", "source"])
def test_what_is_left_out_is_kept_until_it_is_read(late: str) -> None:
    """Counted for ever; each of two queries gets all of it once."""
    s = rc.source("s", {"x": "int64"}, on_violation="drop")
    left = {
        "finalize": s.finalize(0),
        "advance_time": s.advance_time(0),
        "source": s.where(rc.col("x") > 0),
    }[late]
    session = rc.session(a=left, b=left.distinct())
    where = "s" if late == "source" else session.metrics()[1].name
    for _ in range(3):
        promised = [rc.Cti(9)] if late == "source" else []
        session.push("s", [rc.Insert({"x": 1}, 9, 20), *promised, rc.Insert({"x": 2}, 2, 20)])
        [(_, batch)] = session.read("a").dropped[where]
        assert len(batch) == 1
        assert session.read("a").dropped == {}
    assert [len(batch) for _, batch in session.read("b").dropped[where]] == [1, 1, 1]
    assert sum(m.dropped for m in session.metrics()) == 3


def test_state_that_only_remembers_is_measured() -> None:
    session = rc.session(SOURCE.finalize())
    session.push("s", [rc.Insert({"x": x}, x, x + 1000) for x in range(50)])
    held = session.metrics()[-1]
    assert held.state_rows >= 50
    assert held.state_bytes >= 50 * 16
    session.close()
    assert session.metrics()[-1].state_rows == 0
