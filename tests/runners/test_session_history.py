"""What is true now, results that add up, and histories and results on their way out and back in."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recension as rc
from recension.core.rowhash import checksum
from recension.runners import answers
from recension.runners.local import Session
from recension.testing import assert_equivalent
from recension.testing.strategies import SCHEMA, batchings, histories, physical_streams, schemas

s = rc.source("s", {"k": "string", "v": "int64"})
counted = s.agg(n=rc.count(), speculate="eager")
P = {"k": "a", "v": 1}
NOW = "_vs  _ve  n\n1    3    1\n3    5    2\n5    9    1\n"


def started(**options: Any) -> Session:
    session = rc.session(counted, **options)
    session.push("s", [rc.Insert(P, 1, 5)])
    return session


def test_a_second_reading_shows_its_changes(capsys: pytest.CaptureFixture[str]) -> None:
    session = started()
    session.read().show()
    session.push("s", [rc.Insert(P, 3, 9), rc.Cti(4)])
    capsys.readouterr()
    later = session.read()
    later.show()
    assert capsys.readouterr().out == (
        "_kind    _vs  _ve  _new_ve  n\n"
        "retract  1    5    3        1\n"
        "insert   3    5             2\n"
        "insert   5    9             1\n"
        "cti      4\n"
    )
    with pytest.raises(rc.StreamError, match=r"no such event to retract: .*session\.history\(\)"):
        later.history()
    session.history().show()
    assert capsys.readouterr().out == NOW


def test_results_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    session = started()
    first, nothing = session.read(), session.read()
    session.push("s", [rc.Insert(P, 3, 9)])
    second = session.read()
    assert_equivalent(first + second, session.history())
    assert rc.Result.concat([first, nothing, second]).elements() == (first + second).elements()
    (first + second).show()
    assert capsys.readouterr().out == NOW
    with pytest.raises(rc.RecensionError, match="results of one query add up"):
        _ = first + rc.run(s, {"s": []})
    with pytest.raises(rc.RecensionError, match="at least one"):
        rc.Result.concat([])


def read_thrice(session: Session) -> list[rc.Result]:
    read = list[rc.Result]()
    for n in range(3):
        session.push("s", [rc.Insert(P, 10 * n, 10 * n + 5)])
        read.append(session.read())
    return read


def test_only_readings_that_follow_each_other_add_up() -> None:
    session = rc.session(s)
    first, second, third = read_thrice(session)
    for one, other, words in [
        (first, third, "result 3 does not follow result 1"),
        (first, first, "result 1 does not follow result 1"),
        (second, first, "result 1 does not follow result 2"),
        (first + second, second, "result 2 does not follow result 2"),
        (first, read_thrice(rc.session(s))[1], "result 2 does not follow result 1"),
    ]:
        with pytest.raises(rc.RecensionError, match=f"{words}: add the results of one query"):
            _ = one + other
    with pytest.raises(rc.RecensionError, match="does not follow"):
        rc.Result.concat([first, third])
    later = second + third
    assert [first.is_whole, later.is_whole, (first + later).is_whole] == [True, False, True]
    assert_equivalent(first + later, session.history())
    assert_equivalent(rc.Result.from_arrow(first.to_arrow()) + later, session.history())
    copied = pickle.loads(pickle.dumps(first))
    assert_equivalent(copied + later, session.history())


def test_a_restored_session_goes_on_with_its_readings() -> None:
    session, other = rc.session(s), rc.session(s)
    session.push("s", [rc.Insert(P, 1, 5)])
    first, chunks = session.read(), session.snapshot()
    session.push("s", [rc.Insert(P, 2, 5)])
    unread, left = session.snapshot(), session.read()
    other.restore(chunks)
    other.push("s", [rc.Insert(P, 3, 5)])
    second = other.read()
    assert_equivalent(first + second, other.history())
    other.push("s", [rc.Insert(P, 4, 5)])
    with pytest.raises(rc.RecensionError, match="result 3 does not follow result 2"):
        _ = left + other.read()
    other.restore(unread)
    other.push("s", [rc.Insert(P, 3, 5)])
    with pytest.raises(rc.RecensionError, match="result 3 does not follow result 1"):
        _ = first + other.read()


def test_a_later_reading_is_an_input_only_after_the_earlier_ones() -> None:
    session = rc.session(s)
    first, second, third = read_thrice(session)
    with pytest.raises(rc.RecensionError, match=r"s: result 3 of a session is not its whole answer: give"):
        rc.run(s, {"s": third})
    next_session = rc.session(s)
    for result, later in [(None, third), (first, third), (second, second)]:
        if result is not None:
            next_session.push("s", result)
        with pytest.raises(rc.RecensionError, match=r"s: result \d does not follow what was pushed here"):
            next_session.push("s", later)
    next_session.push("s", third)
    assert_equivalent(next_session.history(), session.history())
    assert_equivalent(rc.run(s, {"s": first + second + third}), session.history())


def test_a_later_reading_is_an_input_where_the_earlier_ones_may_be_there() -> None:
    """In another form, in a snapshot, or at another input of a merge."""
    first, second, _ = read_thrice(rc.session(s))
    for data in (first.elements(), first.to_arrow()):
        session, other = rc.session(s), rc.session(s)
        session.push("s", data)
        other.restore(session.snapshot())
        for one in (session, other):
            one.push("s", second)
            assert len(one.history()) == 2
    assert len(rc.run(rc.merge(s), {"s": second}).history()) == 1


def test_each_query_has_its_history() -> None:
    session = rc.session(a=counted, b=s)
    session.push("s", [rc.Insert(P, 1, 5), rc.Insert(P, 3, 9)])
    assert [len(session.history(name)) for name in ("a", "b")] == [3, 2]


@given(st.data())
@settings(max_examples=15)
def test_the_history_is_that_of_all_that_was_read(data: st.DataObject) -> None:
    """However it is cut, read, folded and restored."""
    batches = data.draw(batchings(data.draw(physical_streams(data.draw(histories()), schema=SCHEMA))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_COMPACT_AT", data.draw(st.sampled_from([1, 300, 1 << 26])))
        patch.setattr(answers, "_GATHER_AT", data.draw(st.sampled_from([1, 3, 1 << 18])))
        patch.setattr(answers, "_MOST_BATCHES", data.draw(st.sampled_from([2, 256])))
        session, read = rc.session(counted), list[rc.Result]()
        for batch in batches:
            session.push("s", batch)
            if data.draw(st.booleans()):
                read.append(session.read())
                assert_equivalent(rc.Result.concat(read), session.history())
            if data.draw(st.booleans()):
                read.append(session.read())
                chunks = session.snapshot()
                session = rc.session(counted)
                session.restore(chunks)
        read.append(session.read())
        assert_equivalent(rc.Result.concat(read), session.history())


def test_a_snapshot_just_when_a_history_grows_too_large_has_none() -> None:
    session, other = rc.session(s, history_limit=10), rc.session(s)
    for n in range(21):
        session.push("s", [rc.Insert(P, n, n + 1)])
    other.restore(session.snapshot())
    with pytest.raises(rc.RecensionError, match="the snapshot that was restored has none"):
        other.history()


def test_a_history_that_grows_too_large_is_no_longer_kept(caplog: pytest.LogCaptureFixture) -> None:
    session = rc.session(s, history_limit=10)
    with caplog.at_level(logging.WARNING, "recension"):
        for n in range(30):
            session.push("s", [rc.Insert(P, n, n + 1)])
    assert len(session.read().elements()) == 30
    with pytest.raises(
        rc.RecensionError, match=r"'query' is not kept: it has more than 10 events.*history_limit"
    ):
        session.history()
    assert "no longer kept" in caplog.text
    resumed = rc.session(s)
    resumed.restore(session.snapshot())
    with pytest.raises(rc.RecensionError, match="the snapshot that was restored has none"):
        resumed.history()
    all_of_it = rc.session(s, history_limit=None)
    all_of_it.push("s", [rc.Insert(P, n, n + 1) for n in range(30)])
    assert len(all_of_it.history()) == 30


def test_no_history_is_kept_where_none_is_wanted() -> None:
    session = started(history_limit=0)
    with pytest.raises(rc.RecensionError, match="history_limit=0"):
        session.history()
    assert not [name for name in session.snapshot() if name.endswith("/history")]
    with pytest.raises(rc.RecensionError, match="history_limit is a number"):
        rc.session(s, history_limit=-1)


TIMES = [
    pa.int64(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us", "Europe/Paris"),
]
TOKYO = pa.timestamp("us", "Asia/Tokyo")
COLUMNS = pa.table(
    {
        "_vs": [10, 20, 30],
        "_ve": [15, None, 40],
        "i": pa.array([1, None, 2**62 + 1]),
        "small": pa.array([1, None, 3], pa.int8()),
        "f": pa.array([float("nan"), None, 0.1]),
        "b": pa.array([True, None, False]),
        "t": pa.array(["x", None, ""]),
        "none": pa.array([None, None, None], pa.string()),
        "at": pa.array(
            [dt.datetime(2024, 1, 2), None, dt.datetime(1700, 1, 1)], pa.timestamp("us", "Asia/Tokyo")
        ),
        "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    }
)


def of_type(kind: pa.DataType) -> pa.Table:
    return COLUMNS.cast(
        pa.schema([pa.field(f.name, kind if f.name[0] == "_" else f.type) for f in COLUMNS.schema])
    )


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_a_history_goes_to_arrow_and_pandas_and_back(kind: pa.DataType) -> None:
    table = of_type(kind)
    history = rc.History.from_arrow(table)
    assert history.time_type == kind
    assert checksum(history.to_arrow()) == checksum(table)
    frame = history.to_pandas()
    assert frame["_ve"].isna().tolist() == [False, True, False]
    assert str(frame["i"].dtype) == "Int64"
    assert checksum(rc.History.from_pandas(frame).to_arrow()) == checksum(table)


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_a_result_goes_to_arrow_and_pandas_and_back(kind: pa.DataType) -> None:
    source = rc.source("c", pa.schema([f for f in COLUMNS.schema if f.name[0] != "_"]))
    result = rc.run(source, {"c": of_type(kind)})
    assert result.time_type == kind
    for again in (rc.Result.from_arrow(result.to_arrow()), rc.Result.from_pandas(result.to_pandas())):
        assert again.to_arrow().schema.equals(result.to_arrow().schema)
        assert_equivalent(again, result)
        assert again.time_type == kind
    assert result.history().time_type == kind


@given(st.data())
def test_any_history_survives_pandas(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    history = rc.History.from_events(data.draw(histories(schema, extremes=True)), schema)
    again = rc.History.from_pandas(history.to_pandas())
    assert_equivalent(again, history)
    assert not len(history) or again.to_arrow().schema.equals(history.to_arrow().schema)


@pytest.mark.parametrize("form", ["history", "arrow", "pandas", "result"])
@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_histories_and_results_are_inputs(form: str, kind: pa.DataType) -> None:
    """A history is a closed table, whatever the source calls its columns of times; a result is a stream."""
    source = rc.source("c", {"i": "int64", "t": "string"}, start="begin", end="until")
    history = rc.History.from_arrow(of_type(kind).select(["_vs", "_ve", "i", "t"]))
    given = {
        "history": history,
        "arrow": history.to_arrow(),
        "pandas": history.to_pandas(),
        "result": rc.run(rc.source("c", {"i": "int64", "t": "string"}), {"c": history}),
    }[form]
    out = rc.run(source, {"c": given}, batch_size=2)
    assert_equivalent(out, history)
    assert out.time_type == kind
    assert out.elements()[-1] == rc.Cti(rc.FOREVER)
    session = rc.session(source)
    session.push("c", given)
    assert session.history().to_arrow().sort_by("_vs").equals(history.to_arrow())


def test_the_kind_of_time_survives_a_snapshot() -> None:
    session, other = rc.session(s), rc.session(s)
    table = pa.table({"_vs": pa.array([1], pa.timestamp("us", "UTC")), "k": ["a"], "v": [1]})
    session.push("s", table)
    other.restore(session.snapshot())
    assert other.history().time_type == pa.timestamp("us", "UTC")
    assert other.read().time_type == pa.timestamp("us", "UTC")


def test_a_frame_that_is_no_history_is_refused() -> None:
    with pytest.raises(rc.RecensionError, match="column _ve is double"):
        rc.History.from_pandas(pd.DataFrame({"_vs": [1, 2], "_ve": [3.0, None], "x": [1, 2]}))
    with pytest.raises(rc.RecensionError, match="column _vs has nulls"):
        rc.History.from_arrow(pa.table({"_vs": [1, None], "_ve": [2, 3]}))
    with pytest.raises(rc.RecensionError, match="missing: _ve"):
        rc.History.from_arrow(pa.table({"_vs": [1]}))
    with pytest.raises(rc.RecensionError, match="do not mix with ticks"):
        rc.History.from_arrow(pa.table({"_vs": [1], "_ve": pa.array([2], pa.timestamp("us"))}))
    with pytest.raises(rc.RecensionError, match="a result needs a column _kind"):
        rc.Result.from_arrow(pa.table({"_vs": [1], "_ve": [2]}))
