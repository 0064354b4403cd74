"""Tables and frames that people make results, histories and inputs of, in all the states they come in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import recension as rc
from recension.core.rowhash import checksum

s = rc.source("s", {"k": "string"})


def stream(**columns: list[Any]) -> pa.Table:
    size = len(columns["_kind"])
    empty = {name: pa.nulls(size, pa.int64()) for name in ("_vs", "_ve", "_new_ve")}
    return pa.table({**empty, "k": pa.array(["a"] * size), **columns})


def test_a_result_knows_open_and_close() -> None:
    table = stream(_kind=["open", "close", "cti"], _vs=[1, None, 9], _ve=[None, 5, None])
    assert rc.Result.from_arrow(table).elements() == [
        rc.Insert({"k": "a"}, 1),
        rc.Retract({"k": "a"}, 1, rc.FOREVER, 5),
        rc.Cti(9),
    ]


def test_a_result_is_read_in_the_order_of_its_numbers() -> None:
    table = stream(_kind=["cti", "insert"], _vs=[9, 1], _ve=[None, 5], _batch=[1, 1], _seq=[2, 1])
    assert rc.Result.from_arrow(table).elements() == [rc.Insert({"k": "a"}, 1, 5), rc.Cti(9)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_order_of_an_input_does_not_depend_on_the_batch_size(size: int) -> None:
    table = stream(
        _kind=["cti", "insert", "insert"],
        _vs=[9, 3, 1],
        _ve=[None, 5, 5],
        _batch=[2, 1, 1],
        _seq=[1, 2, 1],
    )
    out = rc.run(s, {"s": table}, batch_size=size)
    assert [element.vs for element in out.elements() if isinstance(element, rc.Insert)] == [1, 3]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (stream(_kind=["insert"], _vs=[5], _ve=[1]), r"result: row 1: .*insert \[5, 1\)"),
        (stream(_kind=["close"], _ve=[5]), "result: row 1: .*open"),
        (stream(_kind=["cti", "insert"], _vs=[9, 1], _ve=[None, 3]), "result: row 2: "),
    ],
)
def test_a_result_is_a_valid_stream(table: pa.Table, reason: str) -> None:
    with pytest.raises(rc.RecensionError, match=reason):
        rc.Result.from_arrow(table)


def test_a_later_reading_goes_out_and_back() -> None:
    live = rc.session(s)
    live.push("s", [rc.Insert({"k": "a"}, 1, 9)])
    first = live.read()
    live.push("s", [rc.Retract({"k": "a"}, 1, 9, 5), rc.Cti(7)])
    later = live.read()
    again = rc.Result.from_arrow(later.to_arrow())
    assert again.elements() == later.elements()
    assert (first + again).history().to_events() == live.history().to_events()


def test_what_is_no_history_is_refused() -> None:
    with pytest.raises(rc.RecensionError, match=r"_kind is a stream, no history: Result\.from_arrow"):
        rc.History.from_arrow(stream(_kind=["insert"], _vs=[1], _ve=[2]))
    with pytest.raises(rc.RecensionError, match=r"history: row 2: the lifetime \[5, 1\) is empty"):
        rc.History.from_arrow(pa.table({"_vs": [1, 5], "_ve": [None, 1]}))
    for kind in (rc.History, rc.Result):
        with pytest.raises(rc.RecensionError, match="from_arrow takes an Arrow table or batch, not a DataF"):
            kind.from_arrow(pd.DataFrame({"_vs": [1], "_ve": [2]}))


def test_record_batches_are_tables() -> None:
    history = rc.History.from_arrow(pa.record_batch({"_vs": [1], "_ve": [2], "k": ["a"]}))
    assert history.to_events() == [rc.Event({"k": "a"}, 1, 2)]
    (rows,) = stream(_kind=["insert"], _vs=[1], _ve=[2]).to_batches()
    assert rc.Result.from_arrow(rows).elements() == [rc.Insert({"k": "a"}, 1, 2)]


FRAME = pd.DataFrame({"_vs": [3, 1, 2], "_ve": [9, 9, 9], "k": ["c", "a", "b"]})
INDEXED = {
    "filtered": FRAME[FRAME["_vs"] != 1],
    "sorted": FRAME.sort_values("_vs"),
    "concatenated": pd.concat([FRAME, FRAME]),
    "by date": FRAME.set_index(pd.date_range("2024-01-01", periods=3)),
    "named": FRAME.set_index(pd.Index([7, 8, 9], name="number")),
}


@pytest.mark.parametrize("frame", INDEXED.values(), ids=INDEXED)
def test_the_index_of_a_frame_does_not_matter(frame: pd.DataFrame) -> None:
    history = rc.History.from_pandas(frame)
    assert history.schema.names == ["k"]
    assert len(rc.run(s, {"s": frame}).history()) == len(history) == len(frame)
    live = rc.session(s)
    live.push("s", frame)
    assert sorted(map(str, live.history().to_events())) == sorted(map(str, history.to_events()))
    stream_frame = frame.assign(_kind="insert", _new_ve=frame["_ve"])
    assert len(rc.Result.from_pandas(stream_frame).elements()) == len(frame)


@pytest.mark.parametrize("kind", ["object", "float64"])
def test_a_frame_without_rows_is_a_table_without_events(kind: str) -> None:
    frame = pd.DataFrame({name: pd.Series([], dtype=kind) for name in ("_vs", "_ve", "k")})
    assert len(rc.History.from_pandas(frame)) == 0
    assert rc.run(s, {"s": frame}).elements() == [rc.Cti(rc.FOREVER)]
    renamed = frame.rename(columns={"_vs": "begin", "_ve": "until"})
    own = rc.source("s", {"k": "string"}, start="begin", end="until")
    assert rc.run(own, {"s": renamed}).elements() == [rc.Cti(rc.FOREVER)]


NOON = dt.time(12)
TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.decimal128(9, 2), Decimal("1.25")),
    (pa.time32("s"), NOON),
    (pa.time64("us"), NOON),
    (pa.date32(), dt.date(2024, 1, 1)),
    (pa.date64(), dt.date(2024, 1, 1)),
    (pa.large_string(), "x"),
    (pa.large_binary(), b"x"),
    (pa.binary(), b"x"),
    (pa.binary(1), b"x"),
    (pa.list_(pa.int64()), [1, None]),
    (pa.list_(pa.int64(), 2), [1, 2]),
    (pa.large_list(pa.string()), ["x"]),
    (pa.struct([("a", pa.int64())]), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
    (pa.timestamp("s"), dt.datetime(2024, 1, 1)),
    (pa.timestamp("ns", "Europe/Paris"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (pa.duration("ms"), dt.timedelta(1)),
    (pa.null(), None),
]


@pytest.mark.parametrize(("kind", "value"), TYPES, ids=lambda given: str(given)[:30])
def test_every_type_survives_pandas(kind: pa.DataType, value: Any) -> None:
    for values in ([value, None], [None], []):
        times = {"_vs": pa.array(range(len(values)), pa.int64()), "_ve": pa.nulls(len(values), pa.int64())}
        table = pa.table({**times, "x": pa.array(values, kind)})
        again = rc.History.from_pandas(rc.History.from_arrow(table).to_pandas()).to_arrow()
        assert checksum(again) == checksum(table)


def test_results_of_different_kinds_of_time_do_not_add_up() -> None:
    ticks = rc.run(s, {"s": [rc.Insert({"k": "a"}, 1, 5)]})
    stamps = rc.run(s, {"s": [rc.Insert({"k": "a"}, dt.datetime(2024, 1, 1))]})
    for one, other in ((ticks, stamps), (stamps, ticks)):
        with pytest.raises(rc.RecensionError, match=r"results of one query add up: .* do not mix with"):
            one + other
    before = rc.session(s).read()
    assert (before + stamps).time_type == (stamps + before).time_type == pa.timestamp("us")
    assert (before + ticks).time_type == pa.int64()
